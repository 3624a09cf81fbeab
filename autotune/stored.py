"""Elements as they lie in memory. In: values of a type that numpy may lack. Out: its arrays.

numpy has no bfloat16: such elements are held as their bits, in uint16.
"""

from __future__ import annotations

import numpy as np

from autotune.types import Array


def stored_as(dtype: str) -> str:
    """numpy's type for elements of that type as they lie in memory: bfloat16 is its bits."""
    return "uint16" if dtype == "bfloat16" else dtype


def stored(array: Array, dtype: str) -> Array:
    """What lies in memory for a tensor of that type with these values."""
    if dtype == "bfloat16" and array.dtype.kind == "f":
        return bfloat16_bits(array)
    with np.errstate(over="ignore"):
        return array.astype(stored_as(dtype), copy=False)


def bfloat16_bits(array: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even, as its 16 bits."""
    bits = np.asarray(array, np.float32, order="C").view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(array), quiet, rounded).astype(np.uint16)


def widen_bfloat16(bits: Array) -> Array:
    """The float32 values of bfloat16 bits."""
    return np.asarray((bits.astype(np.uint32) << 16).view(np.float32))
