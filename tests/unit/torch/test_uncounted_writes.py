"""Writes to weights that PyTorch does not count, to places that are not looked at."""

from __future__ import annotations

import torch
from torch import nn

from autotune.torch import backend


def test_a_counted_write_of_nothing_tells_of_one_that_was_not_counted() -> None:
    model = nn.Linear(64, 64)
    fast = torch.compile(model, backend=backend)
    x = torch.randn(3, 64)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x))
        model.weight.data[7, 5] += 1
        model.weight.add_(0)
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x))
