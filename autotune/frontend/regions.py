"""Regions of images seen on a grid (RoiAlign). In: an image, and the regions' boxes. Out: gathers.

A region is cut into bins, and each is seen at some places between the elements of an image. Where
these are along one axis does not depend on the other: taps are found for each.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.frontend.assembly import Assembler
from autotune.frontend.grid import Edge, Tap, amount_like, linear_taps, sampled, weighted_row


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRegions:
    """Where regions lie, and how they are cut."""

    boxes: str
    """[regions, 4]: x and y of the first corner, then of the second one."""
    images: str
    """The image of each region, int64 [regions]."""
    bins: tuple[int, int]
    """Rows and columns."""
    each: int
    """At how many places along an axis a bin is seen."""
    scale: float = 1.0
    """Elements of the image in a unit of the boxes."""
    shift: float = 0.0
    """What is taken from corners: where the first element's middle lies."""
    widened: bool = False
    """Whether a region has at least the size of an element."""


def aligned(n: Assembler, x: str, regions: ImageRegions, *, largest: bool = False) -> str:
    """The mean of what is seen in each bin of x [N, C, H, W]: [regions, C, rows, columns]; or the
    largest of what the corners of the places add to it."""
    batch, channels, *extents = n.shape(x)
    rows = n.reshape(n.transpose(x, (0, 2, 3, 1)), (batch * math.prod(extents), channels))
    first = _first_rows(n, regions, math.prod(extents))
    taps = _taps(n, regions, extents)
    if largest:
        parts = [weighted_row(n, rows, first, c, extents) for c in itertools.product(*taps)]
        seen = functools.reduce(lambda a, b: n.op("max", a, b), parts)
    else:
        seen = sampled(n, rows, first, taps, extents)
    return _joined(n, seen, regions, "reduce_max" if largest else "reduce_mean")


def by_place(n: Assembler, x: str, regions: ImageRegions) -> str:
    """The same of channels of which every bin has its own: x [N, C * rows * columns, H, W] ->
    [regions, C, rows, columns]."""
    batch, channels, *extents = n.shape(x)
    count, (down, across) = math.prod(regions.bins), regions.bins
    kept = channels // count
    apart = n.transpose(n.reshape(x, (batch, kept, count, *extents)), (0, 3, 4, 2, 1))
    places = math.prod(extents) * count
    rows = n.reshape(apart, (batch * places, kept))
    own = np.arange(count, dtype=np.int64).reshape(down, across)
    own = own.repeat(regions.each, 0).repeat(regions.each, 1)[None]
    taps = [*_taps(n, regions, extents), [Tap(index=n.constant(own), weight=None)]]
    seen = sampled(n, rows, _first_rows(n, regions, places), taps, (*extents, count))
    return _joined(n, seen, regions, "reduce_mean")


def _first_rows(n: Assembler, regions: ImageRegions, places: int) -> str:
    """The row of the first element of each region's image: [regions, 1, 1]."""
    image = n.reshape(regions.images, (n.shape(regions.boxes)[0], 1, 1))
    return n.op("mul", image, n.scalar(places, "int64"))


def _joined(n: Assembler, seen: str, regions: ImageRegions, joined: str) -> str:
    """The places of each bin [regions, rows * each, columns * each, C] as one."""
    count, (down, across), each = n.shape(seen)[0], regions.bins, regions.each
    apart = n.reshape(seen, (count, down, each, across, each, n.shape(seen)[-1]))
    return n.transpose(n.op(joined, apart, axes=(2, 4), keepdims=False), (0, 3, 1, 2))


def _taps(n: Assembler, regions: ImageRegions, extents: Sequence[int]) -> list[list[Tap]]:
    return [_axis_taps(n, regions, axis, extents[axis]) for axis in (0, 1)]


def _axis_taps(n: Assembler, regions: ImageRegions, axis: int, extent: int) -> list[Tap]:
    """The elements around the places of all bins along an axis: [regions, bins * each], with a
    dimension of one for the other axis."""
    count, bins, each = n.shape(regions.boxes)[0], regions.bins[axis], regions.each
    start, end = (_edge(n, regions, 1 - axis + 2 * far) for far in (0, 1))
    size = n.op("sub", end, start)
    if regions.widened:
        size = n.op("max", size, n.like(1, size))
    n.made(bins, each)
    middles = (np.arange(bins * each) + 0.5) / (bins * each)
    along = n.op("mul", size, n.constant(middles[None], n.dtype(size)))
    shape = (count, bins * each, 1) if axis == 0 else (count, 1, bins * each)
    place = n.reshape(n.op("add", start, along), shape)
    zero, last = n.like(0, place), amount_like(n, extent - 1, place)
    near = n.op("ge", place, n.like(-1, place)), n.op("le", place, amount_like(n, extent, place))
    seen = n.cast(n.op("and", *near), n.dtype(place))
    within = n.op("min", n.op("max", place, zero), last)
    taps = linear_taps(n, within, Edge(extent=extent, padding="border", aligned=False))
    return [Tap(index=t.index, weight=n.op("mul", seen, t.weight or seen)) for t in taps]


def _edge(n: Assembler, regions: ImageRegions, column: int) -> str:
    """A coordinate of all regions, [regions, 1], in elements of the image."""
    boxes = regions.boxes
    count = n.shape(boxes)[0]
    given = n.op("slice", boxes, starts=(0, column), stops=(count, column + 1), steps=(1, 1))
    scaled = n.op("mul", given, n.like(regions.scale, given))
    return n.op("sub", scaled, n.like(regions.shift, scaled))
