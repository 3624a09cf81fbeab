"""Step peel_ends: loop peeling, of first and last iterations, so that what only the borders need
(clamped indices, guards) is gone from the iterations between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import rewrite
from autotune.program.analysis import Ranges
from autotune.program.ir import NESTED, Bound, For, If, Index, Program, Stmt, index
from autotune.schedule.base import register

_MOST = 8
"""Iterations peeled at an end."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PeelEnds:
    """The first and the last iterations of a loop as code of their own, before and behind it.

    for i in 10: a[i] = b[clamp(i - 1, 0, 8)]   ->
    a[0] = b[0] ; for i in 9: a[i + 1] = b[i]                              (first=1, last=0)
    """

    step: ClassVar[str] = "peel_ends"
    loop: str
    first: int = 0
    last: int = 0

    def apply(self, program: Program) -> Program:
        loop = rewrite.find_loop(program, self.loop)
        if loop.kind != "serial":
            raise ScheduleError(f"loop {self.loop} is {loop.kind}; a serial one is peeled")
        if not 0 <= min(self.first, self.last) <= max(self.first, self.last) <= _MOST:
            raise ScheduleError(f"up to {_MOST} iterations are peeled at an end")
        between = loop.extent - self.first - self.last
        if between < 0:
            raise ScheduleError(f"loop {self.loop} has only {loop.extent} iterations")
        ranges = rewrite.ranges_at(program, self.loop)
        new: list[Stmt] = []
        for i in range(self.first):
            new += self._copy(loop, i, ranges)
        if between:
            inside = {**ranges, self.loop: between}
            body = rewrite.substitute(
                loop.body, {self.loop: index(self.loop) + self.first}, inside
            )
            body = rewrite.decided(rewrite.prune(body, inside), inside)
            new.append(For(loop.var, between, loop.kind, body))
        for i in range(loop.extent - self.last, loop.extent):
            new += self._copy(loop, i, ranges)
        return rewrite.replace(program, loop, tuple(new))

    def _copy(self, loop: For, iteration: int, ranges: Ranges) -> rewrite.Body:
        body = rewrite.substitute(loop.body, {self.loop: Index((), iteration)}, ranges)
        body = rewrite.decided(rewrite.prune(shortened(body), ranges), ranges)
        return rewrite.renamed(body, f".{self.loop}{iteration}")


def shortened(body: rewrite.Body) -> rewrite.Body:
    """Loops that a guard ends early, with no more iterations than those.

    for i in 16: if i + 8 < 20: a[i + 8]   ->   for i in 12: a[i + 8]"""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For):
            ends = [_end(b, stmt) for b in _guards(stmt.body)]
            extent = max(0, min([stmt.extent, *ends]))
            if extent:
                out.append(For(stmt.var, extent, stmt.kind, shortened(stmt.body)))
        elif isinstance(stmt, NESTED):
            out.append(rewrite.with_body(stmt, shortened(stmt.body)))
        else:
            out.append(stmt)
    return tuple(out)


def _guards(body: rewrite.Body) -> tuple[Bound, ...]:
    """Bounds under which all of a body stands, below loops too."""
    if len(body) != 1:
        return ()
    (stmt,) = body
    if isinstance(stmt, If):
        return (*stmt.bounds, *_guards(stmt.body))
    return _guards(stmt.body) if isinstance(stmt, For) else ()


def _end(bound: Bound, loop: For) -> int:
    """The iteration from which on a bound of this loop alone never holds."""
    alone = bound.index == index(loop.var) + bound.index.const
    return bound.hi - bound.index.const if alone else loop.extent
