"""Graphs under modes of PyTorch, and numbers that only a run knows."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

PLAIN: dict[str, Any] = {"machine": "nominal", "threads": 1, "min_gain": 0}


def compiled(function: Any, **named: Any) -> Any:
    return torch.compile(function, backend="autotune", options=PLAIN, **named)


@pytest.mark.parametrize("met", ["never", "before"])
@pytest.mark.parametrize("weights", [False, True])
def test_tensors_without_data_have_forms_alone(met: str, weights: bool) -> None:
    """Their memory is nowhere: a kernel that read it would end the process."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU()).eval()
    fast = compiled(model)
    x = torch.randn(3, 6)
    with torch.no_grad():
        for _ in range(2 * (met == "before")):
            fast(x)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            given = mode.from_tensor(x)
            if weights:
                parts: dict[str, torch.Tensor] = {
                    n: mode.from_tensor(p) for n, p in model.named_parameters()
                }
                made = torch.func.functional_call(fast, parts, (given,))
            else:
                made = fast(given)
        assert isinstance(made, FakeTensor)
        assert made.shape == (3, 8)
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x))


def chosen(x: torch.Tensor) -> torch.Tensor:
    return (x[x > 0] * 2 + 1).relu().sum() + x.sum()


def cut(x: torch.Tensor) -> torch.Tensor:
    count = int(x[0, 0].item())
    torch._check(0 <= count <= 4)  # type: ignore[no-untyped-call]
    return x[:count].exp()


@pytest.mark.parametrize("function", [chosen, cut])
def test_what_only_a_run_knows_is_left_to_pytorch(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever tells PyTorch to record such numbers reads one line of it."""
    x = torch.arange(12.0).view(4, 3) - 5
    settings = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(settings), caplog.at_level(logging.WARNING):
        fast = compiled(function)
        for first in (2.0, 0.0, 3.0):
            x[0, 0] = first
            torch.testing.assert_close(fast(x), function(x))
    (line,) = {r.getMessage() for r in caplog.records if r.name == "autotune.torch"}
    assert line.startswith("a graph runs in PyTorch: aten.")
