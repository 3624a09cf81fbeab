"""Sums of products of bytes, for importers of whatever format.

Products of bytes stay products of bytes: signed data are moved up by 128, zero points go into
constants, and what is left is uint8 times int8. Weights that do not fit in int8 without their zero
point are moved, and sums of the data, times how far, are added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.types import Array


@dataclass(frozen=True)
class ByteSums:
    """Sums of (x - x_zero) * (w - w_zero) in int32, where w is constant."""

    n: Assembler
    x: str
    x_zero: str | None
    w: str
    w_zero: str | None

    def of_matmul(self) -> str:
        """[..., M, K] times [..., K, N]."""
        n, whole, (data, _) = self.n, self.weights(), self.unsigned()
        shift = moved_weights(whole, tuple(range(whole.ndim - 1)))
        total = n.op("matmul", data, n.constant(whole - shift, "int8"))
        if shift.any():
            wide = n.cast(data, "int32")
            rows = n.op("reduce_sum", wide, axes=(n.rank(wide) - 1,), keepdims=True)
            total = n.op("add", total, n.op("mul", rows, n.constant(shift.reshape(-1), "int32")))
        return self.without_zero(total, whole)

    def without_zero(self, total: str, weights: Array, seen: str | None = None) -> str:
        """The sums less what the data's zero point adds to them; `seen`: the weights that do not
        lie on padding of nothing, added up per output."""
        n, (_, moved) = self.n, self.unsigned()
        axes = tuple(range(weights.ndim - 1)) if weights.ndim == 4 else (weights.ndim - 2,)
        ones = weights.astype(np.int64).sum(axis=axes, keepdims=weights.ndim not in (2, 4))
        if self.x_zero is None and not moved:
            return total
        zero = n.like(moved, total)
        if self.x_zero is not None:
            zero = n.op("add", n.cast(n.reshape(self.x_zero, ()), "int32"), zero)
        counts = seen or n.constant(ones, "int32")
        return n.op("sub", total, n.op("mul", counts, zero))

    def unsigned(self) -> tuple[str, int]:
        """(the data as uint8, how far they were moved up for that)."""
        n = self.n
        if n.dtype(self.x) == "uint8":
            return self.x, 0
        if n.dtype(self.x) != "int8":
            raise UnsupportedOpError(f"data of {n.dtype(self.x)} are not supported; use uint8")
        wide = n.cast(self.x, "int32")
        return n.op("to_uint8", n.op("add", wide, n.like(128, wide))), 128

    def weights(self, first_axis: bool = False) -> Array:
        """The weights less their zero points: one for all, or one per element of the last axis
        (or the first one)."""
        array = self.n.known(self.w)
        zero = np.zeros(1, np.int8) if self.w_zero is None else self.n.known(self.w_zero)
        if array is None or zero is None:
            raise UnsupportedOpError("the weights must be constant; fold the model's constants")
        if zero.size > 1 and first_axis:
            zero = zero.reshape(-1, *[1] * (array.ndim - 1))
        return np.asarray(array.astype(np.int32) - zero.astype(np.int32))


def moved_weights(weights: Array, axes: tuple[int, ...]) -> Array:
    """What is taken from the weights of each output so that they fit in int8: nothing where they
    do, 128 less the zero point where that is far from the middle. [1, ..., outputs]"""
    least, most = (f(axis=axes, keepdims=True) for f in (weights.min, weights.max))
    return np.asarray(np.where(least < -128, least + 128, np.maximum(most - 127, 0)))
