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
    n.made(math.prod(kernel) * windows, batch, channels)
    n.made(batch, channels, *whole)
    flat = dense_strides(tuple(whole))
    inner = _outer(
        np.add, [np.arange(k) * d * f for k, d, f in zip(kernel, dilations, flat, strict=True)]
    )
    outer = _outer(
        np.add, [np.arange(c) * s * f for c, s, f in zip(counts, strides, flat, strict=True)]
    )
    places = n.constant(np.add.outer(inner, outer).reshape(1, 1, -1), "int64")
    columns = n.reshape(x, (batch, channels, math.prod(kernel) * windows))
    start = n.constant(np.zeros((batch, channels, math.prod(whole))), n.dtype(x))
    y = n.op("scatter", start, places, columns, axis=2, reduction="add")
    y = n.reshape(y, (batch, channels, *whole))
    stops = [p + e for p, e in zip(pads, extents, strict=False)]
    return n.op(
        "slice", y, starts=(0, 0, *pads[:rank]), stops=(batch, channels, *stops),
        steps=(1,) * (rank + 2),
    )  # fmt: skip
