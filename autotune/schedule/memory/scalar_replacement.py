"""Step scalar_replacement: array elements in registers (Callahan, Carr & Kennedy 1990)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import rewrite
from autotune.program.ir import Alloc, Bound, Buffer, For, If, Load, Program, Stmt, Store, index
from autotune.schedule.base import register
from autotune.schedule.loops.nest import copied, require_new


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarReplacement:
    """Scalar replacement: elements of a buffer that do not change along a loop are read before it,
    into registers; a cache_read in register scope.

    for y: { .. for k in 3: for l in 16: s[l] += a[y + k, l] * w[k, l] }   ->
    alloc w.kept[3, 16] register: {
      for k_w_kept in 3: for l_w_kept in 16: w.kept[k_w_kept, l_w_kept] = w[k_w_kept, l_w_kept]
      for y: { .. for k in 3: for l in 16: s[l] += a[y + k, l] * w.kept[k, l] } }
    """

    step: ClassVar[str] = "scalar_replacement"
    buffer: str
    loop: str

    def apply(self, program: Program) -> Program:
        loop = rewrite.find_loop(program, self.loop)
        source = rewrite.find_buffer(program, self.buffer)
        found = {v for v in rewrite.loads_of((loop,)) if v.buffer == self.buffer}
        if len(found) != 1:
            raise ScheduleError(f"{self.buffer} is not read at one place in loop {self.loop}")
        (load,) = found
        if rewrite.stores_of((loop,), self.buffer) or source.scope == "register":
            raise ScheduleError(f"{self.buffer} cannot be read ahead of loop {self.loop}")
        path = _path(loop.body, load) or []
        used = {v for i in load.indices for v in i.vars()}
        chain = [s for s in path if isinstance(s, For) and s.var in used]
        known = rewrite.ranges_at(program, self.loop).keys() - {self.loop}
        if not used <= known | {c.var for c in chain}:
            raise ScheduleError(f"{self.buffer} changes along loop {self.loop}")
        suffix = f"_{self.buffer}_kept"
        require_new(program, *(c.var + suffix for c in chain))
        name = f"{self.buffer}.kept"
        local = Buffer.dense(name, source.dtype, tuple(c.extent for c in chain), "register")
        kept = Load(name, tuple(index(c.var) for c in chain))
        fill: rewrite.Body = (Store(name, kept.indices, load),)
        guards = self._guards(path, used, known | {c.var for c in chain})
        body = (If(guards, fill),) if guards else fill
        first = copied(chain, body, suffix)
        (inner,) = rewrite.map_loads((loop,), lambda v: kept if v == load else None)
        return rewrite.replace(program, loop, (Alloc(local, (first, inner)),))

    def _guards(self, path: list[Stmt], used: set[str], known: set[str]) -> tuple[Bound, ...]:
        """What guards the elements that are read: bounds on what they are indexed by."""
        bounds = [b for s in path if isinstance(s, If) for b in s.bounds]
        bounds = [b for b in bounds if b.index.vars() & used]
        if any(not b.index.vars() <= known for b in bounds):
            raise ScheduleError(f"{self.buffer} is read under a guard that changes")
        return tuple(bounds)


def _path(body: rewrite.Body, load: Load) -> list[Stmt] | None:
    """Statements from the outermost down to the store that reads the element."""
    for stmt in body:
        if isinstance(stmt, For | Alloc | If):
            below = _path(stmt.body, load)
            if below is not None:
                return [stmt, *below]
        elif isinstance(stmt, Store) and load in rewrite.loads_of((stmt,)):
            return [stmt]
    return None
