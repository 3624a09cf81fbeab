"""ONNX importers: models that are quantized already.

Products of bytes stay products of bytes: signed data are moved up by 128, zero points go into
constants, and what is left is uint8 times int8. Weights and their zero points must be constants.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx_context import NodeContext, importer
from autotune.frontend.onnx_image import conv_operands, from_nhwc
from autotune.frontend.onnx_numbers import (
    as_bytes,
    known_numbers,
    known_sums,
    numbers_of,
    steps_of,
)
from autotune.frontend.onnx_volume import convolution
from autotune.types import Array

_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}
_TOGETHER = 4
"""Channels that an instruction multiplies at once; fewer are filled up."""


@importer("QuantizeLinear")
def quantize_linear(n: NodeContext) -> str:
    n.ignore("saturate", "precision", "output_dtype")
    x, axis = n.input(0), n.integer("axis", 1)
    scale, zero = _parameter(n, x, 1, axis), n.optional(2)
    if (steps := steps_of(n, 1, 2)) is not None and n.dtype(x) == "float32":
        return as_bytes(n, x, steps)
    dtype = "uint8" if zero is None else n.dtype(zero)
    return _rounded(n, n.op("div", x, scale), _parameter(n, x, 2, axis) if zero else None, dtype)


@importer("DequantizeLinear")
def dequantize_linear(n: NodeContext) -> str:
    n.ignore("output_dtype")
    x, axis = n.input(0), n.integer("axis", 1)
    if (numbers := numbers_of(n, 0, 1, 2)) is not None:
        return numbers
    value = n.cast(x, "int32")
    if n.optional(2) is not None:
        value = n.op("sub", value, n.cast(_parameter(n, x, 2, axis), "int32"))
    scale = _parameter(n, x, 1, axis)
    return n.op("mul", n.cast(value, n.dtype(scale)), scale)


@importer("DynamicQuantizeLinear")
def dynamic_quantize_linear(n: NodeContext) -> tuple[str, str, str]:
    x = n.input(0)
    axes = tuple(range(n.rank(x)))
    nothing = n.like(0, x)
    low = n.op("min", n.op("reduce_min", x, axes=axes, keepdims=False), nothing)
    high = n.op("max", n.op("reduce_max", x, axes=axes, keepdims=False), nothing)
    scale = n.op("div", n.op("sub", high, low), n.like(255, x))
    zero = n.op("clip", n.op("round", n.op("div", n.op("neg", low), scale)), min=0, max=255)
    counts = n.op("add", n.op("round", n.op("div", x, scale)), zero)
    y = n.op("to_uint8", n.op("clip", counts, min=0, max=255))
    return y, scale, n.op("to_uint8", zero)


@importer("MatMulInteger")
def matmul_integer(n: NodeContext) -> str:
    sums = _Sums(n, n.input(0), n.optional(2), n.input(1), n.optional(3))
    return sums.of_matmul()


@importer("ConvInteger")
def conv_integer(n: NodeContext) -> str:
    sums = _Sums(n, n.input(0), n.optional(2), n.input(1), n.optional(3))
    return from_nhwc(n, sums.of_conv(), n.rank(n.input(0)))


@importer("QLinearMatMul")
def qlinear_matmul(n: NodeContext) -> str:
    numbers, steps = numbers_of(n, 0, 1, 2), steps_of(n, 6, 7)
    weights = known_numbers(n, 3, (4, 5), axis=-1)
    if numbers is not None and steps is not None and weights is not None:
        return as_bytes(n, n.op("matmul", numbers, weights, transpose_b=False), steps)
    sums = _Sums(n, n.input(0), n.optional(2), n.input(3), n.optional(5)).of_matmul()
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
    sums = _Sums(n, n.input(0), n.optional(2), n.input(3), n.optional(5)).of_conv()
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


def _rounded(n: NodeContext, value: str, zero: str | None, dtype: str) -> str:
    """To integers, halves to even, within the type's limits."""
    if dtype not in ("uint8", "int8"):
        raise UnsupportedOpError(f"quantizing to {dtype} is not supported; use uint8 or int8")
    value = n.op("round", value)
    if zero is not None:
        value = n.op("add", value, n.cast(zero, n.dtype(value)))
    low, high = _LIMITS[dtype]
    return n.op(f"to_{dtype}", n.op("clip", value, min=low, max=high))


def _parameter(n: NodeContext, x: str, position: int, axis: int) -> str:
    """A scale or zero point as it broadcasts: one for all, or one per element along an axis."""
    value = n.input(position)
    if n.rank(value) == 0 or n.shape(value) == (1,):
        return n.reshape(value, ())
    if n.rank(value) != 1:
        raise UnsupportedOpError("scales per block are not supported; use one per channel")
    shape = [1] * n.rank(x)
    shape[axis] = n.shape(value)[0]
    return n.reshape(value, shape)


@dataclass(frozen=True)
class _Sums:
    """Sums of (x - x_zero) * (w - w_zero) in int32."""

    n: NodeContext
    x: str
    x_zero: str | None
    w: str
    w_zero: str | None

    def of_matmul(self) -> str:
        weights, (data, _) = self._weights(), self._unsigned()
        total = self.n.op("matmul", data, self.n.constant(weights, "int8"))
        return self._without_zero(total, weights)

    def of_conv(self) -> str:
        n, (x, _) = self.n, self._unsigned()
        image, _, window, groups = conv_operands(n, x, self.w)
        if n.rank(image) != 4:
            raise UnsupportedOpError("quantized convolutions over volumes are not supported")
        weights = self._weights(first_axis=True)
        if len(n.shape(self.w)) == 3:
            weights = weights[:, :, None]
        weights = np.ascontiguousarray(weights.transpose(2, 3, 1, 0))
        pads, more = window.pads, 0
        if groups == 1:
            more = -weights.shape[2] % _TOGETHER
        zero = self._known_zero() if any(pads) else 0
        if more or (any(pads) and zero):
            widths = (0, pads[0], pads[1], 0, 0, pads[2], pads[3], more)
            image = n.op("pad", image, pads=widths, value=float(zero))
            weights = np.pad(weights, ((0, 0), (0, 0), (0, more), (0, 0)))
            window = dataclasses.replace(window, pads=(0, 0, 0, 0))
        total = convolution(n, image, n.constant(weights, "int8"), window, groups)
        return self._without_zero(total, weights)

    def _without_zero(self, total: str, weights: Array) -> str:
        """The sums less what the data's zero point adds to them."""
        n, (_, moved) = self.n, self._unsigned()
        axes = tuple(range(weights.ndim - 1)) if weights.ndim == 4 else (weights.ndim - 2,)
        ones = weights.astype(np.int64).sum(axis=axes, keepdims=weights.ndim not in (2, 4))
        if self.x_zero is None and not moved:
            return total
        zero = n.like(moved, total)
        if self.x_zero is not None:
            zero = n.op("add", n.cast(n.reshape(self.x_zero, ()), "int32"), zero)
        return n.op("sub", total, n.op("mul", n.constant(ones, "int32"), zero))

    def _unsigned(self) -> tuple[str, int]:
        """(the data as uint8, how far they were moved up for that)."""
        n = self.n
        if n.dtype(self.x) == "uint8":
            return self.x, 0
        if n.dtype(self.x) != "int8":
            raise UnsupportedOpError(f"data of {n.dtype(self.x)} are not supported; use uint8")
        wide = n.cast(self.x, "int32")
        return n.op("to_uint8", n.op("add", wide, n.like(128, wide))), 128

    def _known_zero(self) -> int:
        """The data's zero point, as uint8."""
        if self.x_zero is None:
            return self._unsigned()[1]
        array = self.n.known(self.x_zero)
        if array is None:
            raise UnsupportedOpError("padding needs a constant zero point; quantize statically")
        return int(array.reshape(-1)[0]) + self._unsigned()[1]

    def _weights(self, first_axis: bool = False) -> Array:
        """The weights less their zero points: one for all, or one per element of the last axis
        (or the first one)."""
        array = self.n.known(self.w)
        zero = np.zeros(1, np.int8) if self.w_zero is None else self.n.known(self.w_zero)
        if array is None or zero is None:
            raise UnsupportedOpError("the weights must be constant; fold the model's constants")
        if zero.size > 1 and first_axis:
            zero = zero.reshape(-1, *[1] * (array.ndim - 1))
        whole = array.astype(np.int32) - zero.astype(np.int32)
        if whole.min(initial=0) < -128 or whole.max(initial=0) > 127:
            raise UnsupportedOpError(
                "weights less their zero points do not fit in int8; quantize them symmetrically"
            )
        return whole
