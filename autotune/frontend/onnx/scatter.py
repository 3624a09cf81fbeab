"""ONNX importers: elements put at places. In: nodes. Out: gathers, or scatters.

Where the places are constant and nothing is joined, the result is picked from both the data and
the updates. Else the updates join the data one after the other.
"""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.places import join, join_elements, row_places, rows
from autotune.frontend.views import positive_axis


@importer("ScatterND")
def scatter_nd(n: NodeContext) -> str:
    x, indices, updates = n.input(0), n.input(1), n.input(2)
    shape = n.shape(x)
    table, depth = rows(n, x, n.shape(indices))
    places = row_places(n, indices, shape[:depth])
    length, width = n.shape(places)[0], n.shape(table)[1]
    updates = n.reshape(updates, (length, width))
    return n.reshape(
        join(n, table, n.reshape(places, (length, 1)), updates, 0, how=_how(n)), shape
    )


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
    return join_elements(n, (x, indices, updates), axis, how=_how(n))


def _how(n: NodeContext) -> str:
    """How updates join what is there."""
    return n.text("reduction", "none")
