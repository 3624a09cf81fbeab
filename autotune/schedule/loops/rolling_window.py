"""Step rolling_window: partial sums carried from one iteration of a loop to the next, as Halide's
sliding window (Ragan-Kelley et al. 2013) carries what producers computed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import Alloc, Buffer, For, If, Index, Load, Program, Stmt, Store, index
from autotune.program.rewrite import (
    Body,
    find_loop,
    ranges_at,
    renamed,
    replace,
    stores_of,
    substitute,
    value_loads,
    with_body,
)
from autotune.schedule.base import register
from autotune.schedule.loops.nest import copied, require_new
from autotune.schedule.loops.rfactor import sole_reduction


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RollingWindow:
    """A rolling window: the sums of a loop's next iteration begin with what they share with this:
    windows that overlap along the loop read each row once where they move on by half or more.

    for y in 7: alloc s[4]: { s = 0 ; for k in 3: for i in 4: s[i] += a[2*y + k] * w[k] ; .. }
    ->   alloc s.next[4]: {
      s.next = 0 ; for k_first in 1: for i_first in 4: s.next[i] += a[0] * w[0]
      for y in 7: alloc s[4]: { s = s.next ; s.next = 0
        for k_alone in 1: for i_alone in 4: s[i] += a[2*y + 1] * w[1]
        for k in 1: for i in 4: { s[i] += a[2*y + 2] * w[2] ; s.next[i] += a[2*y + 2] * w[0] }
        .. } }

    The last iteration begins sums that nothing ends.
    """

    step: ClassVar[str] = "rolling_window"
    loop: str
    over: str
    """The outermost loop of the reduction."""

    def apply(self, program: Program) -> Program:
        around, over = find_loop(program, self.loop), find_loop(program, self.over)
        alloc = around.body[0]
        if around.kind != "serial" or len(around.body) != 1 or not isinstance(alloc, Alloc):
            raise ScheduleError(f"loop {self.loop} holds more than sums in registers")
        if not any(s is over for s in alloc.body):
            raise ScheduleError(f"loop {self.over} is not the outermost of {alloc.buffer.name}")
        at = next(n for n, s in enumerate(alloc.body) if s is over)
        start, rest = alloc.body[:at], alloc.body[at + 1 :]
        inside, store = sole_reduction(over)
        self._check(alloc.buffer, start, store, around)
        self._check_places(inside, store)
        ranges = ranges_at(program, self.loop)
        ranges |= {s.var: s.extent for s in (over, *inside) if isinstance(s, For)}
        step = self._shared(store, over.extent, ranges)
        tile = [s for s in inside if isinstance(s, For)]
        require_new(program, *(s.var + k for s in (over, *tile) for k in ("_first", "_alone")))
        later = dataclasses.replace(alloc.buffer, name=f"{alloc.buffer.name}.next")
        begun = tuple(_into(s, alloc.buffer.name, later.name) for s in start)

        def terms(count: int, skipped: int, which: tuple[int, ...]) -> Body:
            """The reduction over `count` of what this iteration reads, after the first ones, into
            this sum (0), or the next (1), or both."""
            if count < 1:
                return ()
            stores = [self._term(store, later.name, skipped, step * n, ranges) for n in which]
            body: Body = tuple(stores)
            for stmt in reversed(inside):
                body = (with_body(stmt, body),)
            return (For(over.var, count, over.kind, body),)

        carried = over.extent - step
        both = max(step, carried)
        alone = terms(both - carried, carried, (0,)) + terms(both - step, step, (1,))
        first = substitute(terms(carried, step, (1,)), {self.loop: Index((), -1)}, ranges)
        body = (
            self._carried(start, alloc.buffer.name, later.name),
            *renamed(begun, "_next"),
            *renamed(alone, "_alone"),
            *terms(over.extent - both, both, (0, 1)),
            *rest,
        )
        loop = with_body(around, (with_body(alloc, body),))
        return replace(program, around, (Alloc(later, (*begun, *renamed(first, "_first"), loop)),))

    def _check(self, sums: Buffer, start: Body, store: Store, around: For) -> None:
        """The sums begin alike in all iterations, and nothing is written that they read."""
        firsts = stores_of(start, sums.name)
        if len(firsts) != 1 or len(stores_of(start)) != 1 or store.buffer != sums.name:
            raise ScheduleError(f"{sums.name} does not begin with a store of its own")
        if any(True for _ in value_loads(firsts[0].value)) or firsts[0].combine:
            raise ScheduleError(f"{sums.name} does not begin with the same value each time")
        written = {s.buffer for s in stores_of(around.body)}
        if written & {v.buffer for v in value_loads(store.value)}:
            raise ScheduleError(f"loop {self.loop} writes what {sums.name} is made of")

    def _check_places(self, inside: list[Stmt], store: Store) -> None:
        """The same sums are kept in all iterations."""
        found = [*store.indices, *(b.index for s in inside if isinstance(s, If) for b in s.bounds)]
        if any(i.vars() & {self.loop, self.over} for i in found):
            raise ScheduleError(f"{store.buffer} is indexed or guarded by a loop that rolls")

    def _shared(self, store: Store, extent: int, ranges: dict[str, int]) -> int:
        """By how many iterations of the reduction neighbouring windows lie apart."""

        def reads(later: int, term: int) -> list[Load]:
            moved = {self.loop: index(self.loop) + later, self.over: Index((), term)}
            (made,) = substitute((store,), moved, ranges | {self.loop: ranges[self.loop] + 1})
            assert isinstance(made, Store)
            return list(value_loads(made.value))

        data = [any(self.loop in i.vars() for i in v.indices) for v in value_loads(store.value)]
        for step in range(1, extent):
            pairs = zip(reads(1, 0), reads(0, step), data, strict=True)
            if any(data) and all(a == b for a, b, moves in pairs if moves):
                return step
        raise ScheduleError(f"neighbouring iterations of {self.loop} read nothing in common")

    def _term(
        self, store: Store, later: str, skipped: int, back: int, ranges: dict[str, int]
    ) -> Store:
        """What an iteration of the reduction adds to this sum; to the next, terms earlier."""
        env = {self.over: index(self.over) + (skipped - back)}
        if back:
            env[self.loop] = index(self.loop) + 1
        (made,) = substitute((store,), env, ranges | {self.loop: ranges[self.loop] + 1})
        assert isinstance(made, Store)
        return dataclasses.replace(made, buffer=later) if back else made

    def _carried(self, start: Body, sums: str, later: str) -> Stmt:
        """The sums of this iteration, as far as the one before came."""
        chain: list[For] = []
        stmts = start
        while isinstance(stmts[0], For):
            chain.append(stmts[0])
            stmts = stmts[0].body
        store = stmts[0]
        assert isinstance(store, Store)
        return copied(chain, (Store(sums, store.indices, Load(later, store.indices)),), "_carry")


def _into(stmt: Stmt, old: str, new: str) -> Stmt:
    """The same stores to another buffer."""
    if isinstance(stmt, Store):
        return dataclasses.replace(stmt, buffer=new) if stmt.buffer == old else stmt
    assert isinstance(stmt, For)
    return with_body(stmt, tuple(_into(s, old, new) for s in stmt.body))
