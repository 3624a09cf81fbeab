"""Weights into the layout that a schedule wants. In: a dense array and a Pack. Out: packed array."""

from __future__ import annotations

import numpy as np

from autotune.program.ir import Pack
from autotune.types import Array


def packed_shape(pack: Pack) -> tuple[int, ...]:
    """Shape after splitting and permuting."""
    factors = dict(pack.splits)
    dims: list[int] = []
    for d, extent in enumerate(pack.shape):
        if d in factors:
            dims += [-(-extent // factors[d]), factors[d]]
        else:
            dims.append(extent)
    return tuple(dims[d] for d in pack.order)


def apply_pack(pack: Pack, array: Array) -> Array:
    """The packed, contiguous copy of `array` (shape `pack.shape`), zero padded."""
    factors = dict(pack.splits)
    widths, dims = [], []
    for d, extent in enumerate(pack.shape):
        if d in factors:
            blocks = -(-extent // factors[d])
            widths.append((0, blocks * factors[d] - extent))
            dims += [blocks, factors[d]]
        else:
            widths.append((0, 0))
            dims.append(extent)
    padded = np.pad(array, widths) if any(w for _, w in widths) else array
    return np.ascontiguousarray(padded.reshape(dims).transpose(pack.order))
