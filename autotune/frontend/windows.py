"""Windows over images and volumes, and the elements that they see. In: values of a graph being
built. Out: comparisons of what pools see; columns added up at the elements they are of.

Places count a tensor's elements laid flat, with channels in front of rows, whatever the order is
here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from autotune.errors import ModelError
from autotune.frontend.assembly import Assembler
from autotune.frontend.views import select_ranges
from autotune.frontend.volume import VolumeWindow
from autotune.types import Array, dense_strides, lowest


def pool_places(
    n: Assembler,
    image: str,
    largest: str,
    window: VolumeWindow,
    *,
    columns_first: bool = False,
    whole: bool = True,
) -> str:
    """Where the first of every window's largest elements lies: how far behind the first element
    of its window, and where that is. `whole`: in the whole tensor, else in its channel's plane."""
    batch, *extents, channels = n.shape(image)
    rank, order = len(extents), -1 if columns_first else 1
    strides = dense_strides(tuple(extents[::order]))[::order]
    before, behind = window.pads[:rank], window.pads[rank:]
    pads, fill = (0, *before, 0, 0, *behind, 0), lowest(n.dtype(image))
    padded = n.op("pad", image, pads=pads, value=fill) if any(pads) else image
    firsts = [
        np.arange(count) * step - b
        for count, step, b in zip(n.shape(largest)[1:-1], window.strides, before, strict=True)
    ]
    found = ""
    for tap in reversed(_taps(window)):  # of equal elements the first is looked at last
        offset = n.constant(np.dot(tap, strides), "int64")
        if not found:
            found = n.op("expand", offset, shape=n.shape(largest))
            continue
        seen = _strided(n, padded, tap, [f.size for f in firsts], window.strides)
        hit = n.op("eq", seen, largest)
        if n.dtype(seen).startswith("float"):  # a NaN is the largest, and equals nothing
            hit = n.op("or", hit, n.op("ne", seen, seen))
        if any(pads):
            ends = zip(firsts, tap, extents, strict=True)
            inside = _outer(np.logical_and, [(f + t >= 0) & (f + t < e) for f, t, e in ends])
            hit = n.op("and", hit, n.constant(inside[None, ..., None]))
        found = n.op("where", hit, offset, found)
    along = _outer(np.add, [f * s for f, s in zip(firsts, strides, strict=True)])
    begin = along[None, ..., None]
    if whole:
        images = np.arange(batch * channels).reshape(batch, *[1] * rank, channels)
        begin = begin + images * math.prod(extents)
    return n.op("add", found, n.constant(begin, "int64"))


def _taps(window: VolumeWindow) -> list[tuple[int, ...]]:
    """What a window sees, from its first element on."""
    every = itertools.product(*map(range, window.kernel))
    return [tuple(t * d for t, d in zip(tap, window.dilations, strict=True)) for tap in every]


def _strided(
    n: Assembler, x: str, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
) -> str:
    """Every so many elements of an image's spatial dimensions."""
    batch, channels = n.shape(x)[0], n.shape(x)[-1]
    stops = [a + (c - 1) * s + 1 for a, c, s in zip(starts, counts, steps, strict=True)]
    return n.op(
        "slice", x, starts=(0, *starts, 0), stops=(batch, *stops, channels), steps=(1, *steps, 1)
    )


def _outer(join: np.ufunc, values: Sequence[Array]) -> Array:
    """A table of what values of several axes join to."""
    return reduce(join.outer, values)


def added_up(n: Assembler, x: str, extents: Sequence[int], window: VolumeWindow) -> str:
    """Columns [batch, channels * kernel, windows] added up at the elements that the windows see:
    [batch, channels, *extents]. Raises ModelError."""
    kernel, strides, dilations, pads = (
        window.kernel, window.strides, window.dilations, window.pads,
    )  # fmt: skip
    batch, rows, windows = n.shape(x)
    rank, channels = len(extents), rows // math.prod(kernel)
    whole = [e + pads[d] + pads[d + rank] for d, e in enumerate(extents)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    counts = [(w - r) // s + 1 for w, r, s in zip(whole, reach, strides, strict=True)]
    if math.prod(counts) != windows or channels * math.prod(kernel) != rows:
        raise ModelError(f"windows {kernel} of {extents} do not fit columns of {n.shape(x)}")
    y = n.reshape(x, (batch, channels, *kernel, *counts))
    for d in reversed(range(rank)):
        y = _added_along(n, y, 2 + d, window.part(d), extents[d])
    return y


def _added_along(n: Assembler, x: str, taps: int, window: VolumeWindow, extent: int) -> str:
    """Elements of windows along one dimension added up: the axis of their taps goes, and that of
    their places has all elements. Those a stride apart are added up by themselves, and woven.
    [batch, channels, taps .., this one's taps, places .., this one's places, elements ..]"""
    stride, before, behind = window.strides[0], window.pads[0], window.pads[2]
    places = 2 * taps - 1
    shape, axis = n.shape(x), places - 1
    without = (*shape[:taps], *shape[taps + 1 :])
    length = -(-(before + extent + behind) // stride)
    woven = []
    for remainder in range(stride):
        total = ""
        for tap in range(window.kernel[0]):
            first, rest = divmod(tap * window.dilations[0], stride)
            if rest != remainder:
                continue
            part = n.reshape(select_ranges(n, x, {taps: range(tap, tap + 1)}), without)
            pads = [0] * (2 * len(without))
            pads[axis], pads[axis + len(without)] = first, length - shape[places] - first
            part = n.op("pad", part, pads=tuple(pads), value=0.0) if any(pads) else part
            total = n.op("add", total, part) if total else part
        filled = (*without[:axis], length, *without[axis + 1 :])
        woven.append(total or n.constant(np.zeros(filled), n.dtype(x)))
    if stride > 1:
        apart = (*n.shape(woven[0])[: axis + 1], 1, *n.shape(woven[0])[axis + 1 :])
        joined = n.op("concat", *(n.reshape(v, apart) for v in woven), axis=axis + 1)
        woven = [n.reshape(joined, (*apart[:axis], length * stride, *apart[axis + 2 :]))]
    return select_ranges(n, woven[0], {axis: range(before, before + extent)})


def as_columns(n: Assembler, x: str, window: VolumeWindow) -> str:
    """What windows over an image [N, C, H, W] see, as columns: [N, C, KH, KW, rows, columns]."""
    rank = len(window.kernel)
    around = (0, 0, *window.pads[:rank], 0, 0, *window.pads[rank:])
    counts = [window.positions(d, e) for d, e in enumerate(n.shape(x)[2:])]
    x = n.op("pad", x, pads=around, value=0.0) if any(around) else x
    parts = []
    for tap in _taps(window):
        ranges = zip(tap, counts, window.strides, strict=True)
        seen = {2 + d: range(t, t + (c - 1) * s + 1, s) for d, (t, c, s) in enumerate(ranges)}
        part = select_ranges(n, x, seen)
        parts.append(n.reshape(part, (*n.shape(x)[:2], 1, *counts)))
    columns = n.op("concat", *parts, axis=2) if len(parts) > 1 else parts[0]
    return n.reshape(columns, (*n.shape(x)[:2], *window.kernel, *counts))
