"""Step that narrows a local buffer's life: store_at."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.program.analysis import interval
from autotune.schedule.base import register


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAt:
    """Keep a scratch buffer only for one iteration of a loop; dimensions fixed there disappear,
    and of others only the part that an iteration uses is left.

    alloc t[8, 64]: for i in 8: { for j: t[i, j] = .. ; .. t[i, j] .. }   ->
    for i in 8: alloc t[64]: { for j: t[j] = .. ; .. t[j] .. }

    A halo, which the program itself fills, becomes a part of what is kept.
    """

    step: ClassVar[str] = "store_at"
    buffer: str
    loop: str
    scope: ir.Scope = "scratch"
    """shared: of the block that an iteration is; register: every thread of it has its own."""

    def apply(self, program: ir.Program) -> ir.Program:
        if self.scope not in ("scratch", "shared", "register"):
            raise ScheduleError(
                f"{self.buffer} can be kept in scratch, shared or register, not {self.scope}"
            )
        program = _without_halo(program, self._buffer(program))
        old = self._buffer(program)
        loop = rewrite.find_loop(program, self.loop)
        inside = self._accesses(loop.body)
        if len(inside) != len(self._accesses(program.body)):
            raise ScheduleError(f"{self.buffer} is used outside loop {self.loop}")
        if not inside:
            raise ScheduleError(f"{self.buffer} is not used in loop {self.loop}")
        windows = [self._window(program, loop, inside, d) for d in range(len(old.shape))]
        if self.scope == "shared":
            # Of a block's threads each has accesses of its own.
            windows = [
                w if not w.moves else _whole(e) for w, e in zip(windows, old.shape, strict=True)
            ]
        sizes = [min(w.size, e) for w, e in zip(windows, old.shape, strict=True)]
        kept = tuple(d for d, w in enumerate(windows) if w.moves)
        shape = tuple(sizes[d] for d in kept)
        new = ir.Buffer.dense(self.buffer, old.dtype, shape, self.scope)
        starts = {d: w.start for d, w in enumerate(windows) if w.size <= old.shape[d]}
        body = rewrite.keep_dims(loop.body, self.buffer, kept, starts)
        program = rewrite.replace(
            program, loop, (rewrite.with_body(loop, (ir.Alloc(new, body),)),)
        )
        return _drop_outer(program, old)

    def _buffer(self, program: ir.Program) -> ir.Buffer:
        for stmt in ir.walk(program.body):
            if isinstance(stmt, ir.Alloc) and stmt.buffer.name == self.buffer:
                return stmt.buffer
        raise ScheduleError(f"no local buffer {self.buffer}")

    def _accesses(self, body: rewrite.Body) -> list[tuple[ir.Index, ...]]:
        loads = [v.indices for v in rewrite.loads_of(body) if v.buffer == self.buffer]
        return loads + [s.indices for s in rewrite.stores_of(body, self.buffer)]

    def _window(
        self, program: ir.Program, loop: ir.For, inside: list[tuple[ir.Index, ...]], dim: int
    ) -> _Window:
        """The part of a dimension that one iteration uses: all accesses start at one place, set
        by loops at or outside `loop`, and go on by loops inside it."""
        known = rewrite.ranges_at(program, self.loop).keys()
        whole = _whole(self._buffer(program).shape[dim])
        starts = {_known_part(i[dim], known) for i in inside}
        if len(starts) != 1:
            return whole
        start = starts.pop()
        ranges = {s.var: s.extent for s in ir.walk(loop.body) if isinstance(s, ir.For)}
        rests = [i[dim] - start for i in inside]
        if any(not r.vars() <= ranges.keys() for r in rests):
            return whole
        ends = [interval(r, ranges) for r in rests]
        if min(low for low, _ in ends) < 0:
            return whole
        size = 1 + max(high for _, high in ends)
        return _Window(start=start, size=size, moves=any(r.terms for r in rests) or size > 1)


def _without_halo(program: ir.Program, old: ir.Buffer) -> ir.Program:
    """The program with the halo of a local buffer as elements of its own."""
    if not any(before or after for before, after in old.halo):
        return program
    shape = tuple(e + sum(h) for e, h in zip(old.shape, old.halo, strict=True))
    new = ir.Buffer.dense(old.name, old.dtype, shape, old.scope)
    starts = {d: ir.Index((), -before) for d, (before, _) in enumerate(old.halo)}
    alloc = next(s for s in ir.walk(program.body) if isinstance(s, ir.Alloc) and s.buffer is old)
    body = rewrite.keep_dims(alloc.body, old.name, tuple(range(len(shape))), starts)
    return rewrite.replace(program, alloc, (ir.Alloc(new, body),))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Elements start .. start + size - 1 of a dimension; `moves`: not always the same one."""

    start: ir.Index
    size: int
    moves: bool


def _whole(extent: int) -> _Window:
    return _Window(start=ir.Index(), size=extent, moves=True)


def _known_part(value: ir.Index, known: Set[str]) -> ir.Index:
    """The terms of an index that are the same throughout an iteration of the known loops; its
    constant goes with them where nothing else is left."""
    terms = tuple(t for t in value.terms if ir.Index((t,)).vars() <= known)
    return value if len(terms) == len(value.terms) else ir.Index(terms)


def _drop_outer(program: ir.Program, old: ir.Buffer) -> ir.Program:
    """Remove the alloc that the narrower one replaces."""
    for stmt in ir.walk(program.body):
        if isinstance(stmt, ir.Alloc) and stmt.buffer is old:
            return rewrite.replace(program, stmt, stmt.body)
    return rewrite.drop_alloc(program, old.name)
