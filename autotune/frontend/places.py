"""Elements picked from, and put at, computed places. In: values of a graph being built. Out:
gathers and scatters.

Places of several dimensions become places in the flat tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.ops.scatter import COMBINE
from autotune.types import Array, dense_strides


def elements(n: Assembler, x: str, indices: str, axis: int) -> str:
    """x at the places that have `indices` as coordinate along `axis`, and their own elsewhere."""
    if n.rank(indices) != n.rank(x):
        raise ModelError(
            f"indices have shape {n.shape(indices)}, expected the rank of {n.shape(x)}"
        )
    known, extent = n.known(indices), n.shape(x)[axis]
    if known is not None and not np.all((-extent <= known) & (known < extent)):
        raise ModelError(f"indices reach outside axis {axis} of {n.shape(x)}")
    return n.op("gather_elements", x, indices, axis=axis)


def flat_places(n: Assembler, indices: str, extents: Sequence[int], axis: int) -> str:
    strides = dense_strides(tuple(extents))
    grid = np.indices(n.shape(indices), dtype=np.int64)
    others = sum((grid[d] * s for d, s in enumerate(strides) if d != axis), np.int64(0))
    along = n.op("mul", positive(n, indices, extents[axis]), n.constant(strides[axis], "int64"))
    return n.op("add", along, n.constant(np.broadcast_to(others, grid.shape[1:]), "int64"))


def positive(n: Assembler, indices: str, extent: int | Array) -> str:
    """Indices counted from the front, as int64; those outside of the extent go to its nearest
    end. ModelError where they are known and outside."""
    known = n.known(indices)
    if known is not None and not np.all((-np.asarray(extent) <= known) & (known < extent)):
        raise ModelError(f"indices {known.min()} .. {known.max()} reach outside {extent} places")
    wide, end = n.cast(indices, "int64"), n.constant(extent, "int64")
    negative = n.op("lt", wide, n.like(0, wide))
    counted = n.op("where", negative, n.op("add", wide, end), wide)
    if known is not None:
        return counted
    last = n.constant(np.asarray(extent) - 1, "int64")
    return n.op("min", n.op("max", counted, n.like(0, counted)), last)


def rows(n: Assembler, x: str, places: Sequence[int]) -> tuple[str, int]:
    """(x as rows that a place names, how many dimensions a place has)."""
    shape, depth = n.shape(x), places[-1] if places else 0
    if not 1 <= depth <= len(shape):
        raise ModelError(f"indices of shape {tuple(places)} do not name places in {shape}")
    return n.reshape(x, (math.prod(shape[:depth]), math.prod(shape[depth:]))), depth


def row_places(n: Assembler, indices: str, extents: Sequence[int]) -> str:
    """Places of several coordinates (the last dimension) as rows, flat; those of one coordinate
    as they are, negative ones too."""
    if len(extents) == 1:
        return n.reshape(indices, (math.prod(n.shape(indices)),))
    steps = n.constant(dense_strides(tuple(extents)), "int64")
    whole = n.op("mul", positive(n, indices, np.array(extents)), steps)
    rows = n.op("reduce_sum", whole, axes=(n.rank(whole) - 1,), keepdims=False)
    return n.reshape(rows, (math.prod(n.shape(rows)),))


def unspread(n: Assembler, places: str, axis: int) -> str:
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


def join(n: Assembler, x: str, places: str, updates: str, axis: int, *, how: str) -> str:
    """x with updates at places along an axis, joined by an operation of `COMBINE`; truth values
    are joined as the integers 0 and 1, and what is not 0 is true."""
    if how not in COMBINE:
        raise UnsupportedOpError(f"reduction {how!r} is not known; known are {', '.join(COMBINE)}")
    if how != "none" and n.dtype(x) == "bool":
        whole = [n.cast(v, "int32") for v in (x, updates)]
        return n.cast(join(n, whole[0], places, whole[1], axis, how=how), "bool")
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


def join_elements(n: Assembler, operands: tuple[str, str, str], axis: int, *, how: str) -> str:
    """x, of operands (x, indices, updates), with updates at the places along an axis that indices
    name, and their own otherwise."""
    x, indices, updates = operands
    shape = n.shape(x)
    others = [d for d in range(len(shape)) if d != axis]
    put = how == "none" and n.evaluated(indices) is not None
    if not put and all(n.shape(indices)[d] == shape[d] for d in others):
        return join(n, x, unspread(n, indices, axis), updates, axis, how=how)
    places = flat_places(n, indices, shape, axis)
    count, flat = math.prod(shape), (math.prod(n.shape(updates)), 1)
    column, places, updates = (
        n.reshape(v, s) for v, s in ((x, (count, 1)), (places, flat), (updates, flat))
    )
    return n.reshape(join(n, column, places, updates, 0, how=how), shape)


def _put(n: Assembler, table: str, places: Array, updates: str) -> str:
    """Rows with those at constant places replaced: picked from the rows and the updates."""
    count = n.shape(table)[0]
    source = np.arange(count)
    source[places] = count + np.arange(places.size)  # of equal places the last one stays
    if np.array_equal(source, count + np.arange(count)):
        return updates
    both = n.op("concat", table, updates, axis=0)
    return n.op("gather", both, n.constant(source, "int64"), axis=0)
