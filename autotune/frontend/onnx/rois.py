"""ONNX importers: RoiAlign, regions of images seen on a grid. In: a node. Out: gathers.

A region is cut into bins, and each is seen at some places between the elements of an image. Where
these are along one axis does not depend on the other: taps are found for each.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.grid import Edge, Tap, linear_taps, sampled, weighted_row
from autotune.frontend.onnx.context import NodeContext, importer

COORDINATES = {"half_pixel": 0.5, "output_half_pixel": 0.0}
"""What is taken from corners of regions: where the first element's middle lies."""


@importer("RoiAlign")
def roi_align(n: NodeContext) -> str:
    """[regions, channels, rows, columns] of bins."""
    x, regions = n.input(0), n.input(1)
    batch, channels, *extents = n.shape(x)
    count, (each, mode) = n.shape(regions)[0], _how(n)
    bins = [n.integer("output_height", 1), n.integer("output_width", 1)]
    taps = [_axis_taps(n, axis, extents[axis], bins[axis], each) for axis in (0, 1)]
    rows = n.reshape(n.transpose(x, (0, 2, 3, 1)), (batch * math.prod(extents), channels))
    image = n.reshape(n.cast(n.input(2), "int64"), (count, 1, 1))
    first = n.op("mul", image, n.constant(math.prod(extents), "int64"))
    if mode == "avg":
        seen = sampled(n, rows, first, taps, extents)
    else:
        # The standard takes the largest of what corners add, not of their sums.
        parts = [weighted_row(n, rows, first, c, extents) for c in itertools.product(*taps)]
        seen = functools.reduce(lambda a, b: n.op("max", a, b), parts)
    apart = n.reshape(seen, (count, bins[0], each, bins[1], each, channels))
    joined = "reduce_mean" if mode == "avg" else "reduce_max"
    return n.transpose(n.op(joined, apart, axes=(2, 4), keepdims=False), (0, 3, 1, 2))


def _how(n: NodeContext) -> tuple[int, str]:
    """At how many places along an axis a bin is seen, and what is taken of them."""
    each, mode = n.integer("sampling_ratio", 0), n.text("mode", "avg")
    if each < 1:
        raise UnsupportedOpError(
            "sampling_ratio 0 looks at as many places as a region has elements, which only a run "
            "knows; export the model with sampling_ratio=2"
        )
    if mode not in ("avg", "max"):
        raise UnsupportedOpError(f"mode must be avg or max, got {mode!r}")
    return each, mode


def _axis_taps(n: NodeContext, axis: int, extent: int, bins: int, each: int) -> list[Tap]:
    """The elements around the places of all bins along an axis: [regions, bins * each], with a
    dimension of one for the other axis."""
    count = n.shape(n.input(1))[0]
    coordinate = n.text("coordinate_transformation_mode", _default_coordinate(n.opset))
    if coordinate not in COORDINATES:
        raise UnsupportedOpError(
            f"coordinate_transformation_mode must be one of {', '.join(COORDINATES)}, got "
            f"{coordinate!r}"
        )
    start, end = (_edge(n, 1 - axis + 2 * far, COORDINATES[coordinate]) for far in (0, 1))
    size = n.op("sub", end, start)
    if coordinate == "output_half_pixel":
        size = n.op("max", size, n.like(1, size))
    n.made(bins, each)
    middles = (np.arange(bins * each) + 0.5) / (bins * each)
    along = n.op("mul", size, n.constant(middles[None], n.dtype(size)))
    shape = (count, bins * each, 1) if axis == 0 else (count, 1, bins * each)
    place = n.reshape(n.op("add", start, along), shape)
    near = n.op("ge", place, n.like(-1, place)), n.op("le", place, n.like(extent, place))
    seen = n.cast(n.op("and", *near), n.dtype(place))
    within = n.op("clip", place, min=0.0, max=float(extent - 1))
    taps = linear_taps(n, within, Edge(extent=extent, padding="border", aligned=False))
    return [Tap(index=t.index, weight=n.op("mul", seen, t.weight or seen)) for t in taps]


def _edge(n: NodeContext, column: int, taken: float) -> str:
    """A coordinate of all regions, [regions, 1], in elements of the image."""
    regions = n.input(1)
    count = n.shape(regions)[0]
    given = n.op("slice", regions, starts=(0, column), stops=(count, column + 1), steps=(1, 1))
    scaled = n.op("mul", given, n.like(n.number("spatial_scale", 1.0), given))
    return n.op("sub", scaled, n.like(taken, scaled))


def _default_coordinate(opset: int) -> str:
    return "half_pixel" if opset >= 16 else "output_half_pixel"
