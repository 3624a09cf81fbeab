"""Step peel_all: every iteration of a loop peeled off, with code of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import Index, Program, Stmt
from autotune.program.rewrite import (
    decided,
    find_loop,
    prune,
    ranges_at,
    renamed,
    replace,
    substitute,
)
from autotune.schedule.base import register

_MOST = 16
"""Copies of a body."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PeelAll:
    """Full loop peeling: a copy of the body for each iteration, with its guards decided. Loops
    and local buffers inside are named after it.

    for i in 2: for k: s[i] += a[k] if i < 1 else b[k]   ->
    for k.i0: s[0] += a[k.i0] ; for k.i1: s[1] += b[k.i1]
    """

    step: ClassVar[str] = "peel_all"
    loop: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        if loop.kind != "serial":
            raise ScheduleError(f"loop {self.loop} is {loop.kind}; a serial one is written out")
        if loop.extent > _MOST:
            raise ScheduleError(
                f"loop {self.loop} has {loop.extent} iterations; up to {_MOST} are written out"
            )
        ranges = ranges_at(program, self.loop)
        new: list[Stmt] = []
        for i in range(loop.extent):
            body = substitute(loop.body, {self.loop: Index((), i)}, ranges)
            new += renamed(decided(prune(body, ranges), ranges), f".{self.loop}{i}")
        return replace(program, loop, tuple(new))
