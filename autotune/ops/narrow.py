"""Elements rounded to the values that shorter types have: narrow_float, power_of_two, low_bits.

They keep the element type: what is narrow is the set of values. Rounding follows the ONNX
standard's Cast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.ops._common import const, integer, text
from autotune.ops.base import OPS
from autotune.ops.elementwise import Activation
from autotune.program.functions import apply_function
from autotune.program.ir import Value, fn
from autotune.types import Array, Attrs


@dataclass(frozen=True, slots=True)
class NarrowFloat:
    """A floating-point type. `digits` behind the leading one; `least` is the exponent of the
    smallest normal number; what is too large becomes infinite where there is an infinity, else not
    a number."""

    digits: int
    least: int
    largest: float
    infinite: bool
    nan: bool = True
    """Whether there is one; what is no number becomes 0 where there is none."""


NARROW_FLOATS = {
    "float16": NarrowFloat(10, -14, 65504.0, True),
    "float8e4m3fn": NarrowFloat(3, -6, 448.0, False),
    "float8e4m3fnuz": NarrowFloat(3, -7, 240.0, False),
    "float8e5m2": NarrowFloat(2, -14, 57344.0, True),
    "float8e5m2fnuz": NarrowFloat(2, -15, 57344.0, False),
    "float4e2m1": NarrowFloat(1, 0, 6.0, False, nan=False),
}
"""Types that arithmetic rounds to; bfloat16 is cut from float32's bits."""


def _narrow(x: Value, attrs: Attrs, dtype: str) -> Value:
    """|x| counted in its last place's unit, rounded to a whole number of them, with x's sign.

    Every step but the rounding is exact (the unit is a power of two), so that the result is the
    same in whatever precision it is computed."""
    kind, saturate = _attributes(attrs)
    if kind == "bfloat16":
        return fn("to_float32", fn("to_bfloat16", x))
    narrow = NARROW_FLOATS[kind]
    size = fn("min", fn("abs", x), const(2 * narrow.largest, dtype))
    power = fn("max", fn("binade", size), const(2.0**narrow.least, dtype))
    unit = fn("mul", power, const(2.0**-narrow.digits, dtype))
    near = fn("mul", fn("round", fn("div", size, unit)), unit)
    beyond = narrow.largest if saturate else _beyond(narrow)
    out = fn("where", fn("gt", near, const(narrow.largest, dtype)), const(beyond, dtype), near)
    out = fn("where", fn("lt", x, const(0, dtype)), fn("neg", out), out)
    return out if narrow.nan else fn("where", fn("ne", x, x), const(0, dtype), out)


def _np_narrow(x: Array, attrs: Attrs) -> Array:
    kind, saturate = _attributes(attrs)
    x = x.astype(np.float32)
    if kind == "bfloat16":
        return apply_function("to_bfloat16", [x])
    narrow = NARROW_FLOATS[kind]
    _, exponents = np.frexp(x)
    step = np.ldexp(1.0, np.maximum(exponents - 1, narrow.least) - narrow.digits)
    size = np.where(np.isfinite(x), np.rint(np.abs(x) / step) * step, np.abs(x))
    beyond = narrow.largest if saturate else _beyond(narrow)
    out = np.where(size > narrow.largest, beyond, size)
    out = np.where(x < 0, -out, out)
    return np.asarray(out if narrow.nan else np.where(np.isnan(x), 0, out))


def _beyond(narrow: NarrowFloat) -> float:
    return float("inf") if narrow.infinite else float("nan")


def _attributes(attrs: Attrs) -> tuple[str, bool]:
    known = ("bfloat16", *NARROW_FLOATS)
    return text(attrs, "kind", "float16", known), bool(integer(attrs, "saturate", 0))


ROUNDINGS = {"up": 1.0, "nearest": 1.5, "down": 2.0}
"""How a number becomes a power of two -> the ratio to the one below from which, or (up) beyond
which, it is the next."""
_NORMAL = 2.0**-126
_LEAST_POWER, _LARGEST_POWER = 2.0**-127, 2.0**127


def _power(x: Value, attrs: Attrs, dtype: str) -> Value:
    """A number as a power of two: the least one for what is less than float32's normal numbers,
    at most the one below its largest."""
    rounding = text(attrs, "rounding", "up", tuple(ROUNDINGS))
    below = fn("binade", x)
    limit = fn("mul", below, const(ROUNDINGS[rounding], dtype))
    more = fn("gt" if rounding == "up" else "ge", x, limit)
    out = fn("where", more, fn("mul", below, const(2, dtype)), below)
    out = fn("min", out, const(_LARGEST_POWER, dtype))
    # Not by `max`: arithmetic may take the least one, which is not normal, for 0.
    small = fn("lt", x, const(_NORMAL, dtype))
    out = fn("where", small, const(_LEAST_POWER, dtype), out)
    return fn("where", fn("ne", x, x), x, out)


def _np_power(x: Array, attrs: Attrs) -> Array:
    rounding = text(attrs, "rounding", "up", tuple(ROUNDINGS))
    share, exponents = np.frexp(x)  # a number is share * 2 ** exponent, from a half on
    limit = ROUNDINGS[rounding] / 2
    more = share > limit if rounding == "up" else share >= limit
    out = np.ldexp(1.0, exponents - 1 + more)
    out = np.where(np.isinf(x), _LARGEST_POWER, np.minimum(out, _LARGEST_POWER))
    known = np.where(x < _NORMAL, _LEAST_POWER, out)
    return np.asarray(np.where(np.isnan(x), x, known))


def _low_bits(x: Value, attrs: Attrs, dtype: str) -> Value:
    """What the lowest bits of a number, cut to a whole one, say in two's complement."""
    count, lowest = 1 << integer(attrs, "bits"), _lowest(attrs)
    if not dtype.startswith("float"):
        moved = fn("sub", x, const(lowest, dtype))
        return fn("add", fn("mod", moved, const(count, dtype)), const(lowest, dtype))
    whole = fn("where", fn("lt", x, const(0, dtype)), fn("ceil", x), fn("floor", x))
    share = fn("mul", fn("sub", whole, const(lowest, dtype)), const(1 / count, dtype))
    return fn("sub", whole, fn("mul", fn("floor", share), const(count, dtype)))


def _np_low_bits(x: Array, attrs: Attrs) -> Array:
    count, lowest = 1 << integer(attrs, "bits"), _lowest(attrs)
    return np.asarray(np.mod(np.trunc(x) - lowest, count) + lowest)


def _lowest(attrs: Attrs) -> int:
    return -(1 << (integer(attrs, "bits") - 1)) if integer(attrs, "signed", 1) else 0


for _op in (
    Activation("narrow_float", _narrow, _np_narrow),
    Activation("power_of_two", _power, _np_power),
    Activation("low_bits", _low_bits, _np_low_bits, floats_only=False),
):
    OPS.add(_op.name, _op)
