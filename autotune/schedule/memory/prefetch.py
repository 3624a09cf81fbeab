"""Steps that ask for data before they are needed: prefetch, prefetch_part, prefetch_next."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.analysis import reads_memory
from autotune.program.ir import Bound, Buffer, For, If, Index, Prefetch, Program, Stmt, index, walk
from autotune.program.rewrite import (
    find_buffer,
    find_loop,
    loads_of,
    loop_path,
    replace,
    with_body,
)
from autotune.schedule.base import register
from autotune.sizes import is_size
from autotune.types import ITEM_BYTES

SPREAD = 3
"""Iterations of a loop of open extent that share a panel: fewer ask for more than memory gives
(chosen)."""
LINE_BYTES = 64
"""Bytes of a cache line, which a prefetch brings."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchPanel:
    """While one panel of a packed buffer is in use, prefetch the next, a few lines an iteration.

    for b: for t in 4: for k in 8: { .. w[b, k, l] .. }   ->
    for b: for t in 4: for k in 8: { prefetch w[b+1, 0, 16*(8*t + k)] ; .. }

    `panel` is the loop whose iterations use a panel each, `loop` the innermost loop that is not
    written out. All iterations between them take their share, so that the bandwidth is even
    however often they come back to the panel; where there are more iterations than lines, the
    first ones take a line each. The last panel prefetches what lies behind it. Of loops whose
    extent only a run knows, the first few iterations take all.
    """

    step: ClassVar[str] = "prefetch"
    buffer: str
    panel: str
    loop: str

    def apply(self, program: Program) -> Program:
        buffer, loop = find_buffer(program, self.buffer), find_loop(program, self.loop)
        inside = self._between(program)
        between = [
            dataclasses.replace(b, extent=SPREAD) if is_size(b.extent) else b for b in inside
        ]
        before = self._before(program, loop, {b.var for b in inside})
        panel = len(before)
        start = [*before, index(self.panel) + 1, *[Index()] * (len(buffer.shape) - panel - 1)]
        elements = math.prod(buffer.shape[panel + 1 :])
        asked = _asked(buffer, start, between, elements)
        lines = -(-elements // _line(buffer))
        if lines < math.prod(b.extent for b in between):
            asked = [If((Bound(_number(between), 0, lines),), tuple(asked))]
        if first := tuple(Bound(index(b.var), 0, SPREAD) for b in inside if is_size(b.extent)):
            asked = [If(first, tuple(asked))]
        return replace(program, loop, (with_body(loop, (*asked, *loop.body)),))

    def _between(self, program: Program) -> list[For]:
        """Loops inside `panel` down to `loop`."""
        path = [s for s in loop_path(program.body, self.loop) if isinstance(s, For)]
        names = [s.var for s in path]
        if self.panel not in names[:-1]:
            raise ScheduleError(f"loop {self.loop} is not inside loop {self.panel}")
        inside = path[names.index(self.panel) + 1 :]
        _check_serial(inside)
        return inside

    def _before(self, program: Program, loop: For, inside: set[str]) -> tuple[Index, ...]:
        """Indices of the dimensions before the one that panels are counted in, where these are the
        same for a whole panel."""
        # A tile of one channel has loops of one iteration, whose variables add nothing.
        counted = {s.var for s in walk(program.body) if isinstance(s, For) and s.extent != 1}
        found = {
            load.indices[:d]
            for load in loads_of(loop.body)
            if load.buffer == self.buffer
            for d, i in enumerate(load.indices[:-1])
            if dict(i.terms).get(self.panel) == 1
            and not i.const
            and i.vars() & counted == {self.panel}
        }
        if len(found) != 1:
            raise ScheduleError(f"{self.buffer} has no panel per iteration of {self.panel}")
        (before,) = found
        if any(reads_memory(i) or i.vars() & inside for i in before):
            raise ScheduleError(f"a panel of {self.buffer} lies at several places")
        return before


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchPart:
    """While loops run, prefetch a part of a packed buffer that is used after them, a few lines an
    iteration: of the same place as is read in them, but for the dimensions given.

    for t in 4: for k in 8: { .. w[b, 0, k, l] .. }   ->
    for t in 4: for k in 8: { prefetch w[b, 1, 0, 16*(8*t + k)] ; .. }   with fixed=((1, 1),)

    `first` is the outermost of the loops, `loop` the innermost that is not written out. The last
    two dimensions are the part. In `fixed`, dimensions and their indices; in `ahead`, those whose
    index is one more. What lies behind the last part may be asked for.
    """

    step: ClassVar[str] = "prefetch_part"
    buffer: str
    first: str
    loop: str
    fixed: tuple[tuple[int, int], ...] = ()
    ahead: tuple[int, ...] = ()

    def apply(self, program: Program) -> Program:
        buffer, loop = find_buffer(program, self.buffer), find_loop(program, self.loop)
        path = [s for s in loop_path(program.body, self.loop) if isinstance(s, For)]
        names = [s.var for s in path]
        if self.first not in names:
            raise ScheduleError(f"loop {self.loop} is not inside loop {self.first}")
        between = path[names.index(self.first) :]
        _check_serial(between)
        start = [*self._place(loop), Index(), Index()]
        for dim, at in self.fixed:
            start[dim] = Index((), at)
        for dim in self.ahead:
            start[dim] = start[dim] + 1
        asked = _asked(buffer, start, between, math.prod(buffer.shape[-2:]))
        return replace(program, loop, (with_body(loop, (*asked, *loop.body)),))

    def _place(self, loop: For) -> tuple[Index, ...]:
        """Indices of the part that is read, where they are not given."""
        given = {*dict(self.fixed), *self.ahead}
        reads = [v.indices[:-2] for v in loads_of(loop.body) if v.buffer == self.buffer]
        if not reads or not given <= set(range(len(reads[0]))):
            raise ScheduleError(f"{self.buffer} has no such part in loop {self.loop}")
        free = {tuple(i for d, i in enumerate(r) if d not in dict(self.fixed)) for r in reads}
        if len(free) != 1:
            raise ScheduleError(f"{self.buffer} is read at several places in loop {self.loop}")
        return reads[0]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchNext:
    """While one iteration of a loop runs, prefetch what the next one reads of a buffer, a few
    lines in each iteration of loops inside it.

    for b: { for k in 8: s[b] sum= x[b, k] ; for k in 8: y[b, k] = x[b, k] - s[b] }   ->
    for b: { for k in 8: s[b] sum= x[b, k]
             for k in 8: { prefetch x[b + 1, 16*k] ; y[b, k] = x[b, k] - s[b] } }

    `outer` is the loop whose next iteration is meant, `first` the outermost of those inside that
    ask, `loop` the innermost that is not written out. Each iteration of `outer` is taken to read
    all that lies between its first element and that of the next one. The last asks for what lies
    behind the buffer.
    """

    step: ClassVar[str] = "prefetch_next"
    buffer: str
    outer: str
    first: str
    loop: str

    def apply(self, program: Program) -> Program:
        buffer, loop = find_buffer(program, self.buffer), find_loop(program, self.loop)
        path = [s for s in loop_path(program.body, self.loop) if isinstance(s, For)]
        names = [s.var for s in path]
        if self.outer not in names or self.first not in names[names.index(self.outer) + 1 :]:
            raise ScheduleError(
                f"loop {self.loop} is not inside {self.first}, and this inside {self.outer}"
            )
        between = path[names.index(self.first) :]
        _check_serial(between)
        start, elements = self._next(buffer, path[names.index(self.outer)])
        asked = _asked(buffer, start, between, elements)
        return replace(program, loop, (with_body(loop, (*asked, *loop.body)),))

    def _next(self, buffer: Buffer, outer: For) -> tuple[list[Index], int]:
        """Where the next iteration begins to read, and how many elements from where this one
        does."""
        inside = {s.var for s in walk(outer.body) if isinstance(s, For)}
        reads = [v.indices for v in loads_of(outer.body) if v.buffer == self.buffer]
        begins = [tuple(_without(i, inside) for i in at) for at in reads]
        if len({tuple(i.terms for i in at) for at in begins}) != 1:
            raise ScheduleError(
                f"{self.buffer} is not read from one place on in each iteration of {outer.var}"
            )
        # The end of a row may have code of its own, which begins there.
        place = [min(same, key=lambda i: i.const) for same in zip(*begins, strict=True)]
        ahead = [i.substitute({outer.var: index(outer.var) + 1}) for i in place]
        moved = (
            (a - i).const * step for a, i, step in zip(ahead, place, buffer.strides, strict=True)
        )
        elements = sum(moved)
        if elements <= 0:
            raise ScheduleError(f"{outer.var} does not go forward in {self.buffer}")
        return ahead, elements


def _without(at: Index, names: set[str]) -> Index:
    """An index where those loops begin."""
    if reads_memory(at):
        raise ScheduleError("what is read at computed places is not known ahead")
    return at.substitute(dict.fromkeys(names, Index()))


def _asked(buffer: Buffer, start: list[Index], between: list[For], elements: int) -> list[Stmt]:
    """Prefetches, for each iteration of these loops, of its share of the lines of `elements`."""
    line, at = _line(buffer), _number(between)
    count = -(-elements // (math.prod(b.extent for b in between) * line))
    out: list[Stmt] = []
    for number in range(count):
        last = start[-1] + at * (count * line) + number * line
        out.append(Prefetch(buffer.name, (*start[:-1], last)))
    return out


def _line(buffer: Buffer) -> int:
    """Elements of a line."""
    return max(1, LINE_BYTES // ITEM_BYTES[buffer.dtype])


def _number(loops: list[For]) -> Index:
    """Iterations of all these loops until now."""
    at = Index()
    for inner in loops:
        at = at * inner.extent + inner.var
    return at


def _check_serial(loops: list[For]) -> None:
    other = next((s for s in loops if s.kind != "serial"), None)
    if other:
        raise ScheduleError(f"loops of a prefetch must be serial, {other.var} is {other.kind}")
