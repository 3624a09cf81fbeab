"""Steps for work that a block's threads do together on one value: tree, solo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    Alloc,
    Barrier,
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
)
from autotune.program.rewrite import (
    Body,
    find_buffer,
    find_loop,
    loop_path,
    replace,
    stores_of,
    with_body,
)
from autotune.schedule.base import register
from autotune.schedule.loops import chain_stmt, copied, perfect_chain, require_new
from autotune.schedule.reduce import identity


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Reduce with all threads of a block: each its part, then halves onto halves.

    for t in 4: for k in 9: s += a[k*4+t]   ->
    alloc s.tree[4] shared: {
        for t in 4 thread.x: alloc s.own[1] register: {
            s.own[0] = 0 ; for k in 9: s.own[0] += .. ; s.tree[t] = s.own[0] }
        barrier ; for t_2 in 2 thread.x: s.tree[t_2] += s.tree[t_2 + 2] ; barrier ; ..
        for t_0 in 1 thread.x: s += s.tree[0] ; barrier }

    `lanes`: a loop inside whose iterations are kept apart until the end, in vectors; or empty.
    """

    step: ClassVar[str] = "tree"
    buffer: str
    loop: str
    lanes: str = ""

    def apply(self, program: Program) -> Program:
        top = find_loop(program, self.loop)
        chain, body = _chain(top)
        store = self._store(body)
        threads = top.extent
        if threads & (threads - 1):
            raise ScheduleError(f"loop {self.loop} has {threads} iterations, not a power of two")
        lanes = next((loop for loop in chain[1:] if loop.var == self.lanes), None)
        if self.lanes and lanes is None:
            raise ScheduleError(f"no loop {self.lanes} directly inside {self.loop}")
        used = frozenset[str]().union(*(i.vars() for i in store.indices))
        if used & {loop.var for loop in chain}:
            raise ScheduleError(f"{self.buffer} is indexed by a loop inside {self.loop}")
        name = self.buffer
        dtype = find_buffer(program, name).dtype
        count = lanes.extent if lanes else 1
        own = Buffer.dense(f"{name}.own", dtype, (count,), "register")
        tree = Buffer.dense(f"{name}.tree", dtype, (threads,), "shared")
        cell = (index(lanes.var) if lanes else Index(),)
        inner = _with_store(chain[1:], body, Store(own.name, cell, store.value, store.combine))
        start: Stmt = Store(own.name, cell, identity(store.combine or "", dtype))
        parts: list[Stmt] = [copied([lanes], (start,), "_init") if lanes else start, *inner]
        if count > 1:
            require_new(program, f"{self.lanes}_mix")
            other = Load(own.name, (index(f"{self.lanes}_mix") + 1,))
            mix = Store(own.name, (Index(),), other, store.combine)
            parts.append(For(f"{self.lanes}_mix", count - 1, "unroll", (mix,)))
        parts.append(Store(tree.name, (index(top.var),), Load(own.name, (Index(),))))
        first = For(top.var, threads, "thread.x", (Alloc(own, tuple(parts)),))
        new = (first, Barrier(), *self._halves(tree, threads, store))
        return replace(program, top, (Alloc(tree, new),))

    def _store(self, body: Body) -> Store:
        stores = stores_of(body)
        if len(stores) != 1 or stores[0].buffer != self.buffer or not stores[0].combine:
            raise ScheduleError(f"loop {self.loop} is not a reduction into {self.buffer} alone")
        return stores[0]

    def _halves(self, tree: Buffer, threads: int, store: Store) -> Body:
        out: list[Stmt] = []
        while threads > 1:
            threads //= 2
            var = f"{self.loop}_{threads}"
            other = Load(tree.name, (index(var) + threads,))
            add = Store(tree.name, (index(var),), other, store.combine)
            out += [For(var, threads, "thread.x", (add,)), Barrier()]
        last = Store(store.buffer, store.indices, Load(tree.name, (Index(),)), store.combine)
        return (*out, For(f"{self.loop}_0", 1, "thread.x", (last,)), Barrier())


def _chain(top: For) -> tuple[list[For], Body]:
    """Perfectly nested loops from `top` inwards, and what the last one holds."""
    chain = [top]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain = perfect_chain(top, len(chain) + 1)
    return chain, chain[-1].body


def _with_store(chain: list[For], body: Body, store: Store) -> Body:
    """The loops, and guards inside, around another store."""
    inner: Stmt = store
    if len(body) == 1 and isinstance(body[0], If):
        inner = If(body[0].bounds, (store,))
    return (chain_stmt(chain, (inner,)),) if chain else (inner,)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Solo:
    """Stores directly in a block's loop are made by its first thread; the others wait for them.

    for i in 8: { s[i] = .. ; .. }   ->
    for i in 8: { for solo in 1 thread.x: s[i] = .. ; barrier ; .. }

    Nobody waits for a constant, which something will be added to.
    """

    step: ClassVar[str] = "solo"
    loop: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        path = loop_path(program.body, self.loop)
        if any(isinstance(s, If) for s in path):
            raise ScheduleError(f"loop {self.loop} is inside a guard")
        return replace(program, loop, (with_body(loop, self._wrapped(program, loop.body)),))

    def _wrapped(self, program: Program, body: Body) -> Body:
        out: list[Stmt] = []
        for number, stmt in enumerate(body):
            if isinstance(stmt, Alloc):
                out.append(with_body(stmt, self._wrapped(program, stmt.body)))
            elif isinstance(stmt, Store):
                var = f"{self.loop}_solo{number}"
                require_new(program, var)
                out.append(For(var, 1, "thread.x", (stmt,)))
                out += [] if isinstance(stmt.value, Const) else [Barrier()]
            else:
                out.append(stmt)
        return tuple(out)
