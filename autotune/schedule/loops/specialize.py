"""Step that gives a loop's last iteration code of its own: specialize."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import rewrite
from autotune.program.ir import Alloc, Bound, For, If, Index, Program, Stmt, index, walk
from autotune.schedule.base import register


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Specialize:
    """A copy of the register tile for the last iteration of a loop, where guards are constant.

    for i in 3: alloc t: {.. if i*4+j < 10 ..}   ->
    for i in 3: { if i < 2: alloc t: {..} ; if i >= 2: alloc t_tail: {.. if 8+j < 10 ..} }
    """

    step: ClassVar[str] = "specialize"
    loop: str
    at: str = ""
    """The tile's buffer; empty: a copy of the loop's whole body."""

    def apply(self, program: Program) -> Program:
        loop = rewrite.find_loop(program, self.loop)
        if not self.at:
            return self._copy(program, loop.body, 0)
        found = [
            s
            for s in walk(loop.body)
            if isinstance(s, Alloc) and s.buffer.name.startswith(self.at)
        ]
        if not found:
            raise ScheduleError(f"no buffer {self.at} inside loop {self.loop}")
        for number, alloc in enumerate(found):
            program = self._copy(program, (alloc,), number)
        return program

    def _copy(self, program: Program, body: rewrite.Body, number: int) -> Program:
        path = rewrite.loop_path(program.body, self.loop)
        loop = path[-1]
        assert isinstance(loop, For)
        last = loop.extent - 1
        ranges = {s.var: s.extent for s in walk(program.body) if isinstance(s, For)}
        suffix = f".{self.loop}{number}"
        tail = rewrite.substitute(body, {self.loop: Index((), last)}, ranges)
        tail = rewrite.renamed(rewrite.prune(tail, ranges), suffix)
        main = rewrite.prune(body, ranges | {self.loop: last}) if last else ()
        at = index(self.loop)
        new: list[Stmt] = []
        if main:
            new.append(If((Bound(at, 0, last),), main))
        new.append(If((Bound(at, last, loop.extent),), tail))
        if body is loop.body:
            return rewrite.replace(
                program, loop, (rewrite.with_body(loop, tuple(new) if last else tail),)
            )
        return rewrite.replace(program, body[0], tuple(new) if last else tail)
