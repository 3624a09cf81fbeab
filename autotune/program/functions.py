"""What the element functions and combiners of the program IR mean, by numpy.

In: a function's name and arrays (or numpy scalars). Out: the result in the arguments' precision.
Integer `div` rounds toward zero; `mod` has the divisor's sign; `round` goes half to even.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.program.packing import bfloat16_bits, widen_bfloat16
from autotune.types import Array

_ERF = np.frompyfunc(math.erf, 1, 1)


def apply_function(name: str, args: list[Array]) -> Array:
    """FUNCTIONS[name] of the arguments. Overflow, nan and division by zero give IEEE values."""
    with np.errstate(all="ignore"):
        return np.asarray(_TABLE[name](*args))


def function(name: str) -> Callable[..., Any]:
    """The function itself; it may warn where `apply_function` does not."""
    return _TABLE[name]


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
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.abs(a) // np.abs(safe)
    negative = (a < 0) != (safe < 0)
    return np.asarray(np.where(negative, -quotient, quotient)).astype(np.asarray(a).dtype)


def _sigmoid(x: Array) -> Array:
    one = x.dtype.type(1)
    return np.asarray(one / (one + np.exp(-x)))


def _to(dtype: str) -> Callable[[Array], Array]:
    return lambda x: np.asarray(x).astype(dtype)


def _to_bfloat16(x: Array) -> Array:
    """float32 values rounded to bfloat16's eight significant bits."""
    return widen_bfloat16(bfloat16_bits(np.asarray(x, np.float32)))


_TABLE: dict[str, Callable[..., Any]] = {
    "bits": lambda x: np.asarray(x, np.float32).view(np.int32),
    "to_bfloat16": _to_bfloat16,
    "to_float16": lambda x: np.asarray(x, np.float32).astype(np.float16),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "mod": np.mod,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "exp": np.exp,
    "log": np.log,
    "erf": _erf,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "reciprocal": lambda x: x.dtype.type(1) / x,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "where": np.where,
    "to_float32": _to("float32"),
    "to_float64": _to("float64"),
    "to_int32": _to("int32"),
    "to_int64": _to("int64"),
    "to_bool": _to("bool"),
    "to_int8": _to("int8"),
    "to_uint8": _to("uint8"),
}
_COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}
_REDUCE: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
}
