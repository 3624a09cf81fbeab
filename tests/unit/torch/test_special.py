"""Special functions, and repeats of rows of a known total, give what PyTorch gives."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from tests.unit.torch.oracle import by_numpy

ENDS = torch.tensor([0.0, -0.0, 1, -1, 3.75, -3.75, 1e-30, 88, -90, math.nan])


@pytest.mark.parametrize("function", [torch.special.i0, torch.special.erfinv])
def test_it_gives_what_pytorch_gives(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.cat([torch.linspace(-12, 12, 3001), torch.linspace(-0.9999999, 1, 3001), ENDS])
    (found,), plan = by_numpy(function, (x,))
    assert not plan.refused
    exact = function(x.double()).float()
    torch.testing.assert_close(found, exact, rtol=2e-6, atol=0, equal_nan=True)


def repeated(x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x, repeats, dim=0, output_size=8)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_are_repeated(dtype: torch.dtype) -> None:
    x = torch.arange(12.0).view(4, 3)
    made = torch.compile(repeated, backend="autotune", options={"min_gain": 0, "threads": 1})
    for counts in ([2, 2, 2, 2], [0, 8, 0, 0], [1, 0, 0, 7]):
        repeats = torch.tensor(counts, dtype=dtype)
        torch.testing.assert_close(made(x, repeats), repeated(x, repeats))
    with pytest.raises(RuntimeError, match="does not match"):
        made(x, torch.tensor([1, 2, 2, 2], dtype=dtype))
