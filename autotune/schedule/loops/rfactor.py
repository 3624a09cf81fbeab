"""Step rfactor: a reduction by partial results (Halide's rfactor, Suriana et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    Alloc,
    Buffer,
    Const,
    For,
    If,
    Index,
    Load,
    Program,
    Stmt,
    Store,
    index,
    walk,
)
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

    def apply(self, program: Program) -> Program:
        top = find_loop(program, self.top)
        stores = stores_of((top,))
        if len(stores) != 1 or stores[0].buffer != self.buffer or not stores[0].combine:
            raise ScheduleError(f"loop {self.top} is not a reduction into {self.buffer} alone")
        store = stores[0]
        chain = [find_loop(program, v) for v in self.loops]
        self._check(top, store)
        dtype = find_buffer(program, self.buffer).dtype
        names = [s.buffer.name for s in walk(program.body) if isinstance(s, Alloc)]
        name = f"{self.buffer}.part"
        if name in names:
            raise ScheduleError(f"{self.buffer} is factored already")
        local = Buffer.dense(name, dtype, tuple(c.extent for c in chain), "register")
        cell = tuple(index(v) for v in self.loops)
        start = Store(name, cell, identity(store.combine or "", dtype))
        update = Store(name, cell, store.value, store.combine)
        inner = _swap((top,), store, update)
        first = (*[Index()] * (len(chain) - 1), cell[-1])
        last = Store(self.buffer, store.indices, Load(name, first), store.combine)
        parts = (
            copied(chain, (start,), "_init"),
            *inner,
            *_mixed(chain, name, store.combine),
            copied(chain[-1:], (last,), "_out"),
        )
        return replace(program, top, (Alloc(local, parts),))

    def _check(self, top: For, store: Store) -> None:
        below = {s.var for s in walk((top,)) if isinstance(s, For)}
        outside = [v for v in self.loops if v not in below]
        if not self.loops or outside or len(set(self.loops)) != len(self.loops):
            raise ScheduleError(f"{self.loops} are not loops inside {self.top}")
        used = frozenset[str]().union(*(i.vars() for i in store.indices))
        if used & below:
            raise ScheduleError(f"{self.buffer} is indexed by a loop inside {self.top}")


def _mixed(chain: list[For], name: str, combine: str | None) -> Body:
    """The partial results of every loop but the last, combined into those at 0."""
    out: list[Stmt] = []
    for number, loop in enumerate(chain[:-1]):
        if loop.extent == 1:
            continue
        suffix = f"_mix{number or ''}"
        inner = chain[number + 1 :]
        done = [Index()] * number
        rest = [index(c.var + suffix) for c in inner]
        to = (*done, Index(), *rest)
        source = (*done, index(f"{loop.var}_out") + 1, *rest)
        body = chain_stmt(inner, (Store(name, to, Load(name, source), combine),), suffix)
        out.append(For(f"{loop.var}_out", loop.extent - 1, loop.kind, (body,)))
    return tuple(out)


def sole_reduction(loop: For) -> tuple[list[Stmt], Store]:
    """What is around a loop's only store, outermost first, and that store. Raises ScheduleError
    where there are more, or where it is of no reduction."""
    around: list[Stmt] = []
    stmts = loop.body
    while len(stmts) == 1 and isinstance(stmts[0], For | If):
        around.append(stmts[0])
        stmts = stmts[0].body
    store = stmts[0]
    if len(stmts) != 1 or not isinstance(store, Store) or not store.combine:
        raise ScheduleError(f"loop {loop.var} holds more than one reduction")
    return around, store


def identity(combine: str, dtype: str) -> Const:
    """The value that changes nothing when combined."""
    real = dtype.startswith("float")
    least = float("-inf") if real else lowest(dtype)
    most = float("inf") if real else highest(dtype)
    values = {"sum": 0, "prod": 1, "max": least, "peak": least, "min": most}
    value = values[combine]
    return Const(float(value) if real else int(value), dtype)


def _swap(body: Body, old: Stmt, new: Stmt) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        if stmt is old:
            out.append(new)
        elif isinstance(stmt, For | Alloc | If):
            out.append(with_body(stmt, _swap(stmt.body, old, new)))
        else:
            out.append(stmt)
    return tuple(out)
