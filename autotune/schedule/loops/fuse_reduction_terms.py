"""Step fuse_reduction_terms: a reduction reassociated, so that a loop's terms are one term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import Apply, For, If, Index, Program, Stmt, Store
from autotune.program.rewrite import (
    find_buffer,
    find_loop,
    loop_path,
    ranges_at,
    replace,
    substitute,
    value_loads,
    with_body,
)
from autotune.schedule.base import register
from autotune.schedule.loops.rfactor import sole_reduction

_COMBINED = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
_MOST = 16
"""Terms of a joined value."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class FuseReductionTerms:
    """Reassociation: one store of the combined terms of a loop, one of several of a reduction,
    instead of a store of each. Windows that overlap have whole values in common then, which common
    subexpression elimination computes once.

    for k in 3: for w in 7: s[w] += a[k, w + j]   ->
    for w in 7: s[w] += a[0, w + j] + a[1, w + j] + a[2, w + j]
    """

    step: ClassVar[str] = "fuse_reduction_terms"
    loop: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        around, store = self._chain(loop)
        loops = [
            s.var for s in (*loop_path(program.body, self.loop), *around) if isinstance(s, For)
        ]
        used = frozenset[str]().union(*(i.vars() for i in store.indices))
        if {self.loop} >= set(loops) - used:
            raise ScheduleError(f"loop {self.loop} is all of a reduction; one of several joins")
        kind = find_buffer(program, store.buffer).dtype
        if any(find_buffer(program, v.buffer).dtype != kind for v in value_loads(store.value)):
            raise ScheduleError(f"{store.buffer} is not of the same type as what it combines")
        ranges = ranges_at(program, self.loop)
        ranges |= {s.var: s.extent for s in around if isinstance(s, For)}
        fn = _COMBINED.get(store.combine or "")
        if fn is None:
            raise ScheduleError(f"terms that are combined by {store.combine} are not joined")
        total = None
        for i in range(loop.extent):
            (term,) = substitute((store,), {self.loop: Index((), i)}, ranges)
            assert isinstance(term, Store)
            total = Apply(fn, (total, term.value)) if total else term.value
        assert total
        body: tuple[Stmt, ...] = (Store(store.buffer, store.indices, total, store.combine),)
        for stmt in reversed(around):
            body = (with_body(stmt, body),)
        return replace(program, loop, body)

    def _chain(self, loop: For) -> tuple[list[Stmt], Store]:
        """What is around the loop's only store, outermost first, and that store."""
        around, store = sole_reduction(loop)
        used = [*store.indices, *(b.index for s in around if isinstance(s, If) for b in s.bounds)]
        if any(self.loop in index.vars() for index in used):
            raise ScheduleError(f"{store.buffer} is indexed or guarded by {self.loop}")
        if loop.extent > _MOST:
            raise ScheduleError(f"loop {self.loop} has {loop.extent} terms, more than {_MOST}")
        return around, store
