"""ONNX importers: the numbers that bytes stand for (`frontend.byte_numbers`), where inputs say by
what steps."""

from __future__ import annotations

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.byte_numbers import (
    MOVED,
    ByteSteps,
    as_bytes,
    constant_numbers,
    snapped_numbers,
)
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import means_of_windows


def steps_of(n: NodeContext, scale: int, zero: int) -> ByteSteps | None:
    """What a scale and a zero point say together: inputs by position. None where they are not
    constants, one for the whole tensor, of bytes."""
    values = [n.optional(scale), n.optional(zero)]
    step = None if values[0] is None else n.known(values[0])
    at = np.zeros(1, np.uint8) if values[1] is None else n.known(values[1])
    if step is None or at is None or step.size != 1 or at.size != 1:
        return None
    if at.dtype.name not in MOVED or not step.item() > 0:
        return None
    return ByteSteps(step=float(step.item()), zero=int(at.item()), dtype=at.dtype.name)


def numbers_of(n: NodeContext, value: int, scale: int, zero: int) -> str | None:
    """The numbers of bytes that `as_bytes` made; None for others. Inputs by position."""
    steps = steps_of(n, scale, zero)
    return None if steps is None else snapped_numbers(n, n.input(value), steps)


def known_numbers(
    n: NodeContext, value: int, scale_zero: tuple[int, int], axis: int
) -> str | None:
    """Constant bytes as the constant numbers they stand for; None where they are no constants."""
    operands = [n.optional(i) for i in (value, *scale_zero)]
    array, scale, zero = (None if v is None else n.known(v) for v in operands)
    if array is None or scale is None or (zero is None and operands[2] is not None):
        return None
    return constant_numbers(n, array, scale, zero, axis)


def known_sums(n: NodeContext, value: int, scales: tuple[int, int]) -> str:
    """Constant sums of products as numbers, one per channel: inputs by position."""
    arrays = [n.parameter(i) for i in (value, *scales)]
    whole, left, right = (np.zeros(1) if a is None else a.reshape(-1) for a in arrays)
    return n.constant(whole.astype(np.float64) * left * right, "float32")


def _numbers(n: NodeContext, value: int) -> str:
    """An operand of (bytes, scale, zero point) as numbers."""
    found = numbers_of(n, value, value + 1, value + 2)
    if found is not None:
        return found
    steps = steps_of(n, value + 1, value + 2)
    if steps is None:
        raise UnsupportedOpError(f"the scale or zero point of input {value} is not one constant")
    wide = n.cast(n.input(value), "float32")
    apart = n.op("sub", wide, n.like(steps.zero, wide))
    return n.op("mul", apart, n.like(steps.step, apart))


def _result(n: NodeContext, value: str, scale: int) -> str:
    """A result as bytes of the scale and zero point at two positions."""
    steps = steps_of(n, scale, scale + 1)
    if steps is None:
        raise UnsupportedOpError("the result's scale or zero point is not one constant")
    return as_bytes(n, value, steps)


@importer("com.microsoft.QLinearAdd")
def qlinear_add(n: NodeContext) -> str:
    return _result(n, n.op("add", _numbers(n, 0), _numbers(n, 3)), 6)


@importer("com.microsoft.QLinearMul")
def qlinear_mul(n: NodeContext) -> str:
    return _result(n, n.op("mul", _numbers(n, 0), _numbers(n, 3)), 6)


@importer("com.microsoft.QLinearGlobalAveragePool")
def qlinear_global_average_pool(n: NodeContext) -> str:
    x, last = _numbers(n, 0), n.integer("channels_last", 0)
    rank = n.rank(x)
    axes = tuple(range(1, rank - 1)) if last else tuple(range(2, rank))
    return _result(n, n.op("reduce_mean", x, axes=axes, keepdims=True), 3)


@importer("com.microsoft.QLinearSigmoid")
def qlinear_sigmoid(n: NodeContext) -> str:
    return _result(n, n.op("sigmoid", _numbers(n, 0)), 3)


@importer("com.microsoft.QLinearLeakyRelu")
def qlinear_leaky_relu(n: NodeContext) -> str:
    return _result(n, n.op("leaky_relu", _numbers(n, 0), alpha=n.number("alpha", 0.01)), 3)


@importer("com.microsoft.QLinearSoftmax")
def qlinear_softmax(n: NodeContext) -> str:
    """`opset` tells whether the axes behind `axis` belong to it, as they did before 13."""
    x = _numbers(n, 0)
    axis = n.integer("axis", -1) % n.rank(x)
    if n.integer("opset", 13) < 13 and axis != n.rank(x) - 1:
        raise UnsupportedOpError("only a softmax over the last axis is supported before opset 13")
    return _result(n, n.op("softmax", x, axis=axis), 3)


@importer("com.microsoft.QLinearAveragePool")
def qlinear_average_pool(n: NodeContext) -> str:
    if n.integer("channels_last", 0):
        raise UnsupportedOpError("channels_last=1 is not supported; put channels first")
    return _result(n, means_of_windows(n, _numbers(n, 0)), 3)


@importer("com.microsoft.QLinearWhere")
def qlinear_where(n: NodeContext) -> str:
    return _result(n, n.op("where", n.input(0), _numbers(n, 1), _numbers(n, 4)), 7)


@importer("com.microsoft.QLinearConcat")
def qlinear_concat(n: NodeContext) -> str:
    parts = [_numbers(n, i) for i in range(2, len(n.inputs), 3)]
    axis = n.integer("axis", 0) % n.rank(parts[0])
    return _result(n, n.op("concat", *parts, axis=axis), 0)


@importer("com.microsoft.QGemm")
def qgemm(n: NodeContext) -> str:
    a, transposed = _numbers(n, 0), bool(n.integer("transB", 0))
    b = known_numbers(n, 3, (4, 5), axis=0 if transposed else 1)
    if b is None or n.integer("transA", 0) or n.number("alpha", 1.0) != 1.0:
        raise UnsupportedOpError("only products with constant weights, alpha 1, are supported")
    y = n.op("matmul", a, n.transpose(b, (1, 0)) if transposed else b, transpose_b=False)
    if n.optional(6) is not None:
        y = n.op("add", y, known_sums(n, 6, (1, 4)))
    return y if n.optional(7) is None else _result(n, y, 7)
