"""ATen importers: systems of triangular matrices, by products of blocks.

A unit lower triangular matrix is inverted by halves (Borodin and Munro 1975): the inverse of
((P, 0), (C, Q)) is ((P', 0), (-Q' C P', Q')) where P' and Q' are those of its diagonal blocks. All
blocks of one size are one batch, and each size is twice the one before. No number is added that
the inverse takes away again, as powers of the matrix would.
"""

from __future__ import annotations

from autotune.frontend.torch.context import AtenCall, aten
from autotune.frontend.torch.linear import multiplied

INVERTED = 64
"""Rows up to which a matrix is inverted for any number of columns but one."""


@aten("linalg_solve_triangular")
def solve_triangular(n: AtenCall) -> str:
    """X of self X = B, or of X self = B. self = D U with the
    diagonal D: its inverse is that of U times 1 / D."""
    a, b = n.value("self"), n.value("B")
    if 0 in n.made_shape:
        n.refuse("a system of nothing")
    left, upper = n.arg("left", True), n.arg("upper")
    pivots = None if n.arg("unitriangular", False) else _diagonal(n, a)
    if pivots is not None:
        a = n.op("div", a, n.reshape(pivots, (*n.shape(pivots), 1)))
    size, rank = n.shape(a)[-1], n.rank(b)
    columns = n.shape(b)[rank - 1 if left else rank - 2]
    if 1 in (size, columns) or size > max(INVERTED, 2 * columns):
        n.refuse("a system of few numbers or columns, which substitution solves sooner")
    inverse = _unit_inverse(n, _turned(n, a) if upper else a)
    inverse = _turned(n, inverse) if upper else inverse
    if pivots is not None:
        sides = (size, 1) if left else (1, size)
        pivots = n.reshape(pivots, (*n.shape(pivots)[:-1], *sides))
    if left:
        return multiplied(n, inverse, b if pivots is None else n.op("div", b, pivots))
    found = multiplied(n, b, inverse)
    return found if pivots is None else n.op("div", found, pivots)


def _turned(n: AtenCall, x: str) -> str:
    rank = n.rank(x)
    return n.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _diagonal(n: AtenCall, a: str) -> str:
    """The diagonal of square matrices: the first column of what has one more number in a row."""
    *batch, size, _ = n.shape(a)
    return n.reshape(_first(n, _shifted(n, a, size), 1), (*batch, size))


def _shifted(n: AtenCall, a: str, blocks: int) -> str:
    """The numbers of square matrices, `blocks` rows of them: each begins on the diagonal."""
    *batch, size, _ = n.shape(a)
    flat = n.reshape(a, (*batch, size * size))
    pads = (0,) * len(batch)
    flat = n.op("pad", flat, pads=(*pads, 0, *pads, size), value=0.0)
    return n.reshape(flat, (*batch, blocks, size * (size + 1) // blocks))


def _first(n: AtenCall, x: str, count: int) -> str:
    return _cut(n, x, n.rank(x) - 1, 0, count)


def _cut(n: AtenCall, x: str, axis: int, start: int, stop: int, *, step: int = 1) -> str:
    starts, stops, steps = [0] * n.rank(x), list(n.shape(x)), [1] * n.rank(x)
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return n.op("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def _unit_inverse(n: AtenCall, a: str) -> str:
    """The inverses of matrices with ones on the diagonal, which like what is above is not read."""
    *batch, size, _ = n.shape(a)
    whole = 1 << (size - 1).bit_length()
    pads, more = (0,) * (len(batch) + 2), whole - size
    if more:
        a = n.op("pad", a, pads=(*pads, *pads[2:], more, more), value=0.0)
    inverse = n.expanded(n.like(1, a), (*batch, whole, 1, 1))
    half = 1
    while half < whole:
        inverse = _doubled(n, inverse, _below(n, a, half))
        half *= 2
    inverse = n.reshape(inverse, (*batch, whole, whole))
    rows = _cut(n, inverse, n.rank(inverse) - 2, 0, size) if more else inverse
    return _first(n, rows, size) if more else rows


def _below(n: AtenCall, a: str, half: int) -> str:
    """The lower left quarters, of `half` rows, of the diagonal blocks of twice as many."""
    *batch, size, _ = n.shape(a)
    blocks = size // (2 * half)
    rows = _first(n, _shifted(n, a, blocks), 2 * half * size)
    rows = n.reshape(rows, (*batch, blocks, 2 * half, size))
    return _first(n, _cut(n, rows, n.rank(rows) - 2, half, 2 * half), half)


def _doubled(n: AtenCall, inverse: str, below: str) -> str:
    """Inverses of blocks, from those of their diagonal quarters and their lower left ones."""
    axis = n.rank(inverse) - 3
    count, half = n.shape(inverse)[axis], n.shape(inverse)[-1]
    first, second = (_cut(n, inverse, axis, i, count, step=2) for i in (0, 1))
    left = below
    if half > 1:
        left = multiplied(n, multiplied(n, second, below), first)
    nothing = n.expanded(n.like(0, below), n.shape(below))
    above = n.op("concat", first, nothing, axis=axis + 2)
    under = n.op("concat", n.op("neg", left), second, axis=axis + 2)
    return n.op("concat", above, under, axis=axis + 1)
