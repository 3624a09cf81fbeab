"""Step rfactor: a reduction by partial results (Halide's rfactor, Suriana et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir
from autotune.program.rewrite import Body, find_buffer, find_loop, replace, stores_of, with_body
from autotune.schedule.base import register
from autotune.schedule.loops.nest import chain_stmt, copied
from autotune.types import highest, lowest


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RFactor:
    """Reduce into one partial result per iteration of `loops`, then combine those.

    for k: for l in 16: s += a[k*16+l]   ->
    alloc s.part[16]: { for l_init: s.part[l] = 0 ; for k: for l: s.part[l] += .. ;
                        for l_out: s += s.part[l] }

    With two or more loops, partial results are first added along all but the last loop, so that
    only one vector is left to reduce: for u_out in U-1: for l_mix: s.part[0, l] += s.part[u+1, l].
    """

    step: ClassVar[str] = "rfactor"
    buffer: str
    top: str
    loops: tuple[str, ...]

    def apply(self, program: ir.Program) -> ir.Program:
        top = find_loop(program, self.top)
        stores = stores_of((top,))
        if len(stores) != 1 or stores[0].buffer != self.buffer or not stores[0].combine:
            raise ScheduleError(f"loop {self.top} is not a reduction into {self.buffer} alone")
        store = stores[0]
        chain = [find_loop(program, v) for v in self.loops]
        self._check(top, store)
        dtype = find_buffer(program, self.buffer).dtype
        names = [s.buffer.name for s in ir.walk(program.body) if isinstance(s, ir.Alloc)]
        name = f"{self.buffer}.part"
        if name in names:
            raise ScheduleError(f"{self.buffer} is factored already")
        local = ir.Buffer.dense(name, dtype, tuple(c.extent for c in chain), "register")
        cell = tuple(ir.index(v) for v in self.loops)
        start = ir.Store(name, cell, identity(store.combine or "", dtype))
        update = ir.Store(name, cell, store.value, store.combine)
        inner = _swap((top,), store, update)
        first = (*[ir.Index()] * (len(chain) - 1), cell[-1])
        last = ir.Store(self.buffer, store.indices, ir.Load(name, first), store.combine)
        parts = (
            copied(chain, (start,), "_init"),
            *inner,
            *_mixed(chain, name, store.combine),
            copied(chain[-1:], (last,), "_out"),
        )
        return replace(program, top, (ir.Alloc(local, parts),))

    def _check(self, top: ir.For, store: ir.Store) -> None:
        below = {s.var for s in ir.walk((top,)) if isinstance(s, ir.For)}
        outside = [v for v in self.loops if v not in below]
        if not self.loops or outside or len(set(self.loops)) != len(self.loops):
            raise ScheduleError(f"{self.loops} are not loops inside {self.top}")
        used = frozenset[str]().union(*(i.vars() for i in store.indices))
        if used & below:
            raise ScheduleError(f"{self.buffer} is indexed by a loop inside {self.top}")


def _mixed(chain: list[ir.For], name: str, combine: str | None) -> Body:
    """The partial results of every loop but the last, combined into those at 0."""
    out: list[ir.Stmt] = []
    for number, loop in enumerate(chain[:-1]):
        if loop.extent == 1:
            continue
        suffix = f"_mix{number or ''}"
        inner = chain[number + 1 :]
        done = [ir.Index()] * number
        rest = [ir.index(c.var + suffix) for c in inner]
        to = (*done, ir.Index(), *rest)
        source = (*done, ir.index(f"{loop.var}_out") + 1, *rest)
        body = chain_stmt(inner, (ir.Store(name, to, ir.Load(name, source), combine),), suffix)
        out.append(ir.For(f"{loop.var}_out", loop.extent - 1, loop.kind, (body,)))
    return tuple(out)


def sole_reduction(loop: ir.For) -> tuple[list[ir.Stmt], ir.Store]:
    """What is around a loop's only store, outermost first, and that store. Raises ScheduleError
    where there are more, or where it is of no reduction."""
    around: list[ir.Stmt] = []
    stmts = loop.body
    while len(stmts) == 1 and isinstance(stmts[0], ir.For | ir.If):
        around.append(stmts[0])
        stmts = stmts[0].body
    store = stmts[0]
    if len(stmts) != 1 or not isinstance(store, ir.Store) or not store.combine:
        raise ScheduleError(f"loop {loop.var} holds more than one reduction")
    return around, store


def identity(combine: str, dtype: str) -> ir.Const:
    """The value that changes nothing when combined."""
    real = dtype.startswith("float")
    least = float("-inf") if real else lowest(dtype)
    most = float("inf") if real else highest(dtype)
    values = {"sum": 0, "prod": 1, "max": least, "peak": least, "min": most}
    value = values[combine]
    return ir.Const(float(value) if real else int(value), dtype)


def _swap(body: Body, old: ir.Stmt, new: ir.Stmt) -> Body:
    out: list[ir.Stmt] = []
    for stmt in body:
        if stmt is old:
            out.append(new)
        elif isinstance(stmt, ir.For | ir.Alloc | ir.If):
            out.append(with_body(stmt, _swap(stmt.body, old, new)))
        else:
            out.append(stmt)
    return tuple(out)
