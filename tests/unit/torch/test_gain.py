"""Pieces that would be slower here than in PyTorch are PyTorch's by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from autotune.torch import explain

Function = Callable[[torch.Tensor], Any]


def product(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def waves(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sin()


def line(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@pytest.mark.parametrize(
    ("function", "dtype", "ours"),
    [
        (product, torch.float64, False), (product, torch.float32, True),
        (waves, torch.float64, False), (waves, torch.float32, True),
        (line, torch.bfloat16, False), (line, torch.float64, True),
    ],
)  # fmt: skip
def test_what_is_slow_here_is_left_to_pytorch(
    function: Function, dtype: torch.dtype, ours: bool
) -> None:
    torch._dynamo.reset()
    (graph,) = explain(function, torch.ones(256, 256, dtype=dtype)).graphs
    assert (graph.ours > 0, graph.quicker > 0) == (ours, not ours)
