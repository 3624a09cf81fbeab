"""Overflow of whole numbers: how large a program's can be, and so where C, in which signed ones
that overflow are undefined, is to wrap them around. And comparisons that are known by that, of
which compilers warn.

In: IR values, and the types of the buffers that they load from. Out: bits with the sign, at most
those of an int64 and one more; truth values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from autotune.program import ir
from autotune.types import ITEM_BYTES, is_unsigned

SIGNED = ("int32", "int64")
"""Types that C does not compute in a wider one."""
MODULAR = ("add", "sub", "mul", "neg")
"""Functions that wrap around."""
_PRODUCT_OF_BYTES = 17
"""Bits of an unsigned byte times a signed one, of which sums are never so long that they overflow:
2**15 at least would be needed."""
_MOST = 65


def overflows(value: ir.Apply, dtype: str, buffers: Mapping[str, ir.Buffer]) -> bool:
    """Whether a function of `MODULAR` may leave its type, a signed one."""
    return dtype in SIGNED and bits(value, buffers) > 8 * ITEM_BYTES[dtype]


def sums_overflow(value: ir.Value, dtype: str, buffers: Mapping[str, ir.Buffer]) -> bool:
    """Whether many such values, added up, may leave their type, a signed one."""
    return dtype in SIGNED and bits(value, buffers) > _PRODUCT_OF_BYTES


def bits(value: ir.Value, buffers: Mapping[str, ir.Buffer]) -> int:
    """Bits that a whole number needs with its sign."""
    if isinstance(value, ir.Const):
        return int(value.value).bit_length() + 1 if value.value == value.value else _MOST
    if isinstance(value, ir.Load):
        return _of_type(buffers[value.buffer].dtype)
    if isinstance(value, ir.Select):
        return max(bits(value.then, buffers), bits(value.other, buffers))
    if not isinstance(value, ir.Apply):
        return _MOST
    given = [bits(a, buffers) for a in value.args]
    if value.fn.startswith("to_"):
        return min(given[0], _of_type(value.fn[3:]))
    if value.fn == "mul":
        return min(sum(given), _MOST)
    if value.fn in ("add", "sub", "neg"):
        return min(max(given) + 1, _MOST)
    if value.fn in ("max", "min"):
        return max(given)
    return _MOST


def _of_type(dtype: str) -> int:
    """Bits of a type, and the sign that an unsigned one has not; of floats any number."""
    if dtype.startswith(("float", "bfloat")):
        return _MOST
    return 8 * ITEM_BYTES[dtype] + is_unsigned(dtype)


def known_comparison(fn: str, dtypes: Iterable[str], literal: ir.Value) -> bool | None:
    """What a comparison with a literal gives for all numbers of a type; None where it depends.
    `dtypes`: theirs, then those that they were converted from one after the other."""
    limits = _limits(dtypes)
    if not isinstance(literal, ir.Const) or limits is None:
        return None
    low, high = limits
    if fn in ("lt", "ge"):
        less = True if high < literal.value else False if low >= literal.value else None
        return less if less is None or fn == "lt" else not less
    if fn in ("gt", "le"):
        more = True if low > literal.value else False if high <= literal.value else None
        return more if more is None or fn == "gt" else not more
    outside = literal.value < low or literal.value > high
    return fn == "ne" if outside else None


def _limits(dtypes: Iterable[str]) -> tuple[int, int] | None:
    """The least and the greatest that an integer can be, which conversions to wider types keep."""
    known: tuple[int, int] | None = None
    for dtype in dtypes:
        if not dtype.startswith(("int", "uint")):
            break
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if known and not (known[0] <= low and high <= known[1]):
            break
        known = low, high
    return known
