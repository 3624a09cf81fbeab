"""requantize(x, multiplier, shift; rounding, least_shift, bits): integers by fixed-point numbers.

x * multiplier / 2**shift of int32, where multipliers and shifts are one for all or broadcast as
in numpy. Rounding `once`: to the nearest integer, halves up. `twice`, where the shift is above
31: to the nearest of x * multiplier / 2**31, halves up, then of that divided, halves away from
zero. So scale TensorFlow Lite's reference kernels sums of products. `up`: as `twice`, but for
halves below zero, which go up the second time as well: the same where nothing below zero is told
apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    axes_of,
    broadcast_load,
    broadcast_shape,
    integer,
    require,
    text,
)
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Compute, Const, Value, fn
from autotune.types import Array, Attrs, TensorType

SHIFTS = range(1, 63)
_PRODUCT = 31
"""The shift of the first rounding where there are two."""


class Requantize:
    """Rounded products by fixed point. `least_shift` is what no shift is below: from 31 on (33
    where it is rounded once) all but the product is computed in 32 bits, from 32 on without asking
    whether there is a second rounding."""

    name = "requantize"
    kind: OpKind = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 3)
        found = ", ".join(t.dtype for t in types)
        whole = all(t.dtype == "int32" for t in types)
        require(whole, f"requantize: inputs must be int32, got {found}")
        least = integer(attrs, "least_shift", SHIFTS[0])
        require(least in SHIFTS, f"requantize: least_shift must be 1 to 62, got {least}")
        bits = integer(attrs, "bits", _PRODUCT)
        require(0 < bits <= _PRODUCT, f"requantize: bits must be 1 to 31, got {bits}")
        if _rounding(attrs) == "up":
            short = least >= _PRODUCT and bits < _PRODUCT
            require(short, "requantize: rounding up takes least_shift 31 or more, bits 30 or less")
        return TensorType(
            dtype="int32", shape=broadcast_shape(self.name, [t.shape for t in types])
        )

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        x, multiplier, shift = (broadcast_load(name, t.shape, axes) for name, t in inputs)
        product = fn("mul", fn("to_int64", x), fn("to_int64", multiplier))
        least, rounding = integer(attrs, "least_shift", SHIFTS[0]), _rounding(attrs)
        twice = rounding == "twice"
        if rounding == "up":
            body = _halved_up(_upper(x, multiplier), shift)
        elif twice and least > _PRODUCT:
            body = _halved_away(_nearest(product), fn("sub", shift, _whole(_PRODUCT)))
        elif not twice and least > _PRODUCT + 1:
            upper = fn("to_int32", fn("shift_right", product, Const(32, "int64")))
            body = _halved(upper, fn("sub", shift, _whole(33)), "int32")
        elif twice and least == _PRODUCT:
            body = _divided_again(_nearest(product), product, shift)
        else:
            count = fn("min", shift, _whole(_PRODUCT)) if twice else shift
            less = fn("to_int64", fn("sub", count, _whole(1)))
            body = fn("to_int32", _halved(product, less, "int64"))
            if twice:
                body = _divided_again(body, product, shift)
        return (Compute(output[0], output[1].dtype, axes, body),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, multiplier, shift = (np.asarray(a).astype(np.int64) for a in arrays)
        rounding = _rounding(attrs)
        first = shift if rounding == "once" else np.minimum(shift, _PRODUCT)
        near = (x * multiplier + (np.int64(1) << (first - 1))) >> first
        rest = shift - first
        if rounding == "up":
            return np.asarray((near + ((np.int64(1) << rest) >> 1)) >> rest).astype(np.int32)
        mask = (np.int64(1) << rest) - 1
        more = (near & mask) > (mask >> 1) + (near < 0)
        return np.asarray((near >> rest) + (more & (rest > 0))).astype(np.int32)


def _rounding(attrs: Attrs) -> str:
    return text(attrs, "rounding", "once", ("once", "twice", "up"))


def _upper(x: Value, multiplier: Value) -> Value:
    """x * multiplier / 2**31, halves up: the upper half of twice that."""
    product = fn("mul", fn("to_int64", fn("mul", x, _whole(2))), fn("to_int64", multiplier))
    half = fn("add", product, Const(1 << 31, "int64"))
    return fn("to_int32", fn("shift_right", half, Const(32, "int64")))


def _halved_up(x: Value, shift: Value) -> Value:
    """x / 2**(shift - 31), halves up, for |x| below 2**30."""
    half = fn("shift_right", _whole(1 << 30), fn("bit_and", fn("sub", _whole(62), shift), _MASK))
    rest = fn("bit_and", fn("sub", shift, _whole(_PRODUCT)), _MASK)
    return fn("shift_right", fn("add", x, half), rest)


def _nearest(product: Value) -> Value:
    """product / 2**31, halves up, which is within 32 bits."""
    half = fn("add", product, Const(1 << 30, "int64"))
    return fn("to_int32", fn("shift_right", half, Const(_PRODUCT, "int64")))


def _divided_again(once: Value, product: Value, shift: Value) -> Value:
    """What is rounded once, or where the shift is above 31 the product rounded twice."""
    rest = fn("sub", shift, _whole(_PRODUCT))
    again = _halved_away(_nearest(product), fn("max", rest, _whole(1)))
    return fn("where", fn("gt", rest, _whole(0)), again, once)


def _halved_away(x: Value, count: Value) -> Value:
    """x / 2**count, halves away from zero: up, of negative numbers after 1 is taken away."""
    sign = fn("shift_right", x, _whole(31))
    return _halved(fn("add", x, sign), fn("sub", count, _whole(1)), "int32")


def _halved(x: Value, count: Value, dtype: str) -> Value:
    """x / 2**(count + 1), halves up. The count is within the bits of x, which is said so that
    nothing has to be asked."""
    one, bits = Const(1, dtype), 63 if dtype == "int64" else 31
    moved = fn("shift_right", x, fn("bit_and", count, Const(bits, dtype)))
    return fn("shift_right", fn("add", moved, one), one)


def _whole(value: int) -> Const:
    return Const(value, "int32")


_MASK = _whole(31)


OPS.add(Requantize.name, Requantize())
