"""Elements between those of an image or a volume at computed places. In: values of a graph being
built. Out: gathers.

Every corner around a place is a gather of rows of channels, times the corner's weight.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import ModelError
from autotune.frontend.assembly import Assembler
from autotune.frontend.views import counted_up
from autotune.sizes import is_size, surely_at_most

PADDINGS = ("zeros", "border", "reflection")
CUBIC_A = -0.75
"""The cubic convolution's coefficient, as PyTorch has it."""
Kernel = Callable[[Assembler, str], list[tuple[int, str]]]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a grid is read; see `Edge`."""

    mode: str
    """linear, nearest or cubic."""
    padding: str
    aligned: bool


def grid_sampled(n: Assembler, x: str, grid: str, how: Sampling) -> str:
    """x [N, C, *extents] seen at the places of a grid [N, *size, rank], which has the last axis
    first: [N, C, *size]. Raises ModelError."""
    batch, channels, *extents = n.shape(x)
    batches, *size, rank = n.shape(grid)
    if (batches, len(size), rank) != (batch, len(extents), len(extents)):
        raise ModelError(f"a grid of shape {n.shape(grid)} does not fit data of {n.shape(x)}")
    last = n.transpose(x, (0, *range(2, rank + 2), 1))
    rows = n.reshape(last, (batch * math.prod(extents), channels))
    taps = [_axis_taps(n, grid, axis, extent, how) for axis, extent in enumerate(extents)]
    images = n.op("mul", counted_up(n, 0, batch), n.scalar(math.prod(extents), "int64"))
    first = n.op("expand", n.reshape(images, (batch, 1)), shape=(batch, math.prod(size)))
    first = n.reshape(first, (batch * math.prod(size),))
    y = n.reshape(sampled(n, rows, first, taps, extents), (batch, *size, channels))
    return n.transpose(y, (0, rank + 1, *range(1, rank + 1)))


def sampled(
    n: Assembler, rows: str, first: str, taps: Sequence[Sequence[Tap]], extents: Sequence[int]
) -> str:
    """Between the rows [P, C] of images: [..., C], where what the taps of every axis and the row
    of an image's first element (int64) broadcast to is [...]."""
    corners = (weighted_row(n, rows, first, c, extents) for c in itertools.product(*taps))
    return functools.reduce(lambda a, b: n.op("add", a, b), corners)


def weighted_row(
    n: Assembler, rows: str, first: str, corner: Sequence[Tap], extents: Sequence[int]
) -> str:
    """The rows at one element of each axis, weighted."""
    place, weight = first, ""
    for axis, tap in enumerate(corner):
        index = n.cast(tap.index, "int64")
        stride = math.prod(extents[axis + 1 :])
        place = n.op("add", place, n.op("mul", index, n.scalar(stride, "int64")))
        if tap.weight is not None:
            weight = n.op("mul", weight, tap.weight) if weight else tap.weight
    picked = n.op("gather", rows, place, axis=0)
    if not weight:
        return picked
    return n.op("mul", picked, n.reshape(weight, (*n.shape(weight), 1)))


def _axis_taps(n: Assembler, grid: str, axis: int, extent: int, how: Sampling) -> list[Tap]:
    """The elements along one axis."""
    edge = Edge(extent=extent, padding=how.padding, aligned=how.aligned)
    shape = n.shape(grid)
    rank = shape[-1]
    column = n.op(
        "slice", grid, starts=(*[0] * (rank + 1), rank - 1 - axis),
        stops=(*shape[:-1], rank - axis), steps=(1,) * len(shape),
    )  # fmt: skip
    flat = n.reshape(column, (math.prod(shape[:-1]),))
    half = _halves(n, extent - 1, flat)
    scaled = n.op("mul", flat, half if edge.aligned else _halves(n, extent, flat))
    place = n.op("add", scaled, half)
    if how.mode == "nearest":
        return [_padded(n, n.op("round", place), None, edge)]
    return _taps(n, place, edge, _linear if how.mode == "linear" else _cubic)


def _halves(n: Assembler, extent: int, other: str) -> str:
    """Half of a number or a size, of another value's type."""
    if not is_size(extent):
        return n.like(extent / 2, other)
    return n.op("mul", amount_like(n, extent, other), n.like(0.5, other))


def amount_like(n: Assembler, amount: int, other: str) -> str:
    """A number, or a size as one, of another value's type."""
    if not is_size(amount):
        return n.like(amount, other)
    return n.cast(n.scalar(amount, "int64"), n.dtype(other))


def linear_taps(n: Assembler, place: str, edge: Edge) -> list[Tap]:
    """The two elements of an axis around places on it, which count its elements."""
    return _taps(n, place, edge, _linear)


def _taps(n: Assembler, place: str, edge: Edge, kernel: Kernel) -> list[Tap]:
    low = n.op("floor", place)
    weights = kernel(n, n.op("sub", place, low))
    return [
        _padded(n, n.op("add", low, n.like(offset, low)), weight, edge)
        for offset, weight in weights
    ]


def _padded(n: Assembler, index: str, weight: str | None, edge: Edge) -> Tap:
    """An element that may lie outside: of weight zero, or one inside that stands for it."""
    if edge.padding == "reflection":
        index = _reflected(n, index, edge)
    if is_size(edge.extent):
        low = n.op("max", index, n.like(0, index))
        clipped = n.op("min", low, amount_like(n, edge.extent - 1, index))
    else:
        clipped = n.op("clip", index, min=0.0, max=float(edge.extent - 1))
    if edge.padding == "zeros":
        inside = n.cast(n.op("eq", index, clipped), n.dtype(index))
        weight = inside if weight is None else n.op("mul", weight, inside)
    return Tap(index=clipped, weight=weight)


def _reflected(n: Assembler, index: str, edge: Edge) -> str:
    """Mirrored at the outer elements' middles where aligned, else at their outer edges."""
    period = 2 * (edge.extent - 1) if edge.aligned else 2 * edge.extent
    if period == 0:
        return index
    whole = amount_like(n, period, index)
    if not surely_at_most(1, period):  # a size may be that of a single element, the only place
        whole = n.op("max", whole, n.like(1, index))
    turns = n.op("floor", n.op("div", index, whole))
    within = n.op("sub", index, n.op("mul", turns, whole))
    mirrored = amount_like(n, period if edge.aligned else period - 1, index)
    mirrored = n.op("sub", mirrored, within)
    return n.op("min", within, mirrored)


def _linear(n: Assembler, part: str) -> list[tuple[int, str]]:
    return [(0, n.op("sub", n.like(1, part), part)), (1, part)]


def _cubic(n: Assembler, part: str) -> list[tuple[int, str]]:
    """Keys' kernel at the distances 1 + t, t, 1 - t and 2 - t, by Horner's rule."""
    a = CUBIC_A
    inner, outer = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    one, two = n.like(1, part), n.like(2, part)
    distances = (
        (-1, n.op("add", part, one), outer), (0, part, inner),
        (1, n.op("sub", one, part), inner), (2, n.op("sub", two, part), outer),
    )  # fmt: skip
    return [(offset, _polynomial(n, t, factors)) for offset, t, factors in distances]


def _polynomial(n: Assembler, t: str, factors: Sequence[float]) -> str:
    """Factors of the highest power first."""
    total = n.like(factors[0], t)
    for factor in factors[1:]:
        total = n.op("add", n.op("mul", total, t), n.like(factor, t))
    return total
