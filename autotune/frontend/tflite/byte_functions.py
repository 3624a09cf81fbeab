"""TensorFlow Lite importers: functions of int8 that have scales. Of one element they are tables of
256; the others are computed in fixed point, as the reference kernels have it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.tflite import fixed_point as fixed
from autotune.frontend.tflite.context import OperatorContext
from autotune.frontend.tflite.linear import same_steps
from autotune.types import Array

_ALL = np.arange(-128, 128, dtype=np.int64)
_ROOT_SHIFT = 20
"""Bits behind the point of a reciprocal root."""
_DIFFERENCE_SHIFT, _COMPARED_SHIFT = 7, 8
"""Bits that bytes are moved up by before they are brought to one scale."""
COMPARISONS = {
    "EQUAL": "eq", "NOT_EQUAL": "ne", "LESS": "lt", "LESS_EQUAL": "le", "GREATER": "gt",
    "GREATER_EQUAL": "ge",
}  # fmt: skip


def of_bytes(n: OperatorContext) -> str:
    """The operator on int8 with scales. Raises UnsupportedOpError where it is not known for
    these."""
    for operator, table in _TABLES.items():
        if n.is_a(operator) and n.quantized(0):
            return n.looked_up(table(n))
    for operator, op in COMPARISONS.items():
        if n.is_a(operator):
            return _compared(n, op)
    if n.is_a("SELECT") or n.is_a("SELECT_V2"):
        same_steps(n, 1, 2)
        return n.op("where", selected_by(n), n.input(1), n.input(2))
    n.plain()
    raise AssertionError("plain raises where bytes have scales")


def selected_by(n: OperatorContext) -> str:
    """What SELECT selects by: by element, or by row where there is one condition for each."""
    condition, wanted = n.input(0), n.shape(n.input(1))
    if n.is_a("SELECT") and n.rank(condition) < len(wanted) and n.rank(condition) == 1:
        return n.reshape(condition, (*n.shape(condition), *(1,) * (len(wanted) - 1)))
    return condition


def squared_difference(n: OperatorContext) -> str:
    """(a - b)**2, both in steps of twice the larger scale, 7 bits further down."""
    twice = 2 * max(n.tensor(0).scale, n.tensor(1).scale)
    left, right = (_moved_up(n, p, _DIFFERENCE_SHIFT, n.tensor(p).scale / twice) for p in (0, 1))
    apart = n.op("sub", left, right)
    factor = twice * twice / (2.0 ** (2 * _DIFFERENCE_SHIFT) * n.result().scale)
    return n.as_result(n.scaled(n.op("mul", apart, apart), [factor]))


def prelu(n: OperatorContext) -> str:
    """Below zero times a slope of its own."""
    x = n.whole(0)
    steps = n.tensor(0).scale / n.result().scale
    sloped = n.scaled(n.op("mul", x, n.whole(1)),
                      [n.tensor(0).scale * n.tensor(1).scale / n.result().scale])  # fmt: skip
    below = n.op("lt", x, n.like(0, x))
    return n.as_result(n.op("where", below, sloped, n.scaled(x, [steps])))


def total(n: OperatorContext, axes: tuple[int, ...]) -> str:
    """A sum along axes, of elements as they are: brought to the result's scale in float32."""
    wide = n.cast(n.input(0), "int32")
    wide = n.op("sub", wide, n.like(n.tensor(0).moved, wide))
    y = n.cast(n.op("reduce_sum", wide, axes=axes, keepdims=True), "float32")
    count = math.prod(n.shape(wide)[a] for a in axes)
    scale = np.float32(n.tensor(0).scale) / np.float32(n.result().scale)
    zero = np.float32(-n.tensor(0).zero) * scale * np.float32(count)
    moved = n.op("add", n.op("mul", y, n.like(float(scale), y)), n.like(float(zero), y))
    whole = n.op("to_int32", n.rounded_away(moved))
    return n.reshape(n.as_result(whole), n.result().shape)


def l2_normalized(n: OperatorContext) -> str:
    """Elements of the last dimension by the root of the sum of their squares, in steps of 1/128:
    the reciprocal root by Newton's method in Q3.28."""
    x = n.whole(0)
    squares = n.op("reduce_sum", n.op("mul", x, x), axes=(n.rank(x) - 1,), keepdims=True)
    powers = n.constant(2 ** np.arange(29, 0, -2), "int32")  # 2**29, 2**27, ..., 2
    pairs = n.cast(n.op("lt", squares, powers), "int32")
    pairs = n.op("reduce_sum", pairs, axes=(n.rank(x) - 1,), keepdims=True)
    # Moved to between 2**27 and 2**29, as Q3.28 half of that.
    wide = n.cast(squares, "int64")
    wide = n.op("shift_left", wide, n.cast(n.op("add", pairs, pairs), "int64"))
    near = n.cast(n.op("shift_right", wide, n.like(2, wide)), "int32")
    root = _reciprocal_root(n, n.op("shift_right", near, n.like(1, near)))
    bits = n.op("sub", n.like(31 + 11 + 1 - 7, pairs), pairs)
    single = n.op("le", squares, n.like(1, squares))
    root = n.op("where", single, n.like(fixed.ONE, root), root)
    bits = n.op("where", single, n.like(31 - 7, bits), bits)
    y = n.op("requantize", x, root, bits, rounding="twice")
    moved = n.op("add", y, n.like(128, y))
    return n.op("to_uint8", n.op("clip", moved, min=0, max=255))


def _reciprocal_root(n: OperatorContext, x: str) -> str:
    """1 / sqrt(2 x) in Q3.28 of Q3.28."""
    half = n.op("shift_right", n.op("add", x, n.like(1, x)), n.like(1, x))
    guess = n.op("expand", n.like(1 << 28, x), shape=n.shape(x))
    for _ in range(5):
        cube = n.op("mul", _product(n, _product(n, guess, guess), guess), n.like(64, x))
        less = n.op("sub", _product(n, guess, n.like(3 << 27, x)), _product(n, half, cube))
        guess = n.op("mul", less, n.like(8, x))
    return _product(n, guess, n.like(fixed.HALF_ROOT_OF_TWO, x))


def _product(n: OperatorContext, a: str, b: str) -> str:
    """a * b / 2**31, halves up."""
    return n.op("requantize", a, b, n.like(31, a))


def _compared(n: OperatorContext, op: str) -> str:
    for position in (0, 1):
        if n.tensor(position).dtype != "int8":
            raise UnsupportedOpError(
                f"{n.tensor(position).dtype} with scales is not supported here; expected int8"
            )
    return n.op(op, *(_moved_up(n, p, _COMPARED_SHIFT, n.tensor(p).scale) for p in (0, 1)))


def _moved_up(n: OperatorContext, position: int, bits: int, factor: float) -> str:
    """An input less its zero point, times a power of two, times a number."""
    up = n.scalar(1 << bits, "int32")
    return n.scaled(n.op("mul", n.whole(position), up), [factor])


# ---------------------------------------------------------------------------------------- tables


def _floats(function: Callable[[Array], Array]) -> Callable[[OperatorContext], Array]:
    """The table of a function of real numbers, in float32, halves away from zero."""

    def table(n: OperatorContext) -> Array:
        steps = (_ALL - n.tensor(0).zero).astype(np.float32)
        with np.errstate(all="ignore"):
            made = function(np.float32(n.tensor(0).scale) * steps).astype(np.float32)
            made = made * (np.float32(1) / np.float32(n.result().scale))
        away = np.floor(np.abs(made).astype(np.float64) + 0.5) * np.sign(made)
        return np.asarray(np.clip(away + n.result().zero, -128, 127))

    return table


def _absolute(n: OperatorContext) -> Array:
    sizes = np.abs(_ALL - n.tensor(0).zero)
    if n.tensor(0).scale != n.result().scale:
        sizes = fixed.requantized(sizes, n.ratio(0))
    return np.asarray(np.clip(sizes + n.result().zero, -128, 127))


def _reciprocal_roots(n: OperatorContext) -> Array:
    """Reciprocal roots of what is at least zero; the largest byte of zero."""
    scale = 1 / float(np.sqrt(np.float32(n.tensor(0).scale)) * np.float32(n.result().scale))
    multiplier, shift = fixed.quantized_multipliers(np.asarray(scale))
    out = np.full(_ALL.shape, 127, np.int64)
    for place, value in enumerate((_ALL - n.tensor(0).zero).tolist()):
        if value > 0:
            root = fixed.times(1, *fixed.reciprocal_root(value), left=_ROOT_SHIFT)
            made = fixed.times(root, int(multiplier), int(shift) + _ROOT_SHIFT)
            out[place] = min(max(made + n.result().zero, -128), 127)
    return out


def _exponential(x: Array) -> Array:
    return np.asarray(np.exp(x))


def _logarithm(x: Array) -> Array:
    """The least byte of what has none."""
    return np.where(x > 0, np.log(x), -np.inf)


def _elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(x), x)


def _gelu(n: OperatorContext) -> Array:
    if n.options("GeluOptions").Approximate():
        root = np.float32(np.sqrt(2 / np.pi))
        cubic = np.float32(0.044715)
        return _floats(
            lambda x: np.float32(0.5) * x * (1 + np.tanh(root * (x + cubic * x * x * x)))
        )(n)
    return _floats(lambda x: np.float32(0.5) * x * fixed.complementary_error(-x / np.sqrt(2)))(n)


_TABLES: dict[str, Callable[[OperatorContext], Array]] = {
    "ABS": _absolute, "RSQRT": _reciprocal_roots, "EXP": _floats(_exponential),
    "LOG": _floats(_logarithm), "ELU": _floats(_elu), "GELU": _gelu,
}  # fmt: skip
