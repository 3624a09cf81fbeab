"""ONNX importers: models that are quantized already; `onnx_integers` has their products."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.byte_numbers import as_bytes
from autotune.frontend.onnx.casts import narrowed
from autotune.frontend.onnx.context import NodeContext, dtype_name, importer
from autotune.frontend.onnx.image import conv_operands
from autotune.frontend.onnx.integers import Sums
from autotune.frontend.onnx.kinds import DECLARED, FLOAT_KINDS, INT_KINDS
from autotune.frontend.onnx.numbers import (
    known_numbers,
    known_sums,
    numbers_of,
    steps_of,
)
from autotune.frontend.views import from_nhwc, positive_axis
from autotune.frontend.volume import convolution

_DIRECT = (("float32", "uint8"), ("float32", "int8"))
_WHOLE = ("uint8", "int8", "uint16", "int16")
"""What is quantized to."""


@importer("QuantizeLinear")
def quantize_linear(n: NodeContext) -> str:
    n.ignore("precision", "block_size")
    x, axis, zero = n.input(0), n.integer("axis", 1), n.optional(2)
    wanted, saturate = n.integer("output_dtype", 0), bool(n.integer("saturate", 1))
    kind = n.kind(2) if zero else wanted if wanted in DECLARED else 0
    dtype = n.dtype(zero) if zero else dtype_name(wanted, "output_dtype") if wanted else "uint8"
    steps = None if kind else steps_of(n, 1, 2)
    if steps is not None and (n.dtype(x), dtype) in _DIRECT:
        return as_bytes(n, x, dataclasses.replace(steps, dtype=dtype))
    counts = n.op("div", x, _parameter(n, x, 1, axis))
    zero = _parameter(n, x, 2, axis) if zero else None
    if kind in FLOAT_KINDS:
        counts = n.op("add", counts, n.cast(zero, n.dtype(counts))) if zero else counts
        return narrowed(n, n.cast(counts, "float32"), kind, "float32", saturate=saturate)
    return _rounded(n, counts, zero, dtype, INT_KINDS.get(kind, 0))


@importer("DequantizeLinear")
def dequantize_linear(n: NodeContext) -> str:
    n.ignore("output_dtype", "block_size")
    x, axis = n.input(0), n.integer("axis", 1)
    if (numbers := numbers_of(n, 0, 1, 2)) is not None:
        return numbers
    whole = "float32" if n.dtype(x) == "float32" else "int32"
    value = n.cast(x, whole)
    if n.optional(2) is not None:
        value = n.op("sub", value, n.cast(_parameter(n, x, 2, axis), whole))
    scale = _parameter(n, x, 1, axis)
    return n.op("mul", n.cast(value, n.dtype(scale)), scale)


@importer("DynamicQuantizeLinear")
def dynamic_quantize_linear(n: NodeContext) -> tuple[str, str, str]:
    return dynamic_bytes(n, n.input(0))


def dynamic_bytes(n: NodeContext, x: str) -> tuple[str, str, str]:
    """(bytes, scale, zero point) by the least and the greatest element."""
    # As one row: vectors take its elements, which they do not where no dimension is left.
    row, nothing = n.reshape(x, (1, math.prod(n.shape(x)))), n.like(0, x)
    least, most = (n.op(f"reduce_{o}", row, axes=(1,), keepdims=False) for o in ("min", "max"))
    low = n.op("min", n.reshape(least, ()), nothing)
    high = n.op("max", n.reshape(most, ()), nothing)
    scale = n.op("div", n.op("sub", high, low), n.like(255, x))
    zero = n.op("clip", n.op("round", n.op("div", n.op("neg", low), scale)), min=0, max=255)
    counts = n.op("add", n.op("round", n.op("div", x, scale)), zero)
    y = n.op("to_uint8", n.op("clip", counts, min=0, max=255))
    return y, scale, n.op("to_uint8", zero)


@importer("MatMulInteger")
def matmul_integer(n: NodeContext) -> str:
    sums = Sums(n, n.input(0), n.optional(2), n.input(1), n.optional(3))
    return sums.of_matmul()


@importer("ConvInteger")
def conv_integer(n: NodeContext) -> str:
    sums = Sums(n, n.input(0), n.optional(2), n.input(1), n.optional(3))
    return from_nhwc(n, sums.of_conv(), n.rank(n.input(0)))


@importer("QLinearMatMul")
def qlinear_matmul(n: NodeContext) -> str:
    numbers, steps = numbers_of(n, 0, 1, 2), steps_of(n, 6, 7)
    weights = known_numbers(n, 3, (4, 5), axis=-1)
    if numbers is not None and steps is not None and weights is not None:
        return as_bytes(n, n.op("matmul", numbers, weights, transpose_b=False), steps)
    sums = Sums(n, n.input(0), n.optional(2), n.input(3), n.optional(5)).of_matmul()
    return _requantized(n, sums, (1, 4, 6), n.optional(7))


@importer("QLinearConv")
def qlinear_conv(n: NodeContext) -> str:
    numbers, steps = numbers_of(n, 0, 1, 2), steps_of(n, 6, 7)
    weights = known_numbers(n, 3, (4, 5), axis=0)
    if numbers is not None and steps is not None and weights is not None:
        y = convolution(n, *conv_operands(n, numbers, weights))
        if n.optional(8) is not None:
            y = n.op("add", y, known_sums(n, 8, (1, 4)))
        return as_bytes(n, from_nhwc(n, y, n.rank(numbers)), steps)
    sums = Sums(n, n.input(0), n.optional(2), n.input(3), n.optional(5)).of_conv()
    if (bias := n.optional(8)) is not None:
        sums = n.op("add", sums, bias)
    return from_nhwc(n, _requantized(n, sums, (1, 4, 6), n.optional(7)), n.rank(n.input(0)))


def _requantized(n: NodeContext, sums: str, scales: tuple[int, int, int], zero: str | None) -> str:
    """Sums of products as bytes of another scale: positions of the inputs' and the result's."""
    left, right, result = (n.parameter(i) for i in scales)
    if left is None or right is None or result is None or zero is None:
        raise UnsupportedOpError("a scale or zero point is left out; the model is malformed")
    factor = left.astype(np.float64).reshape(-1) * right.reshape(-1) / result.reshape(-1)
    value = n.op("mul", n.cast(sums, "float32"), n.constant(factor, "float32"))
    return _rounded(n, value, zero, n.dtype(zero))


def _rounded(n: NodeContext, value: str, zero: str | None, dtype: str, bits: int = 0) -> str:
    """To integers, halves to even, within the limits of the type or of so many `bits`."""
    if dtype not in _WHOLE:
        raise UnsupportedOpError(f"quantizing to {dtype} is not supported; use uint8 or int8")
    value = n.op("round", value)
    if zero is not None:
        value = n.op("add", value, n.cast(zero, n.dtype(value)))
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if bits:
        least, most = (
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if least else (0, (1 << bits) - 1)
        )
    return n.op(f"to_{dtype}", n.op("clip", value, min=least, max=most))


def _parameter(n: NodeContext, x: str, position: int, axis: int) -> str:
    """A scale or zero point as it broadcasts: one for all, or one per element along an axis, or
    one per block of elements along it."""
    value = n.input(position)
    if n.rank(value) == 0 or n.shape(value) == (1,):
        return n.reshape(value, ())
    if n.rank(value) != 1:
        return _of_blocks(n, value, n.shape(x), axis)
    shape = [1] * n.rank(x)
    shape[axis] = n.shape(value)[0]
    return n.reshape(value, shape)


def _of_blocks(n: NodeContext, value: str, shape: tuple[int, ...], axis: int) -> str:
    """Every scale or zero point as often as its block has elements."""
    at, block = positive_axis(axis, len(shape)), n.integer("block_size", 0)
    blocks = n.shape(value)[at] if n.rank(value) == len(shape) else 0
    if block < 1 or blocks != -(-shape[at] // block):
        raise ModelError(
            f"scales of shape {n.shape(value)} are not those of blocks of {block} in {shape}"
        )
    places = np.arange(shape[at]) // block
    known = n.known(value)
    if known is not None:
        return n.constant(known.take(places, axis=at))
    return n.op("gather", value, n.constant(places, "int64"), axis=at)
