"""Products of bytes for the importers of quantized operators.

Products of bytes stay products of bytes: signed data are moved up by 128, zero points go into
constants, and what is left is uint8 times int8. Weights that do not fit in int8 without their zero
point are moved, and sums of the data, times how far, are added.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext
from autotune.frontend.onnx.image import conv_operands
from autotune.frontend.volume import VolumeWindow, convolution
from autotune.types import Array

_EXACT_TERMS = (1 << 24) // (255 * 255)
"""Products of differences of bytes whose sums float32 has exactly."""
_TOGETHER = 4
"""Channels that an instruction multiplies at once; fewer are filled up."""


@dataclass(frozen=True)
class Sums:
    """Sums of (x - x_zero) * (w - w_zero) in int32."""

    n: NodeContext
    x: str
    x_zero: str | None
    w: str
    w_zero: str | None

    def of_matmul(self) -> str:
        if self.n.known(self.w) is None:
            return self._rounded(self.n.op("matmul", *self._wide(self.n.shape(self.x)[-1])))
        n, whole, (data, _) = self.n, self._weights(), self._unsigned()
        shift = _shift(whole, tuple(range(whole.ndim - 1)))
        total = n.op("matmul", data, n.constant(whole - shift, "int8"))
        if shift.any():
            wide = n.cast(data, "int32")
            rows = n.op("reduce_sum", wide, axes=(n.rank(wide) - 1,), keepdims=True)
            total = n.op("add", total, n.op("mul", rows, n.constant(shift.reshape(-1), "int32")))
        return self._without_zero(total, whole)

    def _wide(self, terms: int) -> list[str]:
        """Data and weights as floats, in which sums of so many products are exact. A zero point
        per output of a convolution lies along the first axis."""
        n, wide = self.n, []
        kind = "float32" if terms <= _EXACT_TERMS else "float64"
        for value, zero in ((self.x, self.x_zero), (self.w, self.w_zero)):
            number = n.cast(value, kind)
            if zero is not None:
                wide_zero, outputs = n.cast(zero, kind), n.shape(zero)
                if "Conv" in n.operator and outputs not in ((), (1,)):
                    ones = [1] * (n.rank(value) - 1)
                    wide_zero = n.reshape(wide_zero, (*outputs, *ones))
                number = n.op("sub", number, wide_zero)
            wide.append(number)
        return wide

    def _rounded(self, sums: str) -> str:
        return self.n.cast(self.n.op("round", sums), "int32")

    def of_conv(self) -> str:
        if self.n.known(self.w) is None:
            wide = self._wide(math.prod(self.n.shape(self.w)[1:]))
            return self._rounded(convolution(self.n, *conv_operands(self.n, *wide)))
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
        given, inner = window, n.shape(image)
        if more or (any(pads) and zero):
            widths = (0, pads[0], pads[1], 0, 0, pads[2], pads[3], more)
            image = n.op("pad", image, pads=widths, value=float(zero or 0))
            weights = np.pad(weights, ((0, 0), (0, 0), (0, more), (0, 0)))
            window = dataclasses.replace(window, pads=(0, 0, 0, 0))
        shift = _shift(weights, (0, 1, 2))
        total = convolution(n, image, n.constant(weights - shift, "int8"), window, groups)
        if shift.any():
            ones = n.constant(np.ones((*weights.shape[:3], groups)), "int8")
            seen = self._per_output(convolution(n, image, ones, window, groups), total)
            total = n.op("add", total, n.op("mul", seen, n.constant(shift.reshape(-1), "int32")))
        if zero is not None:
            return self._without_zero(total, weights)
        return self._without_zero(total, weights, _inside(weights, inner, n.shape(total), given))

    def _per_output(self, x: str, like: str) -> str:
        """What every group of channels has, for each of its outputs."""
        n = self.n
        groups, outputs = n.shape(x)[3], n.shape(like)[3]
        if groups in (1, outputs):
            return x
        apart = n.reshape(x, (*n.shape(x), 1))
        many = n.op("expand", apart, shape=(*n.shape(x), outputs // groups))
        return n.reshape(many, n.shape(like))

    def _without_zero(self, total: str, weights: Array, seen: Array | None = None) -> str:
        """The sums less what the data's zero point adds to them; `seen`: the weights that do not
        lie on padding of nothing, added up per output."""
        n, (_, moved) = self.n, self._unsigned()
        axes = tuple(range(weights.ndim - 1)) if weights.ndim == 4 else (weights.ndim - 2,)
        ones = weights.astype(np.int64).sum(axis=axes, keepdims=weights.ndim not in (2, 4))
        if self.x_zero is None and not moved:
            return total
        if seen is not None:
            ones = seen
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

    def _known_zero(self) -> int | None:
        """The data's zero point, as uint8; None where only a run knows it."""
        if self.x_zero is None:
            return self._unsigned()[1]
        array = self.n.known(self.x_zero)
        if array is None:
            return None
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
        return np.asarray(array.astype(np.int32) - zero.astype(np.int32))


def _inside(
    weights: Array, image: tuple[int, ...], result: tuple[int, ...], window: VolumeWindow
) -> Array:
    """Per output [1, rows, columns, channels], the sum of its weights that lie on the image, not
    on its padding; weights [rows, columns, channels, outputs]."""
    lie = []
    for axis in (0, 1):
        starts = np.arange(result[1 + axis])[:, None] * window.strides[axis]
        at = starts + np.arange(weights.shape[axis]) * window.dilations[axis] - window.pads[axis]
        lie.append((at >= 0) & (at < image[1 + axis]))
    sums = weights.astype(np.int64).sum(axis=2)
    rows, columns = (m.astype(np.int64) for m in lie)
    return np.asarray(np.einsum("yr,xc,rco->yxo", rows, columns, sums)[None])


def _shift(weights: Array, axes: tuple[int, ...]) -> Array:
    """What is taken from the weights of each output so that they fit in int8: nothing where they
    do, 128 less the zero point where that is far from the middle. [1, ..., outputs]"""
    least, most = (f(axis=axes, keepdims=True) for f in (weights.min, weights.max))
    return np.asarray(np.where(least < -128, least + 128, np.maximum(most - 127, 0)))
