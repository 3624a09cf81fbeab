"""Elements rounded to the values that shorter types have: narrow_float, low_bits.

Both keep the element type: what is narrow is the set of values. Rounding follows the ONNX
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


NARROW_FLOATS = {
    "float16": NarrowFloat(10, -14, 65504.0, True),
    "float8e4m3fn": NarrowFloat(3, -6, 448.0, False),
    "float8e4m3fnuz": NarrowFloat(3, -7, 240.0, False),
    "float8e5m2": NarrowFloat(2, -14, 57344.0, True),
    "float8e5m2fnuz": NarrowFloat(2, -15, 57344.0, False),
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
    return fn("where", fn("lt", x, const(0, dtype)), fn("neg", out), out)


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
    return np.asarray(np.where(x < 0, -out, out))


def _beyond(narrow: NarrowFloat) -> float:
    return float("inf") if narrow.infinite else float("nan")


def _attributes(attrs: Attrs) -> tuple[str, bool]:
    known = ("bfloat16", *NARROW_FLOATS)
    return text(attrs, "kind", "float16", known), bool(integer(attrs, "saturate", 0))


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
    Activation("low_bits", _low_bits, _np_low_bits, floats_only=False),
):
    OPS.add(_op.name, _op)
