"""Products of bytes for the importers of quantized operators: matrix products, convolutions."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from autotune.errors import UndecidedError, UnsupportedOpError
from autotune.frontend.byte_sums import ByteSums, moved_weights
from autotune.frontend.onnx.context import NodeContext
from autotune.frontend.onnx.image import conv_operands
from autotune.frontend.volume import VolumeWindow, convolution
from autotune.sizes import any_size, surely_at_most
from autotune.types import Array

_EXACT_TERMS = (1 << 24) // (255 * 255)
"""Products of differences of bytes whose sums float32 has exactly."""
_TOGETHER = 4
"""Channels that an instruction multiplies at once; fewer are filled up."""


@dataclass(frozen=True)
class Sums(ByteSums):
    """The same, also of convolutions, and where weights are known to a run only."""

    n: NodeContext

    def of_matmul(self) -> str:
        if self.n.known(self.w) is None:
            return self._rounded(self.n.op("matmul", *self._wide(self.n.shape(self.x)[-1])))
        return super().of_matmul()

    def _wide(self, terms: int) -> list[str]:
        """Data and weights as floats, in which sums of so many products are exact. A zero point
        per output of a convolution lies along the first axis."""
        n, wide = self.n, []
        kind = "float32" if surely_at_most(terms, _EXACT_TERMS) else "float64"
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
        n, (x, _) = self.n, self.unsigned()
        image, _, window, groups = conv_operands(n, x, self.w)
        if n.rank(image) != 4:
            raise UnsupportedOpError("quantized convolutions over volumes are not supported")
        weights = self.weights(first_axis=True)
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
        shift = moved_weights(weights, (0, 1, 2))
        total = convolution(n, image, n.constant(weights - shift, "int8"), window, groups)
        if shift.any():
            ones = n.constant(np.ones((*weights.shape[:3], groups)), "int8")
            seen = self._per_output(convolution(n, image, ones, window, groups), total)
            total = n.op("add", total, n.op("mul", seen, n.constant(shift.reshape(-1), "int32")))
        if zero is not None:
            return self.without_zero(total, weights)
        if any_size(inner[1:3]):
            return self.without_zero(total, weights, self._seen(weights, inner, given))
        inside = n.constant(_inside(weights, inner, n.shape(total), given), "int32")
        return self.without_zero(total, weights, inside)

    def _seen(self, weights: Array, image: tuple[int, ...], window: VolumeWindow) -> str:
        """As `_inside` of an image whose extents a run decides: its windows over ones, the sums of
        whose weights float32 has exactly."""
        n, sums = self.n, weights.astype(np.int64).sum(axis=2, keepdims=True)
        if np.abs(sums).sum(axis=(0, 1)).max() > 1 << 24:
            raise UndecidedError("sums of weights on an image whose extents a run decides")
        ones = n.op("expand", n.scalar(1.0, "float32"), shape=(1, *image[1:3], 1))
        return self._rounded(convolution(n, ones, n.constant(sums, "float32"), window, 1))

    def _per_output(self, x: str, like: str) -> str:
        """What every group of channels has, for each of its outputs."""
        n = self.n
        groups, outputs = n.shape(x)[3], n.shape(like)[3]
        if groups in (1, outputs):
            return x
        apart = n.reshape(x, (*n.shape(x), 1))
        many = n.op("expand", apart, shape=(*n.shape(x), outputs // groups))
        return n.reshape(many, n.shape(like))

    def _known_zero(self) -> int | None:
        """The data's zero point, as uint8; None where only a run knows it."""
        if self.x_zero is None:
            return self.unsigned()[1]
        array = self.n.known(self.x_zero)
        if array is None:
            return None
        return int(array.reshape(-1)[0]) + self.unsigned()[1]


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
