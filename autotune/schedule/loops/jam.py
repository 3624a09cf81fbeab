"""Step jam: loop fusion, the second half of unroll-and-jam (Allen & Kennedy 2001)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import rewrite
from autotune.program.analysis import Ranges, interval, reads_memory
from autotune.program.ir import Alloc, For, If, Index, Program, Stmt, Store, index, walk
from autotune.schedule.base import register
from autotune.sizes import is_size


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Jam:
    """Loop fusion: the body of a later loop goes behind that of an earlier one of as many
    iterations, of which none touches what a later one of the earlier loop does. What is between
    them goes before or after both; local buffers around them live on to the end of the
    statements that they are among; guards that are the same, one after the other, become one.

    for i: s += x[i] ; m = s*2 ; q = 0 ; for j: q += x[j]*x[j]   ->
    q = 0 ; for i: { s += x[i] ; q += x[i]*x[i] } ; m = s*2
    """

    step: ClassVar[str] = "jam"
    loop: str
    other: str

    def apply(self, program: Program) -> Program:
        loop, other = rewrite.find_loop(program, self.loop), rewrite.find_loop(program, self.other)
        if (loop.extent, loop.kind) != (other.extent, other.kind):
            raise ScheduleError(f"loops {self.loop} and {self.other} are not of the same form")
        around = _around(program, loop, other)
        stmts, local = flat(around.body if around else program.body, (loop, other))
        places = [n for n, s in enumerate(stmts) if s is loop or s is other]
        if len(places) != 2 or stmts[places[0]] is not loop:
            raise ScheduleError(f"loop {self.other} is not beside {self.loop} and after it")
        first, second = places
        before, after = _sorted(loop, other, stmts[first + 1 : second])
        moved = rewrite.map_stmt_indices(
            other.body, lambda i: i.substitute({other.var: index(loop.var)})
        )
        both = rewrite.with_body(loop, _joined((*loop.body, *moved)))
        new: rewrite.Body = (*stmts[:first], *before, both, *after, *stmts[second + 1 :])
        for alloc in reversed(local):
            new = (rewrite.with_body(alloc, new),)
        if around is None:
            return dataclasses.replace(program, body=new)
        return rewrite.replace(program, around, (rewrite.with_body(around, new),))


def _around(program: Program, loop: For, other: For) -> For | If | None:
    """The innermost loop or guard around both."""
    found: For | If | None = None
    paths = (rewrite.loop_path(program.body, v.var) for v in (loop, other))
    for one, two in zip(*paths, strict=False):
        if one is not two:
            break
        if not isinstance(one, Alloc):
            assert isinstance(one, For | If)
            found = one
    return found


def flat(body: rewrite.Body, loops: Collection[For]) -> tuple[list[Stmt], list[Alloc]]:
    """Statements without the allocs around the loops, and those allocs."""
    out: list[Stmt] = []
    local: list[Alloc] = []
    for stmt in body:
        if isinstance(stmt, Alloc) and any(s is v for s in walk(stmt.body) for v in loops):
            inner, more = flat(stmt.body, loops)
            out += inner
            local += [stmt, *more]
        else:
            out.append(stmt)
    return out, local


def _joined(body: rewrite.Body) -> rewrite.Body:
    """Statements, those under the same guard together."""
    out: list[Stmt] = []
    for stmt in body:
        last = out[-1] if out else None
        if isinstance(stmt, If) and isinstance(last, If) and last.bounds == stmt.bounds:
            out[-1] = rewrite.with_body(last, last.body + stmt.body)
        else:
            out.append(stmt)
    return tuple(out)


def _sorted(loop: For, other: For, between: Sequence[Stmt]) -> tuple[list[Stmt], list[Stmt]]:
    """What is between two loops, as far as it may run before the first, and what runs after."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    for stmt in between:
        free = all(_independent(stmt, s) for s in (loop, *after))
        (before if free else after).append(stmt)
    for stmt in (loop, *after):
        if not _independent(stmt, other) and not (stmt is loop and _keeps_order(loop, other)):
            raise ScheduleError(f"loop {other.var} needs what is computed from loop {loop.var} on")
    return before, after


def _independent(one: Stmt, two: Stmt) -> bool:
    """Whether two statements may change places, and their iterations mix."""
    touched, written = [], []
    for stmt in (one, two):
        for part in walk((stmt,)):
            if not isinstance(part, For | If | Alloc | Store):
                raise ScheduleError(f"a {type(part).__name__} stays where it is")
        check_plain(stmt)
        stores = {s.buffer for s in rewrite.stores_of((stmt,))}
        written.append(stores)
        touched.append(stores | {v.buffer for v in rewrite.loads_of((stmt,))})
    return written[0].isdisjoint(touched[1]) and written[1].isdisjoint(touched[0])


def _keeps_order(loop: For, other: For) -> bool:
    """Whether no iteration of the later loop touches what a later one of the earlier loop does: of
    every buffer that one of them writes and the other touches, some index goes on by the same step
    in both, and the later loop's places end before those begin where the next iteration is."""
    ranges = {s.var: s.extent for s in walk((loop, other)) if isinstance(s, For)}
    if any(is_size(extent) for extent in ranges.values()):
        return False
    written = {s.buffer for s in rewrite.stores_of((loop, other))}
    first, second = (_places(v) for v in (loop, other))
    return all(
        any(
            _behind((loop.var, places), (other.var, second[buffer]), ranges, dim)
            for dim in range(len(places[0]))
        )
        for buffer, places in first.items()
        if buffer in written and buffer in second
    )


def _places(loop: For) -> dict[str, list[tuple[Index, ...]]]:
    """Buffer -> indices that a loop's body stores to, or loads from."""
    out: dict[str, list[tuple[Index, ...]]] = {}
    for store in rewrite.stores_of((loop,)):
        out.setdefault(store.buffer, []).append(store.indices)
    for load in rewrite.loads_of((loop,)):
        out.setdefault(load.buffer, []).append(load.indices)
    return out


def _behind(
    first: tuple[str, list[tuple[Index, ...]]],
    second: tuple[str, list[tuple[Index, ...]]],
    ranges: Ranges,
    dim: int,
) -> bool:
    steps = {dict(p[dim].terms).get(var, 0) for var, places in (first, second) for p in places}
    if len(steps) != 1 or not (step := steps.pop()) > 0:
        return False
    begins, ends = (
        [p[dim] - index(var) * step for p in places] for var, places in (first, second)
    )
    for ahead in (end - begin for begin in begins for end in ends):
        # Loops around both are at the same iteration in both, and so no longer there.
        if not ahead.vars() <= ranges.keys() or interval(ahead, ranges)[1] >= step:
            return False
    return True


def check_plain(stmt: Stmt) -> None:
    """ScheduleError where an index is read from memory."""

    def check(i: Index) -> Index:
        if reads_memory(i):
            raise ScheduleError("what is read at computed places stays where it is")
        return i

    rewrite.map_stmt_indices((stmt,), check)


def check_serial(loop: For) -> None:
    """ScheduleError where a loop does more than compute, one after the other, at known places."""
    for stmt in walk((loop,)):
        if not isinstance(stmt, For | If | Alloc | Store):
            raise ScheduleError(f"a {type(stmt).__name__} stays where it is")
        if isinstance(stmt, For) and stmt.kind not in ("serial", "unroll", "vector"):
            raise ScheduleError(f"loop {stmt.var} is {stmt.kind}")
    if loop.kind == "vector":
        raise ScheduleError(f"loop {loop.var} is a vector's")
    check_plain(loop)
