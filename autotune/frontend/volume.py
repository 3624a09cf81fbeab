"""Convolutions and pools over any number of spatial dimensions, made of those over images.

In: values with channels last ([N,H,W,C] or [N,D,H,W,C]). Out: the same order. A convolution over
volumes is one over images whose channels are those of all the slices that its kernel sees in
depth; a pool is one over height and width and then one over depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import UndecidedError
from autotune.frontend.assembly import Assembler
from autotune.sizes import is_size


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeWindow:
    """A sliding window, one entry per spatial dimension, pads before all before those behind;
    `valid_pads` are those the model declares, `pads` may be larger behind so that the output has
    the size that ceil_mode asks for."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    valid_pads: tuple[int, ...]

    def part(self, *dims: int) -> VolumeWindow:
        """The window along some dimensions; a second one that is not there is trivial."""
        rank = len(self.kernel)

        def of(values: Sequence[int], none: int) -> tuple[int, ...]:
            return (*(values[d] for d in dims), *(none,) * (2 - len(dims)))

        def pads_of(values: Sequence[int]) -> tuple[int, ...]:
            return (*of(values[:rank], 0), *of(values[rank:], 0))

        return VolumeWindow(
            kernel=of(self.kernel, 1), strides=of(self.strides, 1),
            dilations=of(self.dilations, 1), pads=pads_of(self.pads),
            valid_pads=pads_of(self.valid_pads),
        )  # fmt: skip

    def is_point(self) -> bool:
        """Whether it sees one element at every place, and every element."""
        return all(v == 1 for v in (*self.kernel, *self.strides)) and not any(self.pads)

    def positions(self, dim: int, extent: int) -> int:
        reach = (self.kernel[dim] - 1) * self.dilations[dim] + 1
        padded = extent + self.pads[dim] + self.pads[dim + len(self.kernel)]
        return (padded - reach) // self.strides[dim] + 1


Pool = Callable[[Assembler, str, VolumeWindow], str]


def convolution(n: Assembler, x: str, w: str, window: VolumeWindow, groups: int) -> str:
    """x [N,...,C], w [...,C/groups,O] -> [N,...,O]."""
    if n.rank(x) == 4:
        return _conv2d(n, x, w, window, groups)
    batch, depth, height, width, channels = n.shape(x)
    kd, kh, kw, per_group, out = n.shape(w)
    plane, along = window.part(1, 2), window.part(0)
    if plane.is_point():
        x = n.reshape(x, (batch, depth, height * width, channels))
        y = _conv2d(n, x, n.reshape(w, (kd, 1, per_group, out)), along, groups)
        return n.reshape(y, (batch, n.shape(y)[1], height, width, out))
    slices = _slices(n, x, window)
    if groups == 1:
        image = slices[0] if kd == 1 else n.op("concat", *slices, axis=3)
        merged = n.reshape(n.transpose(w, (1, 2, 0, 3, 4)), (kh, kw, kd * per_group, out))
        y = _conv2d(n, image, merged, plane, 1)
    else:
        # Channels of one group would not lie side by side: a sum instead.
        y = ""
        for place, image in enumerate(slices):
            part = n.op(
                "slice", w, starts=(place, 0, 0, 0, 0), steps=(1,) * 5,
                stops=(place + 1, kh, kw, per_group, out),
            )  # fmt: skip
            term = _conv2d(n, image, n.reshape(part, (kh, kw, per_group, out)), plane, groups)
            y = n.op("add", y, term) if y else term
    return n.reshape(y, (batch, window.positions(0, depth), *n.shape(y)[1:]))


def _slices(n: Assembler, x: str, window: VolumeWindow) -> list[str]:
    """For each place of the kernel in depth the images it meets: [N*positions, H, W, C]."""
    batch, depth, height, width, channels = n.shape(x)
    stride, count = window.strides[0], window.positions(0, depth)
    out = []
    for place in range(window.kernel[0]):
        first = place * window.dilations[0] - window.pads[0]
        inside = [i for i in range(count) if 0 <= first + i * stride < depth]
        part = _depths(n, x, [first + i * stride for i in inside], stride)
        if len(inside) < count:
            before = inside[0] if inside else 0
            after = count - len(inside) - before
            pads = (0, before, 0, 0, 0, 0, after, 0, 0, 0)
            part = n.op("pad", part, pads=pads, value=0.0)
        out.append(n.reshape(part, (batch * count, height, width, channels)))
    return out


def _depths(n: Assembler, x: str, places: list[int], stride: int) -> str:
    """Some of the images of a volume."""
    batch, depth, *rest = n.shape(x)
    if places == list(range(depth)):
        return x
    start, stop = (places[0], places[-1] + 1) if places else (0, 0)
    return n.op(
        "slice", x, starts=(0, start, 0, 0, 0), stops=(batch, stop, *rest),
        steps=(1, stride, 1, 1, 1),
    )  # fmt: skip


def _conv2d(n: Assembler, x: str, w: str, window: VolumeWindow, groups: int) -> str:
    return n.op(
        "conv2d", x, w, strides=window.strides, pads=window.pads, dilations=window.dilations,
        groups=groups,
    )  # fmt: skip


def ceil_end(size: int, extent: int, stride: int, before: int, after: int) -> int:
    """The pad behind that makes the size rounded down what ceil_mode gives. A window that would
    begin in the pad behind is left out. Of an open size it is as much as any size may need: what
    no window reaches does not matter. Raises UndecidedError where windows could begin there."""
    if is_size(size):
        if after + stride > extent:
            raise UndecidedError(f"windows of {extent} by {stride} over {size}, rounded up")
        return after + stride - 1
    count = math.ceil((size + before + after - extent) / stride) + 1
    if (count - 1) * stride >= size + before:
        count -= 1
    return max((count - 1) * stride + extent - size - before, 0)


def max_pool(n: Assembler, x: str, window: VolumeWindow) -> str:
    """x [N,...,C] -> [N,...,C]."""
    if n.rank(x) == 5:
        return _apart(n, x, window, max_pool)
    return n.op(
        "max_pool2d", x, kernel=window.kernel, strides=window.strides, pads=window.pads,
        dilations=window.dilations,
    )  # fmt: skip


def avg_pool(n: Assembler, x: str, window: VolumeWindow, count_include_pad: bool) -> str:
    """x [N,...,C] -> [N,...,C]. How many elements a window sees is a product over dimensions."""
    if n.rank(x) == 5:
        return _apart(n, x, window, lambda n, x, w: avg_pool(n, x, w, count_include_pad))
    return n.op(
        "avg_pool2d", x, kernel=window.kernel, strides=window.strides, pads=window.pads,
        dilations=window.dilations, valid_pads=window.valid_pads,
        count_include_pad=count_include_pad,
    )  # fmt: skip


def _apart(n: Assembler, x: str, window: VolumeWindow, pool: Pool) -> str:
    """Over height and width, then over depth."""
    batch, depth, *rest, channels = n.shape(x)
    plane, along = window.part(1, 2), window.part(0)
    if not plane.is_point():
        y = pool(n, n.reshape(x, (batch * depth, *rest, channels)), plane)
        rest = list(n.shape(y)[1:3])
        x = n.reshape(y, (batch, depth, *rest, channels))
    if along.is_point():
        return x
    y = pool(n, n.reshape(x, (batch, depth, rest[0] * rest[1], channels)), along)
    return n.reshape(y, (batch, n.shape(y)[1], *rest, channels))
