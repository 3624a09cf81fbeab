"""Step that lets buffers lie where others were: reuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.analysis import reads_memory
from autotune.program.ir import NESTED, Alloc, For, If, Load, Program, Stmt, Store, walk
from autotune.program.rewrite import Body, loads_of, map_loads, stores_of, with_body
from autotune.schedule.base import register
from autotune.schedule.loops.compute import root_body


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Buffers take the memory of equal ones that nothing reads or writes any more.

    for i: b[i] = a[i] ; for i: c[i] = b[i] ; ..
    ->   for i: b[i] = a[i] ; for i: a[i] = b[i] ; ..
    """

    step: ClassVar[str] = "reuse"
    buffers: tuple[str, ...]
    of: tuple[str, ...]
    """For each of them the buffer whose memory it takes, which keeps its name; buffers that take
    the same one's are named in the order of their use."""

    def apply(self, program: Program) -> Program:
        local = {s.buffer.name: s.buffer for s in walk(program.body) if isinstance(s, Alloc)}
        used = _used(root_body(program))
        last: dict[str, str] = {}
        if len(self.buffers) != len(self.of):
            raise ScheduleError(f"{len(self.buffers)} buffers for the memory of {len(self.of)}")
        for name, place in zip(self.buffers, self.of, strict=True):
            if not {name, place} <= local.keys() or name == place or place in self.buffers:
                raise ScheduleError(f"{name} and {place} are not two buffers, the second kept")
            new, old = local[name], local[place]
            if dataclasses.replace(new, name=place) != old or old.scope != "scratch":
                raise ScheduleError(f"{name} does not fit where {place} is")
            before, after = used.get(last.get(place, place)), used.get(name)
            if before and after and before[1] >= after[0]:
                raise ScheduleError(f"{place} is used beside, or after, {name}")
            last[place] = name
        moved = dict(zip(self.buffers, self.of, strict=True))
        return dataclasses.replace(program, body=_moved(program.body, moved))


def _used(root: Body) -> dict[str, tuple[int, int]]:
    """By buffer, the first and the last nest that load or store it."""
    out: dict[str, tuple[int, int]] = {}
    for number, nest in enumerate(root):
        plain = all(isinstance(s, For | If | Store) for s in walk((nest,)))
        accesses = [*loads_of((nest,)), *(Load(s.buffer, s.indices) for s in stores_of((nest,)))]
        if not plain or any(reads_memory(i) for access in accesses for i in access.indices):
            raise ScheduleError("memory is reused between plain loops only")
        for access in accesses:
            out[access.buffer] = out.get(access.buffer, (number, 0))[0], number
    return out


def _moved(body: Body, places: Mapping[str, str]) -> Body:
    """Statements that load and store other buffers instead, and no longer make their own."""

    def load(value: Load) -> Load | None:
        new = places.get(value.buffer)
        return Load(new, value.indices) if new else None

    def stored(stmts: Body) -> Body:
        out: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, Store) and stmt.buffer in places:
                out.append(dataclasses.replace(stmt, buffer=places[stmt.buffer]))
            elif isinstance(stmt, Alloc) and stmt.buffer.name in places:
                out += stored(stmt.body)
            else:
                inner = stored(stmt.body) if isinstance(stmt, NESTED) else ()
                out.append(with_body(stmt, inner) if inner else stmt)
        return tuple(out)

    return stored(map_loads(body, load))
