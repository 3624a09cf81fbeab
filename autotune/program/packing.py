"""Weights in the layout that a schedule wants. In: a dense array, a Pack. Out: packed array."""

from __future__ import annotations

import numpy as np

from autotune.memory import drop_pages
from autotune.program.ir import Pack
from autotune.program.strassen import PRODUCTS, combined_weights
from autotune.program.winograd import points_of, transforms
from autotune.stored import bfloat16_bits
from autotune.types import Array

SLAB_BYTES = 16 << 20
"""Packed at a time."""


def transformed_shape(pack: Pack) -> tuple[int, ...]:
    """Shape after the transforms."""
    dims = list(pack.shape)
    for d, m, r, stride in pack.transforms:
        dims[d] = points_of(m, r, stride)
    for d in pack.strassen:
        dims[d] //= 2
    return (PRODUCTS, *dims) if pack.strassen else tuple(dims)


def packed_shape(pack: Pack) -> tuple[int, ...]:
    """Shape after splitting and permuting."""
    dims = list(transformed_shape(pack))
    for d, factor in pack.splits:
        dims[d : d + 1] = [-(-dims[d] // factor), factor]
    return tuple(dims[d] for d in pack.order)


def packed_dtype(pack: Pack, array: Array) -> np.dtype[np.generic]:
    """numpy's type of the packed elements of `array`."""
    return np.dtype(np.uint16) if pack.dtype else array.dtype


def apply_pack(pack: Pack, array: Array) -> Array:
    """The packed, contiguous copy of `array` (shape `pack.shape`), zero padded."""
    out = np.empty(packed_shape(pack), packed_dtype(pack, array))
    pack_into(pack, array, out)
    return out


def pack_into(pack: Pack, array: Array, out: Array) -> None:
    """The same into memory that is there: `out` has `packed_shape` and `packed_dtype`. What is
    read of a mapped file is given back slab by slab."""
    parts = _transformed(pack, array.reshape(pack.shape))
    for d, factor in pack.splits:
        extent = parts.shape[d]
        blocks = -(-extent // factor)
        if blocks * factor != extent:
            widths = [(0, 0)] * parts.ndim
            widths[d] = (0, blocks * factor - extent)
            parts = np.pad(parts, widths)
        parts = parts.reshape(*parts.shape[:d], blocks, factor, *parts.shape[d + 1 :])
    parts = parts.transpose(pack.order)
    rows = max(1, len(out) * SLAB_BYTES // max(out.nbytes, 1))
    for start in range(0, len(out), rows):
        slab = parts[start : start + rows]
        out[start : start + rows] = _bits(slab, pack.dtype) if pack.dtype else slab
        drop_pages(array)


def _bits(array: Array, dtype: str) -> Array:
    """The elements rounded to bfloat16 or float16, as their bits."""
    if dtype == "bfloat16":
        return bfloat16_bits(array)
    with np.errstate(over="ignore"):
        return array.astype(np.float16, order="C").view(np.uint16)


def _transformed(pack: Pack, array: Array) -> Array:
    """The filter transforms, in double precision."""
    if pack.strassen:
        return combined_weights(array, *pack.strassen)
    if not pack.transforms:
        return array
    out = array.astype(np.float64)
    for d, m, r, stride in pack.transforms:
        _, matrix, _ = transforms(m, r, stride)
        out = np.moveaxis(np.tensordot(np.asarray(matrix), out, axes=(1, d)), 0, d)
    return out.astype(array.dtype)
