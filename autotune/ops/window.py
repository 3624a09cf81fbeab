"""Sliding windows along one image dimension: where they lie, how far they reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.ops._common import integers, require
from autotune.program.ir import Index, clamp, index
from autotune.sizes import any_size, greatest, surely_less
from autotune.types import Array, Attrs, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The windows along one dimension of an image."""

    extent: int
    kernel: int
    stride: int
    before: int
    after: int
    dilation: int

    @property
    def positions(self) -> int:
        """How many windows fit."""
        padded = self.extent + self.before + self.after
        return (padded - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    @property
    def meets_image(self) -> bool:
        """Whether every window reaches into the image: none lies in the padding alone."""
        last = (self.positions - 1) * self.stride - self.before
        return self.before <= (self.kernel - 1) * self.dilation and last < self.extent

    def position(self, outer: str, inner: str) -> Index:
        """Image index of element `inner` of window `outer`; it may lie outside the image."""
        return index(outer) * self.stride + index(inner) * self.dilation - self.before

    def reach(self) -> tuple[int, int]:
        """(before, after): how far the windows reach beyond the image, at most."""
        last = (self.positions - 1) * self.stride + (self.kernel - 1) * self.dilation
        return self.before, max(0, greatest(last - self.before - self.extent + 1))

    def counts(self, low: int, high: int) -> list[int]:
        """Elements of each window that lie in low .. high-1."""
        starts = (o * self.stride - self.before for o in range(self.positions))
        return [
            sum(low <= s + k * self.dilation < high for k in range(self.kernel)) for s in starts
        ]

    def count(self, outer: str, low: int, high: int) -> Index:
        """The same as an index expression, at least 1."""
        if any_size((self.positions, low, high)):
            least, most = self._counts_of_any(low, high)
        else:
            counts = self.counts(low, high)
            least, most = min(counts), max(counts)
        if least == most:
            return Index((), max(most, 1))

        def windows_below(limit: int) -> Index:
            distance = index(outer) * -self.stride + (limit + self.before + self.dilation - 1)
            return clamp(distance // self.dilation, 0, self.kernel)

        found = windows_below(high) - windows_below(low)
        return found if least else clamp(found, 1, self.kernel)

    def _counts_of_any(self, low: int, high: int) -> tuple[int, int]:
        """The least and the most elements of a window in an image of open size: none may be
        missed where one could be."""
        last = (self.positions - 1) * self.stride + (self.kernel - 1) * self.dilation
        inside = low + self.before <= 0 and surely_less(last - self.before, high)
        return (self.kernel if inside else 0), self.kernel

    def slice(self, inner: int) -> slice:
        """Element `inner` of every window, out of the padded image."""
        start = inner * self.dilation
        return slice(start, start + (self.positions - 1) * self.stride + 1, self.stride)

    def take(self, padded: Array, axis: int) -> Array:
        """Every window of a padded image: dimension `axis` becomes (window, element)."""
        starts = np.arange(self.positions)[:, None] * self.stride
        return np.take(padded, starts + np.arange(self.kernel) * self.dilation, axis=axis)


def windows_of(
    x: TensorType | Array, kernel: Sequence[int], attrs: Attrs, op: str
) -> tuple[Window, Window]:
    """The windows of [N,H,W,C] along rows and columns. Raises what `require` does."""
    strides = integers(attrs, "strides", (1, 1), 2)
    pads = integers(attrs, "pads", (0, 0, 0, 0), 4)
    dilations = integers(attrs, "dilations", (1, 1), 2)
    require(min(strides) > 0, f"{op}: strides must be positive, got {strides}")
    require(min(dilations) > 0, f"{op}: dilations must be positive, got {dilations}")
    require(min(pads) >= 0, f"{op}: pads must not be negative, got {pads}")
    rows, columns = (
        Window(
            extent=x.shape[1 + d],
            kernel=kernel[d],
            stride=strides[d],
            before=pads[d],
            after=pads[d + 2],
            dilation=dilations[d],
        )
        for d in (0, 1)
    )
    return rows, columns
