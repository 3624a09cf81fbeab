"""The meaning of the program IR's element functions and combiners, by numpy.

In: a function's name and arrays (or numpy scalars). Out: the result in the arguments' precision.
Integer `div` rounds toward zero; `mod` has the divisor's sign; `round` goes half to even. Every
backend agrees where C leaves it open: an integer divided by zero is 0, and so is its remainder;
the least integer by -1 is itself, with remainder 0. Bits shifted by their number or more, or by
less than none, leave 0 or the sign. A float that becomes an integer is cut toward zero and limited
to what the integer type holds; NaN becomes 0. `max` and `min` of a NaN are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.stored import bfloat16_bits, widen_bfloat16
from autotune.types import Array

_ERF = np.frompyfunc(math.erf, 1, 1)
_ERFC = np.frompyfunc(math.erfc, 1, 1)


def apply_function(name: str, args: list[Array]) -> Array:
    """FUNCTIONS[name] of the arguments. Overflow, nan and division by zero give IEEE values."""
    with np.errstate(all="ignore"):
        return np.asarray(_TABLE[name](*args))


def function(name: str) -> Callable[..., Any]:
    """The function itself; it may warn where `apply_function` does not."""
    return _TABLE[name]


def combiner(name: str) -> Callable[..., Any]:
    """One step of a reduction; it may warn where `combine` does not."""
    return _COMBINE[name]


def combine(name: str, left: Array, right: Array) -> Array:
    """One step of a reduction."""
    with np.errstate(all="ignore"):
        return np.asarray(_COMBINE[name](left, right))


def combine_over(name: str, values: Array, axes: tuple[int, ...]) -> Array:
    """A whole reduction over dimensions of an array, keeping its dtype."""
    with np.errstate(all="ignore"):
        if name in ("sum", "prod"):
            return np.asarray(_REDUCE[name](values, axis=axes, dtype=values.dtype))
        return np.asarray(_REDUCE[name](values, axis=axes))


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x)).astype(x.dtype)


def _div(a: Array, b: Array) -> Array:
    if np.issubdtype(np.asarray(a).dtype, np.floating):
        return np.asarray(a / b)
    down = np.floor_divide(a, b)
    short = (down < 0) & (np.multiply(down, b) != a) & (np.asarray(b) != 0)
    return np.asarray(down + short).astype(np.asarray(a).dtype)


def _sigmoid(x: Array) -> Array:
    one = x.dtype.type(1)
    return np.asarray(one / (one + np.exp(-x)))


def _swish(x: Array, slope: Array) -> Array:
    """x / (1 + e**(-slope x)); of minus infinity, zero times that."""
    one, z = x.dtype.type(1), np.asarray(slope * x)
    power = np.exp(-np.abs(z))
    return np.asarray(np.where(z < 0, x * power, x) / (one + power))


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _mish(x: Array) -> Array:
    return np.asarray(x * np.tanh(_softplus(x)))


def _gelu_erf(x: Array) -> Array:
    """x times the normal distribution's share below it, in double precision."""
    below = np.asarray(_ERFC(np.asarray(x, np.float64) * -math.sqrt(0.5)), np.float64)
    return np.asarray(x * (below / 2)).astype(x.dtype)


def _gelu_tanh(x: Array) -> Array:
    wide = np.asarray(x, np.float64)
    slope = math.sqrt(8 / math.pi) * (1 + 0.044715 * wide * wide)
    return np.asarray(_swish(wide, slope)).astype(x.dtype)


def _binade(x: Array) -> Array:
    """The power of two at or below |x|: 0 for what is less than all normal numbers, infinity for
    what is no number."""
    whole, mask = ("int32", 0x7F800000) if x.dtype == np.float32 else ("int64", 0x7FF << 52)
    return np.asarray((x.view(whole) & np.asarray(mask, whole)).view(x.dtype))


def _to(dtype: str) -> Callable[[Array], Array]:
    return lambda x: np.asarray(x).astype(dtype)


def _to_integer(dtype: str) -> Callable[[Array], Array]:
    """Floats cut toward zero, limited to the type's range, NaN as 0; integers wrap around."""
    limits = np.iinfo(dtype)
    low, end = float(limits.min), float(limits.max) + 1.0

    def convert(x: Array) -> Array:
        x = np.asarray(x)
        if x.dtype.kind != "f":
            return x.astype(dtype)
        wide = np.trunc(x.astype(np.float64))
        inside = (wide >= low) & (wide < end)
        out = np.where(inside, wide, 0.0).astype(dtype)
        out = np.where(wide >= end, limits.max, out)
        return np.asarray(np.where(wide < low, limits.min, out)).astype(dtype)

    return convert


def _to_bfloat16(x: Array) -> Array:
    """float32 values rounded to bfloat16's eight significant bits."""
    return widen_bfloat16(bfloat16_bits(np.asarray(x, np.float32)))


def _shift(move: Callable[..., Any]) -> Callable[[Array, Array], Array]:
    """Bits moved; by their number or more, or by less than none: only the sign is left of them,
    and nothing when they go up."""

    def shifted(a: Array, count: Array) -> Array:
        a = np.asarray(a)
        bits, kind = a.dtype.itemsize * 8, a.dtype.type
        inside = (count >= 0) & (count < bits)
        signs = move is np.right_shift and a.dtype.kind == "i"
        beyond = move(a, kind(bits - 1)) if signs else kind(0)
        return np.asarray(np.where(inside, move(a, count % kind(bits)), beyond)).astype(a.dtype)

    return shifted


_SHORTER_OR_UNSIGNED = ("int8", "uint8", "int16", "uint16", "uint32", "uint64")
_OF_NUMPY = {
    "sub": "subtract", "mul": "multiply", "max": "maximum", "min": "minimum", "pow": "power",
    "neg": "negative", "round": "rint", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "eq": "equal",
    "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "and": "logical_and", "or": "logical_or", "not": "logical_not", "bit_and": "bitwise_and",
    "bit_or": "bitwise_or", "bit_xor": "bitwise_xor", "bit_not": "bitwise_not",
    **{name: name for name in (
        "add", "mod", "abs", "sqrt", "exp", "log", "tanh", "floor", "ceil", "sign", "sin",
        "cos", "expm1", "sinh", "cosh", "tan", "where",
    )},
}  # fmt: skip
"""Function -> its name in numpy."""
_TABLE: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, known) for name, known in _OF_NUMPY.items()},
    "bits": lambda x: np.asarray(x, np.float32).view(np.int32),
    "to_bfloat16": _to_bfloat16,
    "to_float16": lambda x: np.asarray(x, np.float32).astype(np.float16),
    "div": _div,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "erf": _erf,
    "sigmoid": _sigmoid,
    "reciprocal": lambda x: x.dtype.type(1) / x,
    "binade": lambda x: _binade(np.ascontiguousarray(x).reshape(np.shape(x))),
    "softplus": _softplus,
    "mish": _mish,
    "silu": lambda x: _swish(x, x.dtype.type(1)),
    "swish": _swish,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "to_float32": _to("float32"),
    "to_float64": _to("float64"),
    "to_int32": _to_integer("int32"),
    "to_int64": _to_integer("int64"),
    "to_bool": _to("bool"),
    **{f"to_{name}": _to_integer(name) for name in _SHORTER_OR_UNSIGNED},
    "shift_left": _shift(np.left_shift),
    "shift_right": _shift(np.right_shift),
}
_COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "peak": np.fmax,
}
_REDUCE: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "peak": np.fmax.reduce,
}
