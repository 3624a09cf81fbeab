"""Convolutions and pools over any number of spatial dimensions, made of those over images.

In: values with channels last ([N,H,W,C] or [N,D,H,W,C]). Out: the same order. A convolution over
volumes is one over images whose channels are those of all the slices that its kernel sees in
depth; a pool is one over height and width and then one over depth.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import UndecidedError
from autotune.frontend.assembly import Assembler
from autotune.sizes import any_size, is_size
from autotune.types import lowest


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
    x, window = _apart_from_sizes(n, x, window, 0.0)
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
    if is_size(depth):
        x = _between_zeros(n, x, window)
        last = (count - 1) * stride + 1
        for place in range(window.kernel[0]):
            first = place * window.dilations[0]
            part = n.op(
                "slice", x, starts=(0, first, 0, 0, 0), steps=(1, stride, 1, 1, 1),
                stops=(batch, first + last, height, width, channels),
            )  # fmt: skip
            out.append(n.reshape(part, (batch * count, height, width, channels)))
        return out
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


def _between_zeros(n: Assembler, x: str, window: VolumeWindow) -> str:
    """Images of zeros before and behind those of a volume, which may be written between them."""
    batch, _, *rest = n.shape(x)
    zero = n.scalar(0.0, n.dtype(x))
    pads = (window.pads[0], window.pads[len(window.kernel)])
    before, behind = (
        [n.op("expand", zero, shape=(batch, pad, *rest))] if pad else [] for pad in pads
    )
    parts = (*before, x, *behind)
    return n.op("concat", *parts, axis=1) if len(parts) > 1 else x


def _framed(n: Assembler, x: str, window: VolumeWindow, value: float, dims: Sequence[int]) -> str:
    """x with the pads along some spatial dimensions around it."""
    rank = len(window.kernel)
    before, behind = (
        [side[d] if d in dims else 0 for d in range(rank)]
        for side in (window.pads[:rank], window.pads[rank:])
    )
    pads = (0, *before, 0, 0, *behind, 0)
    return n.op("pad", x, pads=pads, value=value) if any(pads) else x


def _apart_from_sizes(
    n: Assembler, x: str, window: VolumeWindow, value: float
) -> tuple[str, VolumeWindow]:
    """(x padded where a size decides by how much, the window for it): so that a stride ends with
    the image, pads depend on what is left of it."""
    rank = len(window.kernel)
    dims = [d for d in range(rank) if any_size((window.pads[d], window.pads[d + rank]))]
    if not dims:
        return x, window

    def rest(pads: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(0 if d % rank in dims else pad for d, pad in enumerate(pads))

    pads, valid = rest(window.pads), rest(window.valid_pads)
    left = dataclasses.replace(window, pads=pads, valid_pads=valid)
    return _framed(n, x, window, value, dims), left


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
    x, window = _apart_from_sizes(n, x, window, lowest(n.dtype(x)))
    return n.op(
        "max_pool2d", x, kernel=window.kernel, strides=window.strides, pads=window.pads,
        dilations=window.dilations,
    )  # fmt: skip


def avg_pool(n: Assembler, x: str, window: VolumeWindow, count_include_pad: bool) -> str:
    """x [N,...,C] -> [N,...,C]. How many elements a window sees is a product over dimensions."""
    if n.rank(x) == 5:
        return _apart(n, x, window, lambda n, x, w: avg_pool(n, x, w, count_include_pad))
    extents = n.shape(x)[1:3]
    x, left = _apart_from_sizes(n, x, window, 0.0)
    shares = []
    if any_size(extents):
        counted = window.valid_pads if count_include_pad else (0, 0, 0, 0)
        ones = n.scalar(1.0, n.dtype(x))
        shares = [_shares(n, ones, window.part(d), extents[d], counted[d::2]) for d in (0, 1)]
        shares = [shares[0], shares[1] and n.transpose(shares[1], (0, 2, 1, 3))]
        left = dataclasses.replace(left, valid_pads=left.pads)
    y = n.op(
        "avg_pool2d", x, kernel=left.kernel, strides=left.strides, pads=left.pads,
        dilations=left.dilations, valid_pads=left.valid_pads,
        count_include_pad=count_include_pad or bool(shares),
    )  # fmt: skip
    for share in filter(None, shares):
        y = n.op("mul", y, share)
    return y


def _shares(
    n: Assembler, one: str, along: VolumeWindow, extent: int, inside: Sequence[int]
) -> str:
    """What a mean over whole windows along a dimension, with zeros around an open size, is to be
    multiplied by for one over those elements that count, a vector; "" where all count. `one`: as a
    value; `inside`: pads that count."""
    before, behind = (along.pads[d] - part for d, part in zip((0, 2), inside, strict=True))
    if not is_size(before) and not is_size(behind) and before == behind == 0:
        return ""
    around = (before, 0, behind, 0)
    along = dataclasses.replace(along, pads=around, valid_pads=around)
    ones = n.op("expand", one, shape=(1, sum(inside) + extent, 1, 1))
    ones, left = _apart_from_sizes(n, ones, along, 0.0)
    seen = n.op(
        "avg_pool2d", ones, kernel=left.kernel, strides=left.strides, pads=left.pads,
        dilations=left.dilations, valid_pads=left.pads, count_include_pad=True,
    )  # fmt: skip
    least = n.scalar(1 / left.kernel[0], n.dtype(ones))
    return n.op("div", one, n.op("max", seen, least))


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
