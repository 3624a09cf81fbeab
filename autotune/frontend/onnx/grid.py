"""ONNX importers: GridSample, elements between those of an image or a volume at computed places.

Every corner around a place is a gather of rows of channels, times the corner's weight.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer

MODES = {
    "linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic",
    "bicubic": "cubic",
}  # fmt: skip
PADDINGS = ("zeros", "border", "reflection")
CUBIC_A = -0.75
Kernel = Callable[[NodeContext, str], list[tuple[int, str]]]
"""(what a place is behind the element before it) -> offsets from that element, and weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """An element beside a place, along one axis: its index and weight (None: one), of one
    shape."""

    index: str
    weight: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """What lies outside an axis; with `aligned`, -1 and 1 are the middles of its outer elements,
    else their outer edges."""

    extent: int
    padding: str
    aligned: bool


@importer("AffineGrid")
def affine_grid(n: NodeContext) -> str:
    """Places [batch, ...size, rank] that matrices [batch, rank, rank + 1] map an even grid to."""
    theta, (batch, _, *size) = n.input(0), n.required_ints(1)
    rank, aligned = len(size), bool(n.integer("align_corners", 0))
    n.made(*size, rank + 1)
    axes = []
    for extent in size:
        middle, places = (extent - 1) / 2, np.arange(extent)
        axes.append((places - middle) / (max(middle, 0.5) if aligned else extent / 2))
    columns = np.meshgrid(*axes, indexing="ij")
    grid = np.stack([*reversed(columns), np.ones(size)], -1)
    points = n.constant(grid.reshape(-1, rank + 1), n.dtype(theta))
    y = n.op("matmul", points, theta, transpose_b=True)
    return n.reshape(y, (batch, *size, rank))


@importer("GridSample")
def grid_sample(n: NodeContext) -> str:
    x, grid = n.input(0), n.input(1)
    batch, channels, *extents = n.shape(x)
    batches, *size, rank = n.shape(grid)
    if (batches, len(size), rank) != (batch, len(extents), len(extents)):
        raise ModelError(f"a grid of shape {n.shape(grid)} does not fit data of {n.shape(x)}")
    last = n.transpose(x, (0, *range(2, rank + 2), 1))
    rows = n.reshape(last, (batch * math.prod(extents), channels))
    taps = [_axis_taps(n, grid, axis, extent) for axis, extent in enumerate(extents)]
    points = n.shape(taps[0][0].index)[0]
    starts = [image * math.prod(extents) for image in range(batch)]
    first = n.constant([s for s in starts for _ in range(points // batch)], "int64")
    y = n.reshape(sampled(n, rows, first, taps, extents), (batch, *size, channels))
    return n.transpose(y, (0, rank + 1, *range(1, rank + 1)))


def sampled(
    n: NodeContext, rows: str, first: str, taps: Sequence[Sequence[Tap]], extents: Sequence[int]
) -> str:
    """Between the rows [P, C] of images: [..., C], where what the taps of every axis and the row
    of an image's first element (int64) broadcast to is [...]."""
    corners = (weighted_row(n, rows, first, c, extents) for c in itertools.product(*taps))
    return functools.reduce(lambda a, b: n.op("add", a, b), corners)


def weighted_row(
    n: NodeContext, rows: str, first: str, corner: Sequence[Tap], extents: Sequence[int]
) -> str:
    """The rows at one element of each axis, weighted."""
    place, weight = first, ""
    for axis, tap in enumerate(corner):
        index = n.cast(tap.index, "int64")
        stride = math.prod(extents[axis + 1 :])
        place = n.op("add", place, n.op("mul", index, n.constant(stride, "int64")))
        if tap.weight is not None:
            weight = n.op("mul", weight, tap.weight) if weight else tap.weight
    picked = n.op("gather", rows, place, axis=0)
    if not weight:
        return picked
    return n.op("mul", picked, n.reshape(weight, (*n.shape(weight), 1)))


def _axis_taps(n: NodeContext, grid: str, axis: int, extent: int) -> list[Tap]:
    """The elements along one axis; a grid's last dimension has the last axis first."""
    mode = MODES.get(n.text("mode", "linear"))
    padding = n.text("padding_mode", "zeros")
    edge = Edge(extent=extent, padding=padding, aligned=bool(n.integer("align_corners", 0)))
    if mode is None or padding not in PADDINGS:
        raise UnsupportedOpError(
            f"mode must be {', '.join(MODES)} and padding_mode {', '.join(PADDINGS)}; got "
            f"{n.text('mode', 'linear')!r} and {padding!r}"
        )
    shape = n.shape(grid)
    rank = shape[-1]
    column = n.op(
        "slice", grid, starts=(*[0] * (rank + 1), rank - 1 - axis),
        stops=(*shape[:-1], rank - axis), steps=(1,) * len(shape),
    )  # fmt: skip
    flat = n.reshape(column, (math.prod(shape[:-1]),))
    half = (extent - 1) / 2
    scaled = n.op("mul", flat, n.like(half if edge.aligned else extent / 2, flat))
    place = n.op("add", scaled, n.like(half, flat))
    if mode == "nearest":
        return [_padded(n, n.op("round", place), None, edge)]
    return _taps(n, place, edge, _linear if mode == "linear" else _cubic)


def linear_taps(n: NodeContext, place: str, edge: Edge) -> list[Tap]:
    """The two elements of an axis around places on it, which count its elements."""
    return _taps(n, place, edge, _linear)


def _taps(n: NodeContext, place: str, edge: Edge, kernel: Kernel) -> list[Tap]:
    low = n.op("floor", place)
    weights = kernel(n, n.op("sub", place, low))
    return [
        _padded(n, n.op("add", low, n.like(offset, low)), weight, edge)
        for offset, weight in weights
    ]


def _padded(n: NodeContext, index: str, weight: str | None, edge: Edge) -> Tap:
    """An element that may lie outside: of weight zero, or one inside that stands for it."""
    if edge.padding == "reflection":
        index = _reflected(n, index, edge)
    clipped = n.op("clip", index, min=0.0, max=float(edge.extent - 1))
    if edge.padding == "zeros":
        inside = n.cast(n.op("eq", index, clipped), n.dtype(index))
        weight = inside if weight is None else n.op("mul", weight, inside)
    return Tap(index=clipped, weight=weight)


def _reflected(n: NodeContext, index: str, edge: Edge) -> str:
    """Mirrored at the outer elements' middles where aligned, else at their outer edges."""
    period = 2 * (edge.extent - 1) if edge.aligned else 2 * edge.extent
    if period == 0:
        return index
    turns = n.op("floor", n.op("div", index, n.like(period, index)))
    within = n.op("sub", index, n.op("mul", turns, n.like(period, index)))
    mirrored = n.op("sub", n.like(period if edge.aligned else period - 1, index), within)
    return n.op("min", within, mirrored)


def _linear(n: NodeContext, part: str) -> list[tuple[int, str]]:
    return [(0, n.op("sub", n.like(1, part), part)), (1, part)]


def _cubic(n: NodeContext, part: str) -> list[tuple[int, str]]:
    """Keys' kernel at the distances 1 + t, t, 1 - t and 2 - t, by Horner's rule."""
    a = CUBIC_A
    inner, outer = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    one, two = n.like(1, part), n.like(2, part)
    distances = (
        (-1, n.op("add", part, one), outer), (0, part, inner),
        (1, n.op("sub", one, part), inner), (2, n.op("sub", two, part), outer),
    )  # fmt: skip
    return [(offset, _polynomial(n, t, factors)) for offset, t, factors in distances]


def _polynomial(n: NodeContext, t: str, factors: Sequence[float]) -> str:
    """Factors of the highest power first."""
    total = n.like(factors[0], t)
    for factor in factors[1:]:
        total = n.op("add", n.op("mul", total, t), n.like(factor, t))
    return total
