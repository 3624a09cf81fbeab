"""Weights in the layout that a schedule wants. In: a dense array, a Pack. Out: packed array."""

from __future__ import annotations

import numpy as np

from autotune.program.ir import Pack
from autotune.types import Array


def packed_shape(pack: Pack) -> tuple[int, ...]:
    """Shape after splitting and permuting."""
    dims = list(pack.shape)
    for d, factor in pack.splits:
        dims[d : d + 1] = [-(-dims[d] // factor), factor]
    return tuple(dims[d] for d in pack.order)


def apply_pack(pack: Pack, array: Array) -> Array:
    """The packed, contiguous copy of `array` (shape `pack.shape`), zero padded."""
    out = array.reshape(pack.shape)
    for d, factor in pack.splits:
        extent = out.shape[d]
        blocks = -(-extent // factor)
        if blocks * factor != extent:
            widths = [(0, 0)] * out.ndim
            widths[d] = (0, blocks * factor - extent)
            out = np.pad(out, widths)
        out = out.reshape(*out.shape[:d], blocks, factor, *out.shape[d + 1 :])
    return np.ascontiguousarray(out.transpose(pack.order))
