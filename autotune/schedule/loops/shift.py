"""Step shift: a shifted variance (Chan, Golub, LeVeque 1983), found in one pass with the mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import Apply, Const, For, Index, Load, Program, Store, Value, index, walk
from autotune.program.rewrite import loads_of, map_indices, map_loads, stores_of
from autotune.program.rewrite import replace as replaced
from autotune.schedule.base import register
from autotune.schedule.loops.compute import nest_of, single_store

MOST = 4096
"""Elements of a row, at most."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """Take one of a row's elements from what a reduction squares instead of the row's mean, which
    is not known yet; what that adds to the squares is taken off where they are read.

    for k: s[] += x[k] ; m[] = s[]*c ; for j: q[] += (x[j]-m[])*(x[j]-m[]) ; y[] = f(q[])   ->
    for k: s[] += x[k]-o ; m[] = o + s[]*c ; for j: q[] += (x[j]-o)*(x[j]-o) ;
    y[] = f(q[] - s[]*c*s[])

    c is one over n, the elements of a row; o is the median of the first, middle and last, so that
    one that is far from all others is not taken. Rounding errors of the sums grow by about two
    then. The deviation of o is among the squares, so where two of the three are far off they
    grow by n at most: hence MOST.
    """

    step: ClassVar[str] = "shift"
    buffer: str
    """The buffer of the sum of squares."""

    def apply(self, program: Program) -> Program:
        squares = _SquareRows.of(program, self.buffer)
        term, mean = self._centred(squares)
        centre = single_store(program, mean.buffer)
        read = _product(centre.value)
        if read is None:
            raise ScheduleError(f"{mean.buffer} is not a sum times a number")
        load, share = read
        total = _SquareRows.of(program, load.buffer)
        self._check(program, squares, total, share)
        if mean.indices != squares.rows or total.value(squares.rows, squares.places) != term:
            raise ScheduleError(f"{self.buffer} and {mean.buffer} are not of the same elements")
        apart = Apply("sub", (term, total.middling(squares.rows)))
        changes = (
            (squares.store, Apply("mul", (apart, apart))),
            (total.store, Apply("sub", (total.store.value, total.middling(total.rows)))),
            (centre, Apply("add", (total.middling(load.indices), centre.value))),
        )
        for store, value in changes:
            program = replaced(program, store, (replace(store, value=value),))

        def corrected(found: Load) -> Value | None:
            if found.buffer != self.buffer:
                return None
            moved = Load(load.buffer, found.indices)
            # The sum's square may be too large for a number; the sum times the mean is not.
            return Apply("sub", (found, Apply("mul", (Apply("mul", (moved, share)), moved))))

        return replace(program, body=map_loads(program.body, corrected))

    def _centred(self, squares: _SquareRows) -> tuple[Value, Load]:
        """What is centred before it is squared, and at what."""
        value = squares.store.value
        if isinstance(value, Apply) and value.fn == "mul" and value.args[0] == value.args[1]:
            apart = value.args[0]
            if isinstance(apart, Apply) and apart.fn == "sub" and isinstance(apart.args[1], Load):
                return apart.args[0], apart.args[1]
        raise ScheduleError(f"{self.buffer} adds no squares of what is centred")

    def _check(
        self, program: Program, squares: _SquareRows, total: _SquareRows, share: Const
    ) -> None:
        count = math.prod(loop.extent for loop in squares.inner)
        if not 1 < count <= MOST or count != math.prod(loop.extent for loop in total.inner):
            raise ScheduleError(f"rows of {count} elements: 2 to {MOST} can be shifted")
        if abs(float(share.value) * count - 1) > 1e-6:
            raise ScheduleError(f"{total.store.buffer} times {share.value} is no mean of {count}")
        if sum(v.buffer == total.store.buffer for v in loads_of(program.body)) != 1:
            raise ScheduleError(f"{total.store.buffer} is read by more than a mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SquareRows:
    """A sum over each row."""

    store: Store
    inner: tuple[For, ...]
    """Loops over the elements of a row."""

    @staticmethod
    def of(program: Program, buffer: str) -> _SquareRows:
        stores = [s for s in stores_of(program.body, buffer) if s.combine]
        if [s.combine for s in stores] != ["sum"]:
            raise ScheduleError(f"{buffer} is not one sum over rows")
        (store,) = stores
        nest = nest_of(program, buffer)
        loops = [s for s in walk((nest,)) if isinstance(s, For) and store in stores_of(s.body)]
        plain = all(len(i.terms) == 1 and i == index(str(i.terms[0][0])) for i in store.indices)
        rows = [i.terms[0][0] for i in store.indices] if plain else []
        if not plain or len(set(rows)) < len(rows):
            raise ScheduleError(f"{buffer} is not indexed by one loop per dimension")
        return _SquareRows(
            store=store, inner=tuple(loop for loop in loops if loop.var not in rows)
        )

    @property
    def rows(self) -> tuple[Index, ...]:
        return self.store.indices

    @property
    def places(self) -> tuple[Index, ...]:
        """Indices of an element in its row."""
        return tuple(index(loop.var) for loop in self.inner)

    def value(self, rows: tuple[Index, ...], places: tuple[Index, ...]) -> Value:
        """What is added, of other rows and at other places."""
        names = [str(i.terms[0][0]) for i in (*self.rows, *self.places)]
        env = dict(zip(names, (*rows, *places), strict=True))
        return map_indices(self.store.value, lambda i: i.substitute(env))

    def middling(self, rows: tuple[Index, ...]) -> Value:
        """An element of a row: the median of three."""
        extents = [loop.extent for loop in self.inner]
        places = ([0] * len(extents), [e // 2 for e in extents], [e - 1 for e in extents])
        a, b, c = (self.value(rows, tuple(Index((), n) for n in place)) for place in places)
        low, high = Apply("min", (a, b)), Apply("max", (a, b))
        return Apply("max", (low, Apply("min", (high, c))))


def _product(value: Value) -> tuple[Load, Const] | None:
    """A load times a number."""
    if isinstance(value, Apply) and value.fn == "mul":
        load, share = value.args
        if isinstance(load, Load) and isinstance(share, Const):
            return load, share
    return None
