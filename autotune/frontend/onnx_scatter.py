"""ONNX importers: elements put at places. In: nodes. Out: gathers, or reductions.

Where the places are constant, the result is picked from both the data and the updates. Where they
are computed, every element looks through all updates that may be meant for it: work that grows
with both, so it is for few of them.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx_context import NodeContext, importer
from autotune.frontend.onnx_norm import positive_axis
from autotune.frontend.onnx_places import elements, flat_places, positive, row_places, rows
from autotune.types import Array

MOST_PAIRS = 1 << 28
"""Of elements and updates that may be meant for them."""
JOINS = {
    "add": ("reduce_sum", "add", 0.0), "mul": ("reduce_prod", "mul", 1.0),
    "max": ("reduce_max", "max", -math.inf), "min": ("reduce_min", "min", math.inf),
}  # fmt: skip
"""Of a reduction: what joins updates, what joins these with the data, what changes nothing."""


@importer("ScatterND")
def scatter_nd(n: NodeContext) -> str:
    x, indices, updates = n.input(0), n.input(1), n.input(2)
    shape, how = n.shape(x), n.text("reduction", "none")
    table, depth = rows(n, x, n.shape(indices))
    places = row_places(n, indices, shape[:depth])
    updates = n.reshape(updates, (n.shape(places)[0], n.shape(table)[1]))
    known = n.evaluated(places)
    if known is not None and how == "none":
        return n.reshape(_put(n, table, known, updates), shape)
    column = n.reshape(places, (*n.shape(places), 1))
    return n.reshape(_look(n, table, column, updates, how), shape)


@importer("ScatterElements", "Scatter")
def scatter_elements(n: NodeContext) -> str:
    x, indices, updates = n.input(0), n.input(1), n.input(2)
    shape, how = n.shape(x), n.text("reduction", "none")
    axis = positive_axis(n.integer("axis", 0), len(shape))
    known = n.evaluated(flat_places(n, indices, shape, axis))
    if known is not None and how == "none":
        column = n.reshape(x, (math.prod(shape), 1))
        flat = n.reshape(updates, (known.size, 1))
        return n.reshape(_put(n, column, known.ravel(), flat), shape)
    others = [d for d in range(len(shape)) if d != axis]
    if any(n.shape(indices)[d] != shape[d] for d in others):
        raise UnsupportedOpError(
            f"computed indices of shape {n.shape(indices)} must reach over all of {shape} but "
            f"axis {axis}; export with fixed positions"
        )
    order = [axis, *others]
    back = [order.index(d) for d in range(len(shape))]
    places = positive(n, indices, shape[axis])
    x, places, updates = (n.transpose(v, order) for v in (x, places, updates))
    moved, width = n.shape(x), math.prod(shape[d] for d in others)
    table, places, updates = (n.reshape(v, (n.shape(v)[0], width)) for v in (x, places, updates))
    return n.transpose(n.reshape(_look(n, table, places, updates, how), moved), back)


def _put(n: NodeContext, table: str, places: Array, updates: str) -> str:
    """Rows with those at constant `places` replaced: picked from the rows and the updates."""
    count = n.shape(table)[0]
    if places.size and not 0 <= places.min() <= places.max() < count:
        raise ModelError(f"indices reach outside {count} places")
    source = np.arange(count)
    source[places] = count + np.arange(places.size)  # of equal places the last one stays
    if np.array_equal(source, count + np.arange(count)):
        return updates
    both = n.op("concat", table, updates, axis=0)
    return n.op("gather", both, n.constant(source, "int64"), axis=0)


def _look(n: NodeContext, table: str, places: str, updates: str, how: str) -> str:
    """Rows joined with those updates whose row of `places` (as wide, or one column) names them."""
    if how != "none" and how not in JOINS:
        raise UnsupportedOpError(f"reduction {how!r} is not known; known are {', '.join(JOINS)}")
    count, width = n.shape(table)
    length = n.shape(places)[0]
    if count * length * width > MOST_PAIRS:
        raise UnsupportedOpError(
            f"{length} updates at computed places of {count} rows of {width} take too many "
            f"comparisons (at most {MOST_PAIRS}); export with fixed positions, or in parts"
        )
    given = n.reshape(n.cast(places, "int32"), (1, *n.shape(places)))
    hit = n.op("eq", n.constant(np.arange(count).reshape(count, 1, 1), "int32"), given)
    if how == "none":
        return _last(n, table, hit, updates)
    reduce, join, nothing = JOINS[how]
    spread = n.reshape(updates, (1, length, width))
    meant = n.op("where", hit, spread, n.like(_finite(nothing, n.dtype(spread)), spread))
    return n.op(join, table, n.op(reduce, meant, axes=(1,), keepdims=False))


def _finite(value: float, dtype: str) -> float | int:
    """An infinity as the type's largest or smallest number, where it has no infinities."""
    if math.isfinite(value) or dtype.startswith("float"):
        return value
    limits = np.iinfo(dtype)
    return int(limits.max if value > 0 else limits.min)


def _last(n: NodeContext, table: str, hit: str, updates: str) -> str:
    """Rows, or the last of the updates that hit them."""
    count, length = n.shape(table)[0], n.shape(updates)[0]
    number = n.constant(np.arange(1, length + 1).reshape(1, length, 1), "float32")
    which = n.op("where", hit, number, n.constant(0.0, "float32"))
    which = n.op("reduce_max", which, axes=(1,), keepdims=False)
    first = n.op("max", n.op("sub", which, n.constant(1.0, "float32")), n.like(0.0, which))
    picks = n.cast(first, "int64")
    if n.shape(picks)[1] == 1:
        taken = n.op("gather", updates, n.reshape(picks, (count,)), axis=0)
    else:
        taken = elements(n, updates, picks, 0)
    return n.op("where", n.op("gt", which, n.like(0.0, which)), taken, table)
