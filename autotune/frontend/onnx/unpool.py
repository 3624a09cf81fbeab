"""ONNX importers: MaxPool with the places of what it gives, MaxUnpool, Col2Im.

In: nodes. Out: comparisons of what pools see, scatters. Places count a tensor's elements laid
flat, with channels in front of rows, whatever the order is here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from autotune.errors import ModelError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import check_window, pool_window, spread
from autotune.frontend.views import from_nhwc, to_nhwc
from autotune.frontend.volume import VolumeWindow, max_pool
from autotune.types import Array, dense_strides, lowest


@importer("MaxPool")
def max_pooling(n: NodeContext) -> str | tuple[str, str]:
    """(the largest element of every window, its place where something uses it)."""
    x, columns_first = n.input(0), bool(n.integer("storage_order", 0))
    image = to_nhwc(n, x)
    window = pool_window(n, image, n.rank(x))
    largest = max_pool(n, image, window)
    y = from_nhwc(n, largest, n.rank(x))
    if not any(n.outputs[1:]):
        return y
    places = _places(n, image, largest, window, columns_first)
    return y, from_nhwc(n, places, n.rank(x))


def _places(
    n: NodeContext, image: str, largest: str, window: VolumeWindow, columns_first: bool
) -> str:
    """Where the first of every window's largest elements lies: how far behind the first element
    of its window, and where that is."""
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
    images = np.arange(batch * channels).reshape(batch, *[1] * rank, channels)
    begin = images * math.prod(extents) + along[None, ..., None]
    return n.op("add", found, n.constant(begin, "int64"))


def _taps(window: VolumeWindow) -> list[tuple[int, ...]]:
    """What a window sees, from its first element on."""
    every = itertools.product(*map(range, window.kernel))
    return [tuple(t * d for t, d in zip(tap, window.dilations, strict=True)) for tap in every]


def _strided(
    n: NodeContext, x: str, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
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


@importer("MaxUnpool")
def max_unpool(n: NodeContext) -> str:
    """Zeros with the elements at their places. These are of a tensor of the size of the result, as
    onnxruntime has it: they come from a pool whose input the result has the shape of."""
    x, places = n.input(0), n.input(1)
    shape = n.shape(x)
    rank = len(shape) - 2
    kernel = n.integers("kernel_shape") or ()
    strides, pads = spread(n.integers("strides"), rank), n.integers("pads") or (0,) * (2 * rank)
    if n.shape(places) != shape or len(kernel) != rank or len(pads) != 2 * rank:
        raise ModelError(
            f"places of shape {n.shape(places)} and a kernel {kernel} do not fit data of {shape}"
        )
    check_window(kernel, strides, (), pads)
    ends = zip(shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True)
    inferred = tuple((e - 1) * s + k - before - behind for e, s, k, before, behind in ends)
    wanted = n.int_parameter(2) or (*shape[:2], *inferred)
    count = math.prod(shape)
    flat = n.reshape(n.cast(places, "int64"), (count,))
    zero = n.scalar(0, n.dtype(x))
    y = n.op("scatter", zero, flat, n.reshape(x, (count,)), axis=0, extent=math.prod(wanted))
    return n.reshape(y, wanted)


@importer("Col2Im")
def col2im(n: NodeContext) -> str:
    """[batch, channels * kernel, windows] added up at the elements that the windows see."""
    x, extents, kernel = n.input(0), n.required_ints(1), n.required_ints(2)
    batch, rows, windows = n.shape(x)
    rank, channels = len(extents), rows // math.prod(kernel)
    strides, dilations = (spread(n.integers(a), rank) for a in ("strides", "dilations"))
    pads = n.integers("pads") or (0,) * (2 * rank)
    whole = [e + pads[d] + pads[d + rank] for d, e in enumerate(extents)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    counts = [(w - r) // s + 1 for w, r, s in zip(whole, reach, strides, strict=True)]
    if math.prod(counts) != windows or channels * math.prod(kernel) != rows:
        raise ModelError(f"windows {kernel} of {extents} do not fit columns of {n.shape(x)}")
    check_window(kernel, strides, dilations, pads)
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
