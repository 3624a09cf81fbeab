"""ATen importers: elements picked from, and put at, computed places."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import UnsupportedOpError
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
    axis = n.axis("dim", n.rank(x))
    if n.has("src"):
        ranges = {d: range(e) for d, e in enumerate(n.shape(indices))}
        updates = select_ranges(n, n.as_made("src"), ranges)
    else:
        updates = n.expanded(n.as_made("value"), n.shape(indices))
    return _reduced(n, (x, indices, updates), axis)


@aten("index_reduce")
def index_reduce(n: AtenCall) -> str:
    """Rows joined to those that places along an axis name."""
    x, source = n.as_made("self"), n.as_made("source")
    if n.rank(x) == 0 or 0 in n.shape(source):
        n.refuse(f"rows of {n.shape(source)}")
    axis = n.axis("dim", n.rank(x))
    column = [n.shape(source)[d] if d == axis else 1 for d in range(n.rank(source))]
    places = n.expanded(n.reshape(n.value("index"), column), n.shape(source))
    return _reduced(n, (x, places, source), axis)


def _reduced(n: AtenCall, operands: tuple[str, str, str], axis: int) -> str:
    """(x, indices, updates) joined along an axis as the call's `reduce` says; without
    `include_self` what x has counts only where nothing is joined to it."""
    x, indices, updates = operands
    how, narrow = _how(n), n.made_dtype == "bool"
    alone = n.has("include_self") and not n.arg("include_self", True)
    if how == "none" or not (alone or how == "mean"):
        if not narrow or how == "none":
            return join_elements(n, operands, axis, how=how)
        # A sum of bools is whether one of them is true.
        whole = (n.cast(x, "uint8"), indices, n.cast(updates, "uint8"))
        joined = join_elements(n, whole, axis, how={"add": "max", "mul": "min"}.get(how, how))
        return n.cast(joined, "bool")
    if narrow:
        n.refuse("bools that are joined without those that are there")
    start, join = x, "add" if how == "mean" else how
    if alone:
        start = n.expanded(n.constant(_neutral(join, n.dtype(x)), n.dtype(x)), n.shape(x))
    joined = join_elements(n, (start, indices, updates), axis, how=join)
    none = n.expanded(n.constant(0 if alone else 1, "int64"), n.shape(x))
    one = n.expanded(n.constant(1, "int64"), n.shape(updates))
    count = join_elements(n, (none, indices, one), axis, how="add")
    met = n.op("gt", count, n.like(0, count))
    if how == "mean":
        count = n.cast(n.op("max", count, n.like(1, count)), n.dtype(x))
        if n.dtype(x).startswith("float"):
            joined = n.op("div", joined, count)
        else:  # toward minus infinity
            joined = n.op("div", n.op("sub", joined, n.op("mod", joined, count)), count)
    return n.op("where", met, joined, x) if alone else joined


def _neutral(how: str, dtype: str) -> float | int:
    """What an update takes the place of when it is joined to it."""
    if how in ("add", "mul"):
        return int(how == "mul")
    if dtype.startswith("float"):
        return -math.inf if how == "max" else math.inf
    limits = np.iinfo(dtype)
    return int(limits.min if how == "max" else limits.max)


def _how(n: AtenCall) -> str:
    if "scatter_add" in str(n.target):
        return "add"
    given = n.arg("reduce") if n.has("reduce") else None
    known = {None: "none", "sum": "add", "add": "add", "prod": "mul", "multiply": "mul",
             "amax": "max", "amin": "min", "mean": "mean"}  # fmt: skip
    if given not in known:
        raise UnsupportedOpError(f"reduce={given!r} is not supported")
    return known[given]


@aten("index_put", "_unsafe_index_put")
def index_put(n: AtenCall) -> str:
    """Indices broadcast, as `index` has them; a mask puts one number, or row, wherever it is."""
    x, given = n.value("self"), n.optionals("indices")
    how = "add" if n.arg("accumulate", False) else "none"
    values = n.as_made("values")
    if how == "add" and n.made_dtype == "bool":
        raise UnsupportedOpError("bools are not added up")
    places = [n.value_at(i) for i in given if i is not None]
    if len(places) == 1 and n.dtype(places[0]) == "bool" and how == "none":
        return _masked(n, x, places[0], values)
    if any(n.dtype(p) in ("bool", "uint8") for p in places):
        raise UnsupportedOpError("how much it takes depends on the values it is given")
    axes = [a for a, i in enumerate(given) if i is not None]
    rest = [a for a in range(n.rank(x)) if a not in axes]
    extents, kept = ([n.shape(x)[a] for a in chosen] for chosen in (axes, rest))
    flat = _flat(n, places, extents)
    count, width = math.prod(n.shape(flat)), math.prod(kept)
    if count == 0 or width == 0:
        return x
    # Where indices stand side by side, values have their dimensions in their place, else first.
    before = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    values = n.expanded(values, (*kept[:before], *n.shape(flat), *kept[before:]))
    inner = range(before, before + n.rank(flat))
    values = n.transpose(values, [*inner, *(d for d in range(n.rank(values)) if d not in inner)])
    table = n.reshape(n.transpose(x, [*axes, *rest]), (math.prod(extents), width))
    column, updates = n.reshape(flat, (count, 1)), n.reshape(values, (count, width))
    joined = n.reshape(join(n, table, column, updates, 0, how=how), (*extents, *kept))
    return n.transpose(joined, [[*axes, *rest].index(d) for d in range(n.rank(x))])


def _masked(n: AtenCall, x: str, mask: str, values: str) -> str:
    """The same values wherever the mask is."""
    rest = n.rank(x) - n.rank(mask)
    before = n.shape(values)[: max(n.rank(values) - rest, 0)]
    if any(extent != 1 for extent in before):
        raise UnsupportedOpError("how much it takes depends on the values it is given")
    mask = n.reshape(mask, (*n.shape(mask), *[1] * rest))
    return n.op("where", mask, n.reshape(values, n.shape(values)[len(before) :]), x)


MOST_COMPARED = 1 << 24
"""Elements times boundaries, beyond which a search is quicker."""


@aten("bucketize.Tensor", "searchsorted.Tensor")
def bucket(n: AtenCall) -> str:
    """How many boundaries lie below each element (or not above it, on the right side); nothing
    lies above a NaN."""
    bounds, x = (
        n.value("boundaries" if n.has("boundaries") else "sorted_sequence"),
        n.value("self"),
    )
    if n.has("sorter") and n.given("sorter") is not None:
        n.refuse("boundaries in another order")
    right = bool(n.arg("right", False)) or (n.has("side") and n.arg("side", "left") == "right")
    if math.prod(n.shape(x)) * n.shape(bounds)[-1] > MOST_COMPARED or 0 in n.shape(bounds):
        n.refuse(f"a search among {n.shape(bounds)[-1]} boundaries for {n.shape(x)}")
    if n.dtype(bounds) != n.dtype(x):
        n.refuse("boundaries of another type")
    many = n.rank(bounds) > 1
    apart = n.reshape(bounds, (*n.shape(bounds)[:-1], 1, n.shape(bounds)[-1])) if many else bounds
    beyond = n.op("gt" if right else "ge", apart, n.reshape(x, (*n.shape(x), 1)))
    below = n.cast(n.op("not", beyond), n.made_dtype)
    return n.op("reduce_sum", below, axes=(n.rank(x),), keepdims=False) if n.rank(x) else (
        n.reshape(n.op("reduce_sum", below, axes=(0,), keepdims=True), ())
    )  # fmt: skip


@aten("masked_scatter")
def masked_scatter(n: AtenCall) -> str:
    """Where the mask is, elements of another tensor, in order."""
    shape = n.made_shape
    x, mask = n.expanded(n.value("self"), shape), n.expanded(n.in_type("mask", "bool"), shape)
    source, count = n.as_made("source"), math.prod(shape)
    if count == 0 or 0 in n.shape(source):
        return x
    row = n.reshape(n.cast(mask, "int64"), (1, count, 1))
    place = n.op("scan", row, combine="sum", exclusive=1, reverse=0)
    flat = n.reshape(source, (math.prod(n.shape(source)),))
    picked = n.op("gather", flat, n.reshape(place, (count,)), axis=0)
    return n.op("where", mask, n.reshape(picked, shape), x)
