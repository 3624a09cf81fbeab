"""Repeats of rows whose total is known, in operators that there are. In: how often each row is
repeated. Out: the row of each place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

UNEVEN = "allocated size does not match required size"
"""What PyTorch says of repeats that do not add up to the size that they are said to have."""


def repeated_places(repeats: Tensor, *, output_size: int | None = None) -> Any:
    """How many rows end before each place: its own one. Left to PyTorch (by NotImplemented) where
    the run decides how many places there are."""
    if output_size is None or not repeats.shape[0]:
        return NotImplemented
    ends = repeats.cumsum(0)
    holds = (repeats >= 0).all() & (ends[-1] == output_size)
    torch.ops.aten._assert_async.msg(holds, UNEVEN)
    places = torch.arange(output_size, dtype=ends.dtype, device=repeats.device)
    return torch.searchsorted(ends, places, right=True).to(repeats.dtype)
