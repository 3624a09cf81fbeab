"""Step that asks for weights before they are needed: prefetch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import For, Index, Prefetch, Program, Stmt, index
from autotune.program.rewrite import (
    find_buffer,
    find_loop,
    loads_of,
    loop_path,
    replace,
    with_body,
)
from autotune.schedule.base import register
from autotune.types import ITEM_BYTES

LINE_BYTES = 64


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchPanel:
    """While one panel of a packed buffer is in use, prefetch the next, a few lines an iteration.

    for b: for t in 4: for k in 8: { .. w[b, k, l] .. }   ->
    for b: for t in 4: for k in 8: { prefetch w[b+1, 0, 16*(8*t + k)] ; .. }

    `panel` is the loop whose iterations use a panel each, `loop` the innermost loop that is not
    written out. All iterations between them take their share, so that the bandwidth is even
    however often they come back to the panel. The last panel prefetches what lies behind it.
    """

    step: ClassVar[str] = "prefetch"
    buffer: str
    panel: str
    loop: str

    def apply(self, program: Program) -> Program:
        buffer, loop = find_buffer(program, self.buffer), find_loop(program, self.loop)
        between = self._between(program)
        place = self._place(loop)
        # Lines of the panel, evenly over the iterations.
        elements = math.prod(buffer.shape[place + 1 :])
        line = max(1, LINE_BYTES // ITEM_BYTES[buffer.dtype])
        count = -(-elements // (math.prod(b.extent for b in between) * line))
        at = Index()
        for inner in between:
            at = at * inner.extent + inner.var
        new: list[Stmt] = []
        for number in range(count):
            indices = [Index()] * len(buffer.shape)
            indices[place] = index(self.panel) + 1
            indices[-1] = indices[-1] + at * (count * line) + number * line
            new.append(Prefetch(self.buffer, tuple(indices)))
        return replace(program, loop, (with_body(loop, (*new, *loop.body)),))

    def _between(self, program: Program) -> list[For]:
        """Loops inside `panel` down to `loop`."""
        path = [s for s in loop_path(program.body, self.loop) if isinstance(s, For)]
        names = [s.var for s in path]
        if self.panel not in names[:-1]:
            raise ScheduleError(f"loop {self.loop} is not inside loop {self.panel}")
        inside = path[names.index(self.panel) + 1 :]
        if any(s.kind != "serial" for s in inside):
            raise ScheduleError(f"loops between {self.panel} and {self.loop} must be serial")
        return inside

    def _place(self, loop: For) -> int:
        """The dimension that the panels are counted in."""
        found = {
            d
            for load in loads_of(loop.body)
            if load.buffer == self.buffer
            for d, i in enumerate(load.indices[:-1])
            if i == index(self.panel)
        }
        if len(found) != 1:
            raise ScheduleError(f"{self.buffer} has no panel per iteration of {self.panel}")
        return found.pop()
