"""TensorFlow Lite importers: means, extremes and softmax along dimensions."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.ordering import backward
from autotune.frontend.tflite import byte_functions, shorts
from autotune.frontend.tflite import fixed_point as fixed
from autotune.frontend.tflite.context import OperatorContext, tflite_importer
from autotune.frontend.tflite.linear import same_steps
from autotune.types import Array

_SUM_INTEGER_BITS = 12
"""Before the point of a sum of powers in softmax."""


@tflite_importer("MEAN")
def mean(n: OperatorContext) -> str:
    x = n.input(0)
    axes, shape = tuple(sorted({a % n.rank(x) for a in n.ints(1)})), n.result().shape
    short = shorts.of_shorts(n, 0)
    if not short and not n.quantized(0):
        y = n.op("reduce_mean", x, axes=axes, keepdims=True)
        return n.reshape(y, shape)
    total = n.op("reduce_sum", n.whole(0), axes=axes, keepdims=True)
    factors = np.asarray([n.tensor(0).scale / n.result().scale])
    parts = _divided_multipliers(factors, math.prod(n.shape(x)[a] for a in axes))
    counts = n.requantized(total, *parts)
    return n.reshape(shorts.as_shorts(n, counts) if short else n.as_result(counts), shape)


def _divided_multipliers(factors: Array, count: int) -> tuple[Array, Array]:
    """Multipliers and shifts of what is also divided by a count: as many bits longer before that
    as the count has, and cut."""
    multipliers, shifts = fixed.quantized_multipliers(factors)
    more = np.minimum(min(count.bit_length() - 1, 32), 62 - shifts)
    return (multipliers << more) // count, shifts + more


@tflite_importer("SUM", "REDUCE_PROD")
def reduced(n: OperatorContext) -> str:
    if n.steps and n.is_a("SUM") and n.quantized(0):
        return byte_functions.total(n, tuple(sorted({a % n.rank(n.input(0)) for a in n.ints(1)})))
    n.plain()
    x, op = n.input(0), "reduce_sum" if n.is_a("SUM") else "reduce_prod"
    axes = tuple(sorted({a % n.rank(x) for a in n.ints(1)}))
    return n.reshape(n.op(op, x, axes=axes, keepdims=True), n.result().shape)


@tflite_importer("REDUCE_ANY", "REDUCE_ALL")
def truth_of_all(n: OperatorContext) -> str:
    x = n.cast(n.input(0), "int32")
    axes = tuple(sorted({a % n.rank(x) for a in n.ints(1)}))
    y = n.op("reduce_max" if n.is_a("REDUCE_ANY") else "reduce_min", x, axes=axes, keepdims=True)
    return n.reshape(n.op("ne", y, n.like(0, y)), n.result().shape)


@tflite_importer("CUMSUM")
def cumulative_sum(n: OperatorContext) -> str:
    n.plain()
    options, x = n.options("CumsumOptions"), n.input(0)
    shape, axis = n.shape(x), n.ints(1)[0] % n.rank(x)
    wide = n.reshape(x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
    way = {"exclusive": int(options.Exclusive()), "reverse": int(options.Reverse())}
    return n.reshape(n.op("scan", wide, combine="sum", **way), shape)


@tflite_importer("L2_NORMALIZATION")
def l2_normalization(n: OperatorContext) -> str:
    """Along the last dimension, by lengths of at least 0.001 (the kernels' epsilon is 1e-6 of the
    squares)."""
    if n.steps and n.quantized(0):
        return byte_functions.l2_normalized(n)
    x = n.input(0)
    squares = n.op("mul", x, x)
    total = n.op("reduce_sum", squares, axes=(n.rank(x) - 1,), keepdims=True)
    return n.op("mul", x, n.op("rsqrt", n.op("max", total, n.like(1e-6, total))))


@tflite_importer("LOG_SOFTMAX")
def log_softmax(n: OperatorContext) -> str:
    n.plain()
    return n.op("log_softmax", n.input(0), axis=n.rank(n.input(0)) - 1)


@tflite_importer("REDUCE_MAX", "REDUCE_MIN")
def reduce_extreme(n: OperatorContext) -> str:
    x, op = n.input(0), "reduce_max" if n.is_a("REDUCE_MAX") else "reduce_min"
    if n.quantized(0):
        same_steps(n, 0)
    axes = tuple(sorted({a % n.rank(x) for a in n.ints(1)}))
    return n.reshape(n.op(op, x, axes=axes, keepdims=True), n.result().shape)


@tflite_importer("ARG_MAX", "ARG_MIN")
def arg_max(n: OperatorContext) -> str:
    x = n.input(0) if n.is_a("ARG_MAX") else backward(n, n.input(0))
    y = n.op("argmax", x, axis=n.ints(1)[0] % n.rank(x), keepdims=False)
    return n.reshape(n.cast(y, n.result().dtype), n.result().shape)


@tflite_importer("SOFTMAX")
def softmax(n: OperatorContext) -> str:
    """Powers of e by a table of differences to the row's largest, their sum, its reciprocal by
    Newton's method, and products: all in 32 bits of fixed point."""
    beta, x = n.options("SoftmaxOptions").Beta(), n.input(0)
    last = n.rank(x) - 1
    if shorts.of_shorts(n, 0):
        return shorts.softmax(n, beta)
    if not n.quantized(0, unsigned=True):
        scaled = x if beta == 1 else n.op("mul", x, n.like(beta, x))
        return n.op("softmax", scaled, axis=last)
    result = n.result()
    if (result.scale, result.point) != (1 / 256, 0):
        least = -result.moved
        raise UnsupportedOpError(f"the result's scale must be 1/256, its zero point {least}")
    wide = n.cast(x, "int32")
    largest = n.op("reduce_max", wide, axes=(last,), keepdims=True)
    below = n.op("sub", largest, wide)
    powers = _powers(n.tensor(0).scale * beta)
    shares = fixed.divided(powers, _SUM_INTEGER_BITS)
    power, share = (
        n.op("gather", n.constant(table, "int32"), below, axis=0) for table in (powers, shares)
    )
    total = n.op("reduce_sum", share, axes=(last,), keepdims=True)
    leading = _leading_zeros(n, total)
    scaled = _product(n, power, _reciprocal(n, total, leading))
    # The sum has 12 bits before its point, less those that lead it; bytes have 8.
    bits = n.op("sub", n.like(_SUM_INTEGER_BITS + 31 - 8, leading), leading)
    y = n.op("requantize", scaled, n.like(1, scaled), bits)
    return n.op("to_uint8", n.op("clip", y, min=0, max=255))


def _leading_zeros(n: OperatorContext, total: str) -> str:
    """How many powers of two are larger than sums in Q12.19, which are at least 1."""
    powers = n.constant(2 ** np.arange(20, 31), "int32")
    larger = n.cast(n.op("lt", total, powers), "int32")
    count = n.op("reduce_sum", larger, axes=(n.rank(total) - 1,), keepdims=True)
    return n.op("add", count, n.like(1, count))


def _reciprocal(n: OperatorContext, total: str, leading: str) -> str:
    """1 / x in Q0.31 of the sum's bits without leading zeros, 1 <= x < 2, by Newton's method."""
    wide, count = n.cast(total, "int64"), n.cast(leading, "int64")
    moved = n.op("shift_left", wide, count)
    half = n.cast(n.op("shift_right", moved, n.like(1, moved)), "int32")
    x = _product(n, half, n.like(-fixed.NEWTON_SLOPE, half))
    x = n.op("add", x, n.like(fixed.NEWTON_START, x))
    for _ in range(3):
        rest = n.op("sub", n.like(1 << 29, x), _product(n, half, x))
        x = n.op("add", x, n.op("mul", _product(n, x, rest), n.like(4, x)))
    most = n.op("ge", x, n.like(1 << 30, x))
    return n.op("where", most, n.like(fixed.ONE, x), n.op("mul", x, n.like(2, x)))


def _product(n: OperatorContext, a: str, b: str) -> str:
    """a * b / 2**31, halves up."""
    return n.op("requantize", a, b, n.like(31, a))


def _powers(factor: float) -> Array:
    """e**(-factor d) in Q0.31 for differences d of 0 to 255; 0 of what does not count."""
    scale = min(factor * 2.0**26, 2.0**31 - 1)
    _, shift = fixed.quantized_multipliers(np.asarray(scale))
    least = -math.floor((2**5 - 1) * 2.0**26 / 2.0 ** (31 - int(shift)))
    below = -np.arange(256, dtype=np.int64)
    powers = fixed.exp_of_negative(fixed.requantized(np.maximum(below, least), scale), 5)
    return np.where(below >= least, powers, 0)
