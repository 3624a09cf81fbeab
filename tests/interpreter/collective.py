"""What the threads of a warp or block do together, as the interpreter sees it.

In: where matrices of `mma`, elements of asynchronous copies and boxes begin: a buffer's memory,
and a point in it. Out: sums; copies, made as late as they may be: when their group is waited for;
rows of boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from autotune.program.async_pipeline import depth_of
from autotune.program.ir import MATRIX, MATRIX_BYTES
from autotune.types import ITEM_BYTES, Array
from tests.interpreter.memory import GARBAGE, Memory, interior_of
from tests.interpreter.races import Grid

Place = tuple[int, ...]
Element = tuple[Memory, Place]
"""A buffer's memory, and a point in it."""


class Copies:
    """Asynchronous copies on their way, of all threads of a block: they commit together."""

    def __init__(self) -> None:
        self._open: list[tuple[Array, Place, Array, Place]] = []
        self._groups: list[list[tuple[Array, Place, Array, Place]]] = []

    def start(self, to: Array, at: Place, source: Array, place: Place) -> None:
        """One element."""
        self._open.append((to, at, source, place))

    def commit(self) -> None:
        self._groups.append(self._open)
        self._open = []

    def wait(self, pending: int) -> None:
        """All but the `pending` newest groups arrive."""
        count = max(0, len(self._groups) - pending)
        for group in self._groups[:count]:
            for to, at, source, place in group:
                to[at] = source[place]
        del self._groups[:count]


def products(
    total: Element, a: Element, b: Element, *, grid: Grid, dtype: str, across: bool
) -> None:
    """A warp's `Mma`, of operands of an element type."""
    rows, columns, depth = *MATRIX, MATRIX_BYTES // ITEM_BYTES[dtype]
    left = _matrix(a, rows, depth, grid)
    right = _matrix(b, *((depth, columns) if across else (columns, depth)), grid)
    (memory, first), right = total, right.T if across else right
    _add_product(memory.data[_window(first, rows, columns)], left, right, dtype)


def _matrix(begin: Element, rows: int, columns: int, grid: Grid) -> Array:
    """Elements of shared memory, read by the warp that runs."""
    memory, (*outer, m, n) = begin
    out = np.empty((rows, columns), memory.data.dtype)
    for row in range(rows):
        for column in range(columns):
            at = memory.locate((*outer, m + row, n + column))
            if memory.watch is not None:
                memory.watch.read(grid, memory.name, at)
            out[row, column] = memory.data[at]
    return out


def group_products(total: Element, a: Element, b: Element, *, dtype: str, count: int) -> None:
    """What a warp has of a `WarpgroupMma`."""
    (rows, columns), depth = MATRIX, depth_of(dtype)
    left = a[0].data[_window(a[1], rows, depth)]
    right = b[0].data[_window(b[1], columns * count, depth)]
    memory, (*outer, place, m, n) = total
    sums = memory.data[(*outer,)]
    for c in range(count):
        part = right[columns * c : columns * (c + 1)]
        _add_product(sums[_window((place + c, m, n), rows, columns)], left, part, dtype)


def _window(first: Place, rows: int, columns: int) -> Any:
    """The slices of a matrix that begins there."""
    *outer, m, n = first
    return (*outer, slice(m, m + rows), slice(n, n + columns))


def copy(to: Element, source: Element, *, count: int, grid: Grid, copies: Copies) -> None:
    """An `AsyncCopy` of one thread sets out."""
    (into, (*first, last)), (given, (*start, end)) = to, source
    for n in range(count):
        at, place = into.locate((*first, last + n)), given.locate((*start, end + n))
        if into.watch is not None:
            into.watch.write(grid, into.name, at, False)
        into.data[at] = np.nan if into.data.dtype.kind == "f" else GARBAGE
        copies.start(into.data, at, given.data, place)


def order_of(extent: int, copies: int) -> Iterator[tuple[bool, int]]:
    """Of a `stream` loop, (whether it is the fetches', iteration): fetches as early as may be."""
    for i in range(-copies + 1, extent):
        if i + copies - 1 < extent:
            yield True, i + copies - 1
        if i >= 0:
            yield False, i


def fetch(to: Element, source: Element, *, box: Place) -> None:
    """A `Fetch`, done at once."""
    rows = _boxed(interior_of(source[0]), source[1], box)
    into, (slot, row, _) = to
    into.data[slot, row : row + len(rows)] = rows


def _boxed(source: Array, first: Place, box: tuple[int, ...]) -> Array:
    """A box of an array as rows, zeros where it reaches beyond."""
    out = np.zeros(box, source.dtype)
    inside = [
        slice(max(0, -start), max(0, min(size, extent - start)))
        for start, size, extent in zip(first, box, source.shape, strict=True)
    ]
    moved = [
        slice(part.start + start, part.stop + start)
        for part, start in zip(inside, first, strict=True)
    ]
    if all(part.start < part.stop for part in inside):
        out[tuple(inside)] = source[tuple(moved)]
    return out.reshape(-1, box[-1])


def _add_product(total: Array, a: Array, b: Array, dtype: str) -> None:
    """total += a @ b.T, for operands whose elements are of a type."""
    if dtype == "float32":  # what tensor cores see of it
        a, b = (_short(x) for x in (a, b))
    wide = np.int64 if total.dtype.kind == "i" else np.float64
    total += (a.astype(wide) @ b.astype(wide).T).astype(total.dtype)


def _short(x: Array) -> Array:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)
