"""Weights in the layout that a schedule wants. In: a dense array, a Pack. Out: packed array."""

from __future__ import annotations

import numpy as np

from autotune.program.ir import Pack
from autotune.program.strassen import PRODUCTS, combined_weights
from autotune.program.winograd import points_of, transforms
from autotune.types import Array


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


def apply_pack(pack: Pack, array: Array) -> Array:
    """The packed, contiguous copy of `array` (shape `pack.shape`), zero padded."""
    out = _transformed(pack, array.reshape(pack.shape))
    for d, factor in pack.splits:
        extent = out.shape[d]
        blocks = -(-extent // factor)
        if blocks * factor != extent:
            widths = [(0, 0)] * out.ndim
            widths[d] = (0, blocks * factor - extent)
            out = np.pad(out, widths)
        out = out.reshape(*out.shape[:d], blocks, factor, *out.shape[d + 1 :])
    out = np.ascontiguousarray(out.transpose(pack.order))
    if pack.dtype == "float16":
        with np.errstate(over="ignore"):
            return out.astype(np.float16).view(np.uint16)
    return bfloat16_bits(out) if pack.dtype == "bfloat16" else out


def bfloat16_bits(array: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even, as its 16 bits."""
    bits = np.asarray(array, np.float32, order="C").view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(array), quiet, rounded).astype(np.uint16)


def stored_as(dtype: str) -> str:
    """numpy's type for elements of that type as they lie in memory: bfloat16 is its bits."""
    return "uint16" if dtype == "bfloat16" else dtype


def stored(array: Array, dtype: str) -> Array:
    """What lies in memory for a tensor of that type with these values."""
    if dtype == "bfloat16" and array.dtype.kind == "f":
        return bfloat16_bits(array)
    with np.errstate(over="ignore"):
        return array.astype(stored_as(dtype), copy=False)


def widen_bfloat16(bits: Array) -> Array:
    """The float32 values of bfloat16 bits."""
    return np.asarray((bits.astype(np.uint32) << 16).view(np.float32))


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
