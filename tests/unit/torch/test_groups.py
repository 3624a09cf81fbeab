"""Products of groups of rows give what PyTorch gives."""

from __future__ import annotations

import pytest
import torch

from tests.unit.torch.oracle import by_numpy


@pytest.mark.parametrize("groups", [4, 32])
def test_rows_are_multiplied_by_the_matrix_of_their_group(groups: int) -> None:
    """Few groups, and so many that a matrix is picked for each row; one has no rows."""
    draw = torch.Generator().manual_seed(groups)
    x, w = (torch.randn(s, generator=draw).bfloat16() for s in ((12, 8), (groups, 8, 16)))
    counts = torch.tensor([3, 0, 7, 2] + [0] * (groups - 4))
    ends = counts.cumsum(0).to(torch.int32)

    def function(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x, w, offs=ends)

    (found,), plan = by_numpy(function, (x, w, ends))
    assert not plan.refused
    group = torch.repeat_interleave(torch.arange(groups), counts)
    exact = torch.einsum("sk,skn->sn", x.double(), w.double()[group])
    torch.testing.assert_close(found.double(), exact, rtol=1e-2, atol=1e-2)
