"""A PyTorch model compiled by this project, without an export.

    python examples/pytorch.py

In: nothing. Out: lines with how far the results are from PyTorch's own, and what both take.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import autotune.torch


def model() -> nn.Module:
    """A small network of images."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.SiLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).eval()  # fmt: skip


def milliseconds(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> float:
    """The median of twenty runs, after three."""
    times = []
    for _ in range(23):
        start = time.perf_counter()
        run(x)
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:]) * 1e3


def main() -> None:
    torch.set_num_threads(1)
    eager, x = model(), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        fast = torch.compile(eager, backend="autotune")
        error = (fast(x) - eager(x)).abs().max().item()
        print(f"largest error {error:.1e}")
        print(f"PyTorch {milliseconds(eager, x):.2f} ms, ours {milliseconds(fast, x):.2f} ms")
        print(autotune.torch.explain(eager, x))


if __name__ == "__main__":
    main()
