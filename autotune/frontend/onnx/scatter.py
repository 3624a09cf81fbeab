"""ONNX importers: elements put at places. In: nodes. Out: gathers, or scatters.

Where the places are constant and nothing is joined, the result is picked from both the data and
the updates. Else the updates join the data one after the other.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.norm import positive_axis
from autotune.frontend.onnx.places import flat_places, row_places, rows
from autotune.ops.scatter import COMBINE
from autotune.types import Array


@importer("ScatterND")
def scatter_nd(n: NodeContext) -> str:
    x, indices, updates = n.input(0), n.input(1), n.input(2)
    shape = n.shape(x)
    table, depth = rows(n, x, n.shape(indices))
    places = row_places(n, indices, shape[:depth])
    length, width = n.shape(places)[0], n.shape(table)[1]
    updates = n.reshape(updates, (length, width))
    return n.reshape(_join(n, table, n.reshape(places, (length, 1)), updates, 0), shape)


@importer("TensorScatter")
def tensor_scatter(n: NodeContext) -> str:
    """A cache with new elements along an axis, from the place on that is given for each batch."""
    past, update, first = n.input(0), n.input(1), n.optional(2)
    rank, mode = n.rank(past), n.text("mode", "linear")
    axis = positive_axis(n.integer("axis", -2), rank)
    if mode not in ("linear", "circular") or axis == 0:
        raise UnsupportedOpError(f"mode {mode!r} along axis {axis}, expected linear or circular")
    batch, extent, count = n.shape(past)[0], n.shape(past)[axis], n.shape(update)[axis]
    begin = n.constant([0] * batch, "int64") if first is None else n.cast(first, "int64")
    begin = n.reshape(begin, (batch, *[1] * (rank - 1)))
    along = np.arange(count).reshape(-1, *[1] * (rank - 1 - axis))
    places = n.op("add", begin, n.constant(along[(None,) * axis], "int64"))
    if mode == "circular":
        places = n.op("mod", places, n.constant(extent, "int64"))
    return n.op("scatter", past, places, update, axis=axis)


@importer("ScatterElements", "Scatter")
def scatter_elements(n: NodeContext) -> str:
    x, indices, updates = n.input(0), n.input(1), n.input(2)
    shape = n.shape(x)
    axis = positive_axis(n.integer("axis", 0), len(shape))
    if n.rank(indices) != len(shape) or n.shape(indices) != n.shape(updates):
        raise ModelError(
            f"indices of shape {n.shape(indices)} and updates of shape {n.shape(updates)} do not "
            f"name places in {shape}"
        )
    others = [d for d in range(len(shape)) if d != axis]
    put = n.text("reduction", "none") == "none" and n.evaluated(indices) is not None
    if not put and all(n.shape(indices)[d] == shape[d] for d in others):
        return _join(n, x, _unspread(n, indices, axis), updates, axis)
    places = flat_places(n, indices, shape, axis)
    count, flat = math.prod(shape), (math.prod(n.shape(updates)), 1)
    column, places, updates = (
        n.reshape(v, s) for v, s in ((x, (count, 1)), (places, flat), (updates, flat))
    )
    return n.reshape(_join(n, column, places, updates, 0), shape)


def _unspread(n: NodeContext, places: str, axis: int) -> str:
    """Places as they were before they were repeated for every element of a row."""
    known = n.evaluated(places)
    if known is not None:
        for d, extent in enumerate(known.shape):
            first = known.take([0], axis=d) if extent else known
            known = first if np.all(known == first) and axis != d else known
        return n.constant(known)
    made = n.builder.maker(places)
    if made is None or made.op != "expand":
        return places
    source, rank = made.inputs[0], n.rank(places)
    return n.reshape(source, (*[1] * (rank - n.rank(source)), *n.shape(source)))


def _join(n: NodeContext, x: str, places: str, updates: str, axis: int) -> str:
    """x with updates at places along an axis, joined as the node says."""
    how = n.text("reduction", "none")
    if how not in COMBINE:
        raise UnsupportedOpError(f"reduction {how!r} is not known; known are {', '.join(COMBINE)}")
    if math.prod(n.shape(updates)) == 0:
        return x
    known = n.evaluated(places)
    if known is not None:
        extent = n.shape(x)[axis]
        known = np.where(known < 0, known + extent, known)
        if not 0 <= known.min() <= known.max() < extent:
            raise ModelError(f"indices reach outside {extent} places")
        if how == "none":
            return _put(n, x, known.ravel(), updates)
        places = n.constant(known, "int64")
    start = n.known(x)
    if start is not None and start.size > 1 and np.all(start == start.flat[0]):
        extent = n.shape(x)[axis]
        x = n.scalar(start.flat[0].item(), n.dtype(x))
        return n.op("scatter", x, places, updates, axis=axis, extent=extent, reduction=how)
    return n.op("scatter", x, places, updates, axis=axis, reduction=how)


def _put(n: NodeContext, table: str, places: Array, updates: str) -> str:
    """Rows with those at constant places replaced: picked from the rows and the updates."""
    count = n.shape(table)[0]
    source = np.arange(count)
    source[places] = count + np.arange(places.size)  # of equal places the last one stays
    if np.array_equal(source, count + np.arange(count)):
        return updates
    both = n.op("concat", table, updates, axis=0)
    return n.op("gather", both, n.constant(source, "int64"), axis=0)
