"""TensorFlow Lite importers: products of matrices, sums and products of elements."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.tflite import shorts
from autotune.frontend.tflite.context import OperatorContext, tflite_importer
from autotune.frontend.tflite.hybrid import (
    as_bytes,
    as_floats,
    has_bytes_as_weights,
    less_zero_points,
)
from autotune.types import Array

_SUM_BITS = 20
"""Bits behind the point of sums of bytes of several scales."""


def product_factors(
    n: OperatorContext,
    outputs: int,
    *,
    rows: bool = False,
    data_input: int = 0,
    moved: bool = False,
) -> Array:
    """What makes sums of products of that input and input 1 counts of the output's steps: one for
    all, or one per output. Of `rows` with one scale the product of scales is rounded to float32.
    Raises where weights of int8 have zero points, unless sums are less these already (`moved`)."""
    data, weights, result = n.tensor(data_input), n.tensor(1), n.result()
    if weights.zeros.any() and weights.dtype != "uint8" and not moved:
        raise UnsupportedOpError(
            "weights of int8 with zero points are not supported; convert them again"
        )
    if weights.scales.size not in (1, outputs):
        raise ModelError(f"{weights.scales.size} scales of weights for {outputs} outputs")
    if rows and weights.scales.size == 1:
        product = np.float32(data.scale) * np.float32(weights.scale)
        return np.asarray([float(product) / result.scale])
    return np.asarray(data.scale * weights.scales.astype(np.float64) / result.scale)


def signed_weights(n: OperatorContext) -> Array:
    """The constant weights; of uint8 less their zero point, as int32."""
    weights, tensor = n.array(1), n.tensor(1)
    return weights.astype(np.int32) - tensor.zero if tensor.dtype == "uint8" else weights


def byte_parts(weights: Array) -> list[Array]:
    """Integers of more than eight bits as the sum of arrays of int8; others as they are."""
    if weights.dtype != np.int32:
        return [weights]
    parts: list[Array] = []
    while not parts or weights.any():
        parts.append(np.clip(weights, -128, 127).astype(np.int8))
        weights = weights - parts[-1]
    return parts


def summed(n: OperatorContext, values: list[str]) -> str:
    """The sum of one value or more."""
    total = values[0]
    for value in values[1:]:
        total = n.op("add", total, value)
    return total


@tflite_importer("FULLY_CONNECTED")
def fully_connected(n: OperatorContext) -> str:
    options = n.options("FullyConnectedOptions")
    if options.WeightsFormat():
        raise UnsupportedOpError("shuffled weights are not supported; convert the model again")
    if n.tensor(1).data is None:
        return _computed_weights(n, options.FusedActivationFunction())
    weights = signed_weights(n)
    outputs, inner = weights.shape
    x, activation = n.input(0), options.FusedActivationFunction()
    shape = n.result().shape
    rows = n.reshape(x, (math.prod(n.shape(x)) // max(inner, 1), inner))
    columns = np.ascontiguousarray(weights.T)
    if shorts.of_shorts(n, 0):
        total = shorts.products(
            n, rows, lambda data: n.op("matmul", data, n.constant(columns)), n.tensor(1)
        )
        counts = shorts.scaled_finely(n, total, columns, product_factors(n, outputs))
        return n.reshape(shorts.as_shorts(n, counts, activation), shape)
    if has_bytes_as_weights(n):
        around_zero = not options.AsymmetricQuantizeInputs()
        data, zero, scale = as_bytes(n, rows, (1,), around_zero=around_zero)
        total = n.op("matmul", data, n.constant(columns))
        total = less_zero_points(n, total, zero, weights.astype(np.int64).sum(axis=1))
        return n.reshape(n.float_activated(as_floats(n, total, scale, outputs), activation), shape)
    y = summed(n, [n.op("matmul", rows, n.constant(part)) for part in byte_parts(columns)])
    if not n.quantized(0, 1, unsigned=True):
        y = n.op("add", y, n.input(2)) if n.has(2) else y
        return n.reshape(n.float_activated(y, activation), shape)
    bias = -n.tensor(0).point * weights.astype(np.int64).sum(axis=1)
    if n.has(2):
        bias = bias + n.counts(2)
    if bias.any():
        y = n.op("add", y, n.constant(bias.astype(np.int32)))
    y = n.scaled(y, product_factors(n, outputs, rows=True), rounding="once")
    return n.reshape(n.activated(y, activation), shape)


def _computed_weights(n: OperatorContext, activation: int) -> str:
    """A fully connected layer by weights that the model computes."""
    x, columns = n.input(0), n.transpose(n.input(1), (1, 0))
    inner = n.shape(columns)[0]
    rows = n.reshape(x, (math.prod(n.shape(x)) // max(inner, 1), inner))
    if not n.quantized(0, 1):
        y = n.op("matmul", rows, columns)
        y = n.op("add", y, n.input(2)) if n.has(2) else y
        return n.reshape(n.float_activated(y, activation), n.result().shape)
    total = _byte_product(n, rows, columns)
    total = n.op("add", total, n.input(2)) if n.has(2) else total
    factors = product_factors(n, n.shape(columns)[1], moved=True)
    y = n.scaled(total, factors, rounding="once")
    return n.reshape(n.activated(y, activation), n.result().shape)


@tflite_importer("BATCH_MATMUL")
def batch_matmul(n: OperatorContext) -> str:
    options, operands = n.options("BatchMatMulOptions"), []
    for position, turned in enumerate((options.AdjX(), options.AdjY())):
        value = n.input(position)
        rank = n.rank(value)
        turn = (*range(rank - 2), rank - 1, rank - 2) if turned else range(rank)
        operands.append(n.transpose(value, tuple(turn)))
    if not n.quantized(0, 1):
        return n.op("matmul", *operands)
    factor = n.tensor(0).scale * n.tensor(1).scale / n.result().scale
    return n.as_result(n.scaled(_byte_product(n, *operands), [factor]))


def _byte_product(n: OperatorContext, left: str, right: str) -> str:
    """The product of inputs 0 and 1 of int8, less their zero points, as int32: (a - z) (b - y) is
    a b - z b - y (a - z), where b is as in the file."""
    sign = n.scalar(128, "uint8")
    signed = n.op("to_int8", n.op("bit_xor", right, sign))
    total = n.op("matmul", left, signed)
    rank, zero = n.rank(signed), n.tensor(1).zero
    columns = n.op("reduce_sum", n.cast(signed, "int32"), axes=(rank - 2,), keepdims=True)
    total = n.op("sub", total, n.op("mul", columns, n.like(n.tensor(0).point, columns)))
    if not zero:
        return total
    wide = n.cast(left, "int32")
    wide = n.op("sub", wide, n.like(n.tensor(0).point, wide))
    rows = n.op("reduce_sum", wide, axes=(n.rank(left) - 1,), keepdims=True)
    return n.op("sub", total, n.op("mul", rows, n.like(zero, rows)))


@tflite_importer("ADD", "SUB")
def add(n: OperatorContext) -> str:
    """Both in steps of twice the larger scale, 20 bits further down."""
    name = "add" if n.is_a("ADD") else "sub"
    options = n.options(f"{name.capitalize()}Options")
    activation = options.FusedActivationFunction()
    if shorts.of_shorts(n, 0, 1):
        return shorts.added(n, name, activation, powers=bool(options.PotScaleInt16()))
    if not n.quantized(0, 1, unsigned=True):
        return n.float_activated(n.op(name, n.input(0), n.input(1)), activation)
    twice = 2 * max(n.tensor(0).scale, n.tensor(1).scale)
    left, right = (_in_steps(n, position, twice) for position in (0, 1))
    factor = twice / (2.0**_SUM_BITS * n.result().scale)
    return n.activated(n.scaled(n.op(name, left, right), [factor]), activation)


def _in_steps(n: OperatorContext, position: int, step: float) -> str:
    up = n.scalar(1 << _SUM_BITS, "int32")
    return n.scaled(n.op("mul", n.whole(position), up), [n.tensor(position).scale / step])


@tflite_importer("MUL")
def mul(n: OperatorContext) -> str:
    activation = n.options("MulOptions").FusedActivationFunction()
    if shorts.of_shorts(n, 0, 1):
        return shorts.multiplied(n, activation)
    if not n.quantized(0, 1, unsigned=True):
        return n.float_activated(n.op("mul", n.input(0), n.input(1)), activation)
    product = n.op("mul", n.whole(0), n.whole(1))
    return n.activated(n.scaled(product, [n.ratio(0, 1)]), activation)


@tflite_importer("MAXIMUM", "MINIMUM")
def extreme(n: OperatorContext) -> str:
    """Bytes count in the same steps, or it is refused."""
    if shorts.of_shorts(n, 0, 1) or n.quantized(0, 1):
        same_steps(n, 0, 1)
    return n.op("max" if n.is_a("MAXIMUM") else "min", n.input(0), n.input(1))


def same_steps(n: OperatorContext, *positions: int) -> None:
    """Raise UnsupportedOpError where inputs and output count in different steps."""
    found = {(n.tensor(p).scale, n.tensor(p).zero) for p in positions}
    if found | {(n.result().scale, n.result().zero)} != found or len(found) > 1:
        raise UnsupportedOpError("inputs and output have different scales; expected the same")
