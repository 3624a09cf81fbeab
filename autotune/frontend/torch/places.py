"""ATen importers: elements picked from, and put at, computed places; the first in order."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.ordering import first
from autotune.frontend.places import elements, join, join_elements, positive
from autotune.frontend.torch.context import AtenCall, aten
from autotune.frontend.views import as_range, select_ranges


@aten("embedding")
def embedding(n: AtenCall) -> str:
    return picked(n, n.value("weight"), n.value("indices"), 0)


@aten("index_select")
def index_select(n: AtenCall) -> str:
    x, indices = n.value("self"), n.value("index")
    if n.rank(x) == 0:
        return x
    indices = n.reshape(indices, (math.prod(n.shape(indices)),))
    return picked(n, x, indices, n.axis("dim", n.rank(x)))


def picked(n: AtenCall, x: str, indices: str, axis: int) -> str:
    """Rows of an axis by computed places; constant ones in a run are a slice."""
    known, shape = n.known(indices), n.shape(x)
    if known is not None and known.size and n.known(x) is None:
        places = np.where(known < 0, known + shape[axis], known)
        if (run := as_range(places)) is not None:
            whole = (*shape[:axis], *known.shape, *shape[axis + 1 :])
            return n.reshape(select_ranges(n, x, {axis: run}), whole)
    if n.dtype(indices) not in ("int32", "int64"):
        indices = n.cast(indices, "int64")
    return n.op("gather", x, indices, axis=axis)


@aten("index", "_unsafe_index")
def index(n: AtenCall) -> str:
    """Indices broadcast; where they stand side by side their dimensions take the place of theirs,
    else they come first."""
    x, given = n.value("self"), n.optionals("indices")
    axes = [a for a, i in enumerate(given) if i is not None]
    places = [n.value_at(i) for i in given if i is not None]
    if any(n.dtype(p) in ("bool", "uint8") for p in places):
        raise UnsupportedOpError("how much it gives depends on the values it is given")
    if len(axes) == 1:
        return picked(n, x, places[0], axes[0])
    together = axes == list(range(axes[0], axes[-1] + 1))
    rest = [a for a in range(n.rank(x)) if a not in axes]
    order = [*axes, *rest]
    extents = [n.shape(x)[a] for a in axes]
    table = n.transpose(x, order)
    table = n.reshape(table, (math.prod(extents), *n.shape(table)[len(axes) :]))
    flat = _flat(n, places, extents)
    y = picked(n, table, flat, 0)
    if not together or axes[0] == 0:
        return y
    count, before = n.rank(flat), axes[0]
    moved = [*range(count, count + before), *range(count), *range(count + before, n.rank(y))]
    return n.transpose(y, moved)


def _flat(n: AtenCall, places: list[str], extents: list[int]) -> str:
    """Places of several coordinates in the flat tensor."""
    total = ""
    for place, extent, step in zip(places, extents, _steps(extents), strict=True):
        part = positive(n, place, extent)
        part = part if step == 1 else n.op("mul", part, n.constant(step, "int64"))
        total = n.op("add", total, part) if total else part
    return total


def _steps(extents: list[int]) -> list[int]:
    return [math.prod(extents[i + 1 :]) for i in range(len(extents))]


@aten("gather")
def gather(n: AtenCall) -> str:
    x, indices = n.value("self"), n.value("index")
    if n.rank(x) == 0 or n.rank(indices) == 0:
        return n.reshape(x, n.made_shape)
    if math.prod(n.shape(indices)) == 0:
        return n.expanded(n.like(0, x), n.made_shape)
    return elements(n, x, indices, n.axis("dim", n.rank(x)))


@aten("scatter.src", "scatter.value", "scatter.reduce", "scatter_add", "scatter_reduce")
def scatter(n: AtenCall) -> str:
    x, indices = n.as_made("self"), n.value("index")
    if n.rank(x) == 0 or math.prod(n.shape(indices)) == 0:
        raise UnsupportedOpError("scatters of nothing, or to one number, are not supported")
    if n.has("include_self") and not n.arg("include_self", True):
        raise UnsupportedOpError("include_self=False is not supported")
    axis = n.axis("dim", n.rank(x))
    if n.has("src"):
        ranges = {d: range(e) for d, e in enumerate(n.shape(indices))}
        updates = select_ranges(n, n.as_made("src"), ranges)
    else:
        updates = n.expanded(n.as_made("value"), n.shape(indices))
    return join_elements(n, (x, indices, updates), axis, how=_how(n))


def _how(n: AtenCall) -> str:
    if "scatter_add" in str(n.target):
        return "add"
    given = n.arg("reduce") if n.has("reduce") else None
    known = {None: "none", "sum": "add", "add": "add", "prod": "mul", "multiply": "mul",
             "amax": "max", "amin": "min"}  # fmt: skip
    if given not in known:
        raise UnsupportedOpError(f"reduce={given!r} is not supported")
    return known[given]


@aten("index_put", "_unsafe_index_put")
def index_put(n: AtenCall) -> str:
    """The first dimensions are put at; a mask puts one number."""
    x, given = n.value("self"), n.optionals("indices")
    how = "add" if n.arg("accumulate", False) else "none"
    values = n.as_made("values")
    places = [n.value_at(i) for i in given if i is not None]
    if len(places) == 1 and n.dtype(places[0]) == "bool" and how == "none":
        return _masked(n, x, places[0], values)
    if any(n.dtype(p) == "bool" for p in places) or None in given[: len(places)]:
        raise UnsupportedOpError("these indices are not supported")
    extents = list(n.shape(x)[: len(places)])
    rest = n.shape(x)[len(places) :]
    flat = _flat(n, places, extents)
    count, width = math.prod(n.shape(flat)), math.prod(rest)
    updates = n.reshape(n.expanded(values, (*n.shape(flat), *rest)), (count, width))
    table = n.reshape(x, (math.prod(extents), width))
    column = n.reshape(flat, (count, 1))
    if count == 0 or width == 0:
        return x
    return n.reshape(join(n, table, column, updates, 0, how=how), n.shape(x))


def _masked(n: AtenCall, x: str, mask: str, values: str) -> str:
    if math.prod(n.shape(values)) != 1:
        raise UnsupportedOpError("how much it takes depends on the values it is given")
    mask = n.reshape(mask, (*n.shape(mask), *[1] * (n.rank(x) - n.rank(mask))))
    return n.op("where", mask, n.reshape(values, ()), x)


@aten("topk")
def topk(n: AtenCall) -> tuple[str, str]:
    x, count = n.value("self"), n.integer("k")
    if n.rank(x) == 0 or count == 0 or n.dtype(x) == "bool":
        raise UnsupportedOpError(f"the first {count} of {n.shape(x)} are not supported")
    axis = n.axis("dim", n.rank(x), -1)
    return first(n, x, count, axis, largest=bool(n.arg("largest", True)))


@aten("sort")
def sort(n: AtenCall) -> tuple[str, str]:
    x = n.value("self")
    if n.rank(x) == 0 or 0 in n.shape(x) or n.dtype(x) == "bool":
        raise UnsupportedOpError(f"elements of {n.shape(x)} are not sorted")
    axis = n.axis("dim", n.rank(x), -1)
    return first(n, x, n.shape(x)[axis], axis, largest=bool(n.arg("descending", False)))
