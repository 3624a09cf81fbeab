"""The first elements in order. In: rows of a graph being built. Out: keys that are sorted, and
gathers.

A key holds an element's order and its place: of equal ones the first leads. Long rows are cut into
pieces: what leads lies in the pieces whose own largest do, so that only these are sorted.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UndecidedError
from autotune.frontend.assembly import Assembler
from autotune.frontend.places import elements
from autotune.frontend.views import counted_up
from autotune.ops.sort_keys import KEYED, PLACES
from autotune.ops.top_k import passes
from autotune.sizes import greatest, is_size

_KEY, _FAR, _PICK, _PASS = 1.0, 0.5, 6.0, 0.35
"""Cycles: of an element's key, where its piece has others far apart, of an element picked from a
chosen piece, of one in a pass."""
LONGEST = 1 << 16
"""Elements of the longest rows of open length that are sorted as if all were so long."""
_NEAR = 64
"""Pieces side by side that are read as one run, block after block."""


def first(n: Assembler, x: str, count: int, axis: int, *, largest: bool) -> tuple[str, str]:
    """The `count` largest or smallest elements along an axis in order, and their places as int64.
    Of equal ones the first leads. Of a count that only a run knows as many are sorted as it may
    be."""
    shape = n.shape(x)
    extent, order = shape[axis], [d for d in range(len(shape)) if d != axis] + [axis]
    moved = n.transpose(x, order)
    outer = n.shape(moved)[:-1]
    rows = n.reshape(moved, (math.prod(outer), extent))
    if n.dtype(x) in KEYED:
        longest = _longest(n, rows, largest=largest) if is_size(extent) else rows
        most = min(greatest(count), greatest(extent))
        places = _places(n, _largest_keys(n, longest, most, largest))
        if most != count:
            stops = (n.shape(rows)[0], count)
            places = n.op("slice", places, starts=(0, 0), stops=stops, steps=(1, 1))
    else:
        places = _ranked(n, rows, count, largest)
    back = [order.index(d) for d in range(len(shape))]
    found = (n.reshape(v, (*outer, count)) for v in (elements(n, rows, places, 1), places))
    values, places = (n.transpose(v, back) for v in found)
    return values, places


def _longest(n: Assembler, rows: str, *, largest: bool) -> str:
    """Rows of open length as the longest they may be, behind them what comes last in order: what
    is exchanged must not depend on a size."""
    extent = n.shape(rows)[1]
    said = f"the first of {extent} elements of {n.dtype(rows)}"
    if not n.dtype(rows).startswith("float"):
        raise UndecidedError(said)
    if greatest(extent) > LONGEST:
        raise ModelError(f"{said}: at most {LONGEST} are sorted where a run says how many")
    last = -math.inf if largest else math.nan
    return n.op("pad", rows, pads=(0, 0, 0, greatest(extent) - extent), value=last)


def _largest_keys(n: Assembler, rows: str, count: int, largest: bool) -> str:
    """Keys of the first `count` of every row, in order."""
    number, extent = n.shape(rows)
    depth, width = _pieces(extent, count)
    maxima = n.op("block_max", rows, depth=depth, width=width, largest=largest)
    block = depth * width
    whole = extent - extent % block
    maxima = n.reshape(maxima, (number, whole // depth))
    first = n.op("top_k", maxima, count=count)
    if depth == 1:
        return first
    place = _places(n, first)
    column = n.op("mod", place, n.scalar(width, "int64"))
    inside = n.op("mod", place, n.scalar(block, "int64"))
    chosen = n.op("add", n.op("sub", place, inside), column)
    steps = n.constant(np.arange(depth, dtype=np.int64).reshape(1, depth, 1) * width)
    inside = n.op("add", n.reshape(chosen, (number, 1, count)), steps)
    inside = n.reshape(inside, (number, depth * count))
    left = n.op("sort_keys", elements(n, rows, inside, 1), inside, largest=largest)
    if whole < extent:
        rest = n.op("slice", rows, starts=(0, whole), stops=(number, extent), steps=(1, 1))
        places = n.constant(np.arange(whole, extent, dtype=np.int64))
        rest = n.op("sort_keys", rest, places, largest=largest)
        left = n.op("concat", left, rest, axis=1)
    return n.op("top_k", left, count=count)


def _pieces(extent: int, count: int) -> tuple[int, int]:
    """How many elements pieces have, and how many pieces a block, by what is the least work."""

    def sorted_(size: int) -> float:
        return _PASS * sum(p.size for p in passes(size, count))

    def work(depth: int, width: int) -> float:
        if depth == 1:
            return _KEY * extent + sorted_(extent)
        left, apart = depth * count + extent % (depth * width), extent - extent % (depth * width)
        far = _FAR * max(0, width - _NEAR) * depth
        return _KEY * extent + far + sorted_(apart // depth) + _PICK * left + sorted_(left)

    best, least = (1, extent), work(1, extent)
    for depth in range(2, extent // count + 1):
        if _KEY * extent + _PICK * depth * count >= least:  # deeper ones only pick more
            break
        for width in sorted({extent // depth, _NEAR, 2 * _NEAR}):
            if extent // (depth * width) * width >= count and work(depth, width) < least:
                best, least = (depth, width), work(depth, width)
    return best


def _places(n: Assembler, keys: str) -> str:
    """The places in keys."""
    rest = n.op("mod", keys, n.scalar(PLACES, "int64"))
    return n.op("sub", n.scalar(PLACES - 1, "int64"), rest)


def _ranked(n: Assembler, rows: str, count: int, largest: bool) -> str:
    """Places of the first `count` of every row, of elements that have no keys: all pairs are
    compared, and an element is put where the number of those ahead of it says. NaNs are the
    largest."""
    number, extent = n.shape(rows)
    one, other = n.reshape(rows, (number, extent, 1)), n.reshape(rows, (number, 1, extent))
    leads = n.op("gt" if largest else "lt", other, one)
    n.made(greatest(extent), greatest(extent))
    equal = n.op("eq", other, one)
    if n.dtype(rows).startswith("float"):
        larger, smaller = (other, one) if largest else (one, other)
        first = n.op("and", n.op("ne", larger, larger), n.op("eq", smaller, smaller))
        both = n.op("and", n.op("ne", one, one), n.op("ne", other, other))
        leads, equal = n.op("or", leads, first), n.op("or", equal, both)
    own = counted_up(n, 0, extent)
    earlier = n.op("gt", n.reshape(own, (extent, 1)), n.reshape(own, (1, extent)))
    ahead = n.op("or", leads, n.op("and", equal, earlier))
    rank = n.op("reduce_sum", n.cast(ahead, "float32"), axes=(2,), keepdims=False)
    own = n.op("expand", n.reshape(own, (1, extent)), shape=(number, extent))
    places = n.cast(rank, "int64")
    if is_size(extent):
        sorted_ = n.op("scatter", own, places, own, axis=1)  # onto what is replaced everywhere
    else:
        sorted_ = n.op("scatter", n.scalar(0, "int64"), places, own, axis=1, extent=extent)
    if count == extent:
        return sorted_
    return n.op("slice", sorted_, starts=(0, 0), stops=(number, count), steps=(1, 1))


def backward(n: Assembler, x: str) -> str:
    """Numbers in the reverse order. The least integer has no negative: counted down from the
    greatest, whose bits are those of -1 where there is a sign."""
    if n.dtype(x).startswith("float"):
        return n.op("neg", x)
    unsigned = n.dtype(x).startswith("uint")
    top = int(np.iinfo(n.dtype(x)).max) if unsigned else -1
    return n.op("sub", n.like(top, x), x)
