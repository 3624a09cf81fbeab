"""Step that keeps what a nest accumulates in registers: cache_write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir
from autotune.program.analysis import interval
from autotune.program.rewrite import (
    Body,
    drop_alloc,
    find_buffer,
    find_loop,
    loads_of,
    map_loads,
    ranges_at,
    replace,
    stores_of,
    with_body,
)
from autotune.schedule.base import register
from autotune.schedule.loops.nest import chain_stmt, copied, perfect_chain
from autotune.sizes import surely_at_most, surely_less


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheWrite:
    """Accumulate a tile of `buffer` in registers; the tile loops sink below the reduction.

    for i in 4: { y[i] = 0 ; for k: y[i] += .. ; z[i] = f(y[i]) }   ->
    alloc y.reg[4]: { for i_init: y.reg[i] = 0 ; for k: for i: y.reg[i] += .. ;
                      for i_out: z[i] = f(y.reg[i]) }

    A guard on the last tile loop is widened to whole vectors, and left away where a cell begins,
    where that reads nothing outside.
    """

    step: ClassVar[str] = "cache_write"
    buffer: str
    loops: tuple[str, ...]

    def apply(self, program: ir.Program) -> ir.Program:
        if not self.loops:
            raise ScheduleError(f"no loops of a tile of {self.buffer}")
        chain = perfect_chain(find_loop(program, self.loops[0]), len(self.loops))
        if tuple(c.var for c in chain) != self.loops:
            raise ScheduleError(f"{self.loops} are not directly nested in this order")
        body, bounds = _open_guard(chain[-1].body)
        cell = self._cell(program, body)
        self._check_apart(body)
        inside = len(_loads(body, self.buffer))
        name = f"{self.buffer}.reg"
        if any(isinstance(x, ir.Alloc) and x.buffer.name == name for x in ir.walk(program.body)):
            raise ScheduleError(f"{self.buffer} is kept in registers already")
        old = find_buffer(program, self.buffer)
        output = old.scope == "param" or len(_loads(program.body, self.buffer)) > inside
        local = ir.Buffer.dense(name, old.dtype, tuple(c.extent for c in chain), "register")
        tile = tuple(ir.index(c.var) for c in chain)
        body = _redirect(body, self.buffer, name, tile)
        if output:
            body = (*body, ir.Store(self.buffer, cell, ir.Load(name, tile)))
        wide = widened(program, bounds, body, chain[-1])
        ranges = _ranges(program)
        parts: list[ir.Stmt] = []
        for number, stmt in enumerate(body):
            if isinstance(stmt, ir.For):
                parts.append(_sink(stmt, chain, wide))
            elif stmt.buffer == name:  # type: ignore[union-attr]
                own = () if _reads_inside(program, (stmt,), ranges) else bounds
                parts.append(copied(chain, _guarded(stmt, own), "_init"))
            else:
                suffix = "_out" if number == len(body) - 1 else f"_out{number}"
                parts.append(copied(chain, _guarded(stmt, bounds), suffix))
        program = replace(program, chain[0], (ir.Alloc(local, tuple(parts)),))
        return program if output else drop_alloc(program, self.buffer)

    def _cell(self, program: ir.Program, body: Body) -> tuple[ir.Index, ...]:
        stores = stores_of(body, self.buffer)
        if not stores or len(stores) != len(stores_of(program.body, self.buffer)):
            raise ScheduleError(f"{self.buffer} is not computed in these loops alone")
        cells = {s.indices for s in stores}
        cells |= {v.indices for v in _loads(body, self.buffer)}
        if len(cells) != 1:
            raise ScheduleError(f"{self.buffer} is used at several elements")
        cell = cells.pop()
        used = frozenset[str]().union(*(i.vars() for i in cell))
        if not set(self.loops) <= used:
            raise ScheduleError(f"{self.buffer} does not depend on all of {self.loops}")
        if not used <= ranges_at(program, self.loops[-1]).keys():
            raise ScheduleError(f"{self.buffer} is indexed by loops inside {self.loops}")
        return cell

    def _check_apart(self, body: Body) -> None:
        """Each statement of the body may run for the whole tile before the next one."""
        if not all(isinstance(s, ir.For | ir.Store) for s in body):
            raise ScheduleError(f"{self.loops} hold more than stores and a reduction")
        if sum(isinstance(s, ir.For) for s in body) > 1:
            raise ScheduleError(f"{self.loops} hold more than one reduction")
        for store in stores_of(body):
            used = frozenset[str]().union(*(i.vars() for i in store.indices))
            if not set(self.loops) <= used:
                raise ScheduleError(f"{store.buffer} is written by several iterations")
            if any(v.indices != store.indices for v in _loads(body, store.buffer)):
                raise ScheduleError(f"{store.buffer} is read at elements of other iterations")


def _loads(body: Body, buffer: str) -> list[ir.Load]:
    return [v for v in loads_of(body) if v.buffer == buffer]


def _open_guard(body: Body) -> tuple[Body, tuple[ir.Bound, ...]]:
    if len(body) == 1 and isinstance(body[0], ir.If):
        return body[0].body, body[0].bounds
    return body, ()


def _redirect(body: Body, buffer: str, name: str, cell: tuple[ir.Index, ...]) -> Body:
    """Use `name[cell]` for every element of `buffer`."""

    def load(value: ir.Load) -> ir.Value | None:
        return ir.Load(name, cell) if value.buffer == buffer else None

    def store(stmts: Body) -> Body:
        out: list[ir.Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, ir.Store) and stmt.buffer == buffer:
                out.append(ir.Store(name, cell, stmt.value, stmt.combine))
            else:
                inner = isinstance(stmt, ir.For | ir.Alloc | ir.If)
                out.append(with_body(stmt, store(stmt.body)) if inner else stmt)  # type: ignore[union-attr]
        return tuple(out)

    return store(map_loads(body, load))


def _sink(stmt: ir.For, chain: Sequence[ir.For], bounds: tuple[ir.Bound, ...]) -> ir.Stmt:
    """The tile loops inside the reduction loops."""
    if len(stmt.body) == 1 and isinstance(stmt.body[0], ir.For):
        return with_body(stmt, (_sink(stmt.body[0], chain, bounds),))
    body = (ir.If(bounds, stmt.body),) if bounds else stmt.body
    return with_body(stmt, (chain_stmt(list(chain), body),))


def widened(
    program: ir.Program, bounds: tuple[ir.Bound, ...], body: Body, lane: ir.For
) -> tuple[ir.Bound, ...]:
    """Bounds on the lane loop, rounded up to whole vectors where no load leaves its buffer."""
    ranges = _ranges(program)
    out: list[ir.Bound] = []
    for bound in bounds:
        if bound.index.coefficient(lane.var) != 1 or not _stays_inside(
            program, body, bound, ranges
        ):
            out.append(bound)
        else:
            out.append(ir.Bound(bound.index, bound.lo, -(-bound.hi // lane.extent) * lane.extent))
    return tuple(out)


def _stays_inside(
    program: ir.Program, body: Body, bound: ir.Bound, ranges: dict[str, int]
) -> bool:
    """Whether the reductions read inside their buffers wherever the bound's variables lead."""
    reductions = tuple(s for s in body if isinstance(s, ir.For))
    return _reads_inside(program, reductions, ranges, bound.index.vars())


def _reads_inside(
    program: ir.Program, body: Body, ranges: dict[str, int], among: frozenset[str] | None = None
) -> bool:
    """Whether no load leaves its buffer at any sizes by an index of these variables, or any."""
    buffers = {p.name: p for p in program.params}
    buffers |= {s.buffer.name: s.buffer for s in ir.walk(program.body) if isinstance(s, ir.Alloc)}
    for load in loads_of(body):
        buffer = buffers.get(load.buffer)
        if buffer is None:
            continue
        dims = zip(load.indices, buffer.shape, buffer.halo, strict=True)
        for i, extent, (before, after) in dims:
            if among is not None and not i.vars() & among:
                continue
            lo, hi = interval(i, ranges)
            if not (surely_at_most(-before, lo) and surely_less(hi, extent + after)):
                return False
    return True


def _ranges(program: ir.Program) -> dict[str, int]:
    return {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}


def _guarded(stmt: ir.Stmt, bounds: tuple[ir.Bound, ...]) -> Body:
    return (ir.If(bounds, (stmt,)),) if bounds else (stmt,)
