"""Step that narrows a local buffer's life: store_at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    Alloc,
    Buffer,
    Index,
    Program,
    walk,
)
from autotune.program.rewrite import (
    Body,
    drop_alloc,
    find_loop,
    keep_dims,
    loads_of,
    ranges_at,
    replace,
    stores_of,
    with_body,
)
from autotune.schedule.base import register


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAt:
    """Keep a scratch buffer only for one iteration of a loop; dimensions fixed there disappear.

    alloc t[8, 64]: for i in 8: { for j: t[i, j] = .. ; .. t[i, j] .. }   ->
    for i in 8: alloc t[64]: { for j: t[j] = .. ; .. t[j] .. }
    """

    step: ClassVar[str] = "store_at"
    buffer: str
    loop: str
    scope: str = "scratch"
    """shared: of the block that an iteration is; register: every thread of it has its own."""

    def apply(self, program: Program) -> Program:
        if self.scope not in ("scratch", "shared", "register"):
            raise ScheduleError(
                f"{self.buffer} can be kept in scratch, shared or register, not {self.scope}"
            )
        old = self._buffer(program)
        loop = find_loop(program, self.loop)
        inside = self._accesses(loop.body)
        if len(inside) != len(self._accesses(program.body)):
            raise ScheduleError(f"{self.buffer} is used outside loop {self.loop}")
        if not inside:
            raise ScheduleError(f"{self.buffer} is not used in loop {self.loop}")
        fixed = self._fixed(program, inside, len(old.shape))
        kept = tuple(d for d in range(len(old.shape)) if d not in fixed)
        shape = tuple(old.shape[d] for d in kept)
        new = Buffer.dense(self.buffer, old.dtype, shape, self.scope)
        body = keep_dims(loop.body, self.buffer, kept)
        program = replace(program, loop, (with_body(loop, (Alloc(new, body),)),))
        return _drop_outer(program, old)

    def _buffer(self, program: Program) -> Buffer:
        for stmt in walk(program.body):
            if isinstance(stmt, Alloc) and stmt.buffer.name == self.buffer:
                if any(stmt.buffer.halo) and any(b or a for b, a in stmt.buffer.halo):
                    raise ScheduleError(f"{self.buffer} has a halo")
                return stmt.buffer
        raise ScheduleError(f"no local buffer {self.buffer}")

    def _accesses(self, body: Body) -> list[tuple[Index, ...]]:
        loads = [v.indices for v in loads_of(body) if v.buffer == self.buffer]
        return loads + [s.indices for s in stores_of(body, self.buffer)]

    def _fixed(self, program: Program, inside: list[tuple[Index, ...]], rank: int) -> set[int]:
        """Dimensions that every access indexes alike, by loops at or outside `loop`."""
        known = ranges_at(program, self.loop).keys()
        return {
            d
            for d in range(rank)
            if len({i[d] for i in inside}) == 1 and inside[0][d].vars() <= known
        }


def _drop_outer(program: Program, old: Buffer) -> Program:
    """Remove the alloc that the narrower one replaces."""
    for stmt in walk(program.body):
        if isinstance(stmt, Alloc) and stmt.buffer is old:
            return replace(program, stmt, stmt.body)
    return drop_alloc(program, old.name)
