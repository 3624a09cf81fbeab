"""Steps for work that a block's threads do together on one value: tree, shuffle, single_thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir
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
from autotune.schedule.loops.nest import chain_stmt, copied, perfect_chain, require_new
from autotune.schedule.loops.rfactor import identity


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

    def apply(self, program: ir.Program) -> ir.Program:
        part = _part_of(program, self.buffer, self.loop, self.lanes)
        top, own, threads = part.top, part.own, part.top.extent
        tree = ir.Buffer.dense(f"{self.buffer}.tree", own.dtype, (threads,), "shared")
        last = ir.Store(tree.name, (ir.index(top.var),), ir.Load(own.name, (ir.Index(),)))
        first = ir.For(top.var, threads, "thread.x", (ir.Alloc(own, (*part.body, last)),))
        new = (first, ir.Barrier(), *self._halves(tree, threads, part.store))
        return replace(program, top, (ir.Alloc(tree, new),))

    def _halves(self, tree: ir.Buffer, threads: int, store: ir.Store) -> Body:
        out: list[ir.Stmt] = []
        while threads > 1:
            threads //= 2
            var = f"{self.loop}_{threads}"
            other = ir.Load(tree.name, (ir.index(var) + threads,))
            add = ir.Store(tree.name, (ir.index(var),), other, store.combine)
            out += [ir.For(var, threads, "thread.x", (add,)), ir.Barrier()]
        last = ir.Store(
            store.buffer, store.indices, ir.Load(tree.name, (ir.Index(),)), store.combine
        )
        return (*out, ir.For(f"{self.loop}_0", 1, "thread.x", (last,)), ir.Barrier())


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled:
    """Reduce with all threads of a block: each its part, then warps by exchanging registers.

    for t in 64: for k in 9: s += a[k*64+t]   ->
    alloc s.own[1] register: {
        for t in 64 thread.x: { s.own[0] = 0 ; for k in 9: s.own[0] += .. }
        shuffle sum 32 s.own[0]
        alloc s.warps[2] shared: {
            for t_w in 64 thread.x: if t_w % 32 == 0: s.warps[t_w // 32] = s.own[0]
            barrier ; for t_a in 64 thread.x: s.own[0] = s.warps[t_a % 2] }
        shuffle sum 2 s.own[0]
        for t_0 in 1 thread.x: s += s.own[0] ; barrier }

    One warp needs no memory between. Where `s` is in registers, every thread has all of it at the
    end, and nobody waits. `lanes`: as in `tree`.
    """

    step: ClassVar[str] = "shuffle"
    buffer: str
    loop: str
    lanes: str = ""

    def apply(self, program: ir.Program) -> ir.Program:
        part = _part_of(program, self.buffer, self.loop, self.lanes)
        top, own, store = part.top, part.own, part.store
        threads, width = top.extent, min(ir.WARP, top.extent)
        combine, cell = store.combine or "", ir.Load(own.name, (ir.Index(),))
        if threads > ir.WARP * ir.WARP:
            raise ScheduleError(f"{threads} threads are more than a warp of warps")
        private = find_buffer(program, self.buffer).scope == "register"
        require_new(program, *(f"{self.loop}_{k}" for k in "wa0"))
        new: list[ir.Stmt] = [ir.For(top.var, threads, "thread.x", part.body)]
        new.append(ir.Shuffle(combine, width, cell))
        if threads > width:
            new.append(self._between(own, threads, width))
            new.append(ir.Shuffle(combine, threads // width, cell))
        last = ir.Store(store.buffer, store.indices, cell, combine)
        new.append(ir.For(f"{self.loop}_0", threads if private else 1, "thread.x", (last,)))
        around = [s for s in loop_path(program.body, self.loop)[:-1] if isinstance(s, ir.For)]
        again = any(loop.kind not in ir.BLOCK_KINDS for loop in around)
        new += [ir.Barrier()] if again or not private else []
        return replace(program, top, (ir.Alloc(own, tuple(new)),))

    def _between(self, own: ir.Buffer, threads: int, width: int) -> ir.Stmt:
        """Every thread gets the result of one of the warps."""
        warps = ir.Buffer.dense(f"{self.buffer}.warps", own.dtype, (threads // width,), "shared")
        writer, reader = ir.index(f"{self.loop}_w"), ir.index(f"{self.loop}_a")
        keep = ir.Store(warps.name, (writer // width,), ir.Load(own.name, (ir.Index(),)))
        take = ir.Store(
            own.name, (ir.Index(),), ir.Load(warps.name, (reader % (threads // width),))
        )
        first = ir.If((ir.Bound(writer % width, 0, 1),), (keep,))
        body = (
            ir.For(f"{self.loop}_w", threads, "thread.x", (first,)), ir.Barrier(),
            ir.For(f"{self.loop}_a", threads, "thread.x", (take,)),
        )  # fmt: skip
        return ir.Alloc(warps, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one thread adds up: `body` leaves it in own[0]."""

    top: ir.For
    """The loop that becomes the threads."""
    store: ir.Store
    own: ir.Buffer
    body: Body


def _part_of(program: ir.Program, buffer: str, loop: str, lanes_of: str) -> _Part:
    top = find_loop(program, loop)
    chain, body = _chain(top)
    stores = stores_of(body)
    if len(stores) != 1 or stores[0].buffer != buffer or not stores[0].combine:
        raise ScheduleError(f"loop {loop} is not a reduction into {buffer} alone")
    store, combine = stores[0], stores[0].combine
    if top.extent & (top.extent - 1):
        raise ScheduleError(f"loop {loop} has {top.extent} iterations, not a power of two")
    lanes = next((inner for inner in chain[1:] if inner.var == lanes_of), None)
    if lanes_of and lanes is None:
        raise ScheduleError(f"no loop {lanes_of} directly inside {loop}")
    used = frozenset[str]().union(*(i.vars() for i in store.indices))
    if used & {inner.var for inner in chain}:
        raise ScheduleError(f"{buffer} is indexed by a loop inside {loop}")
    count, dtype = lanes.extent if lanes else 1, find_buffer(program, buffer).dtype
    own = ir.Buffer.dense(f"{buffer}.own", dtype, (count,), "register")
    cell = (ir.index(lanes.var) if lanes else ir.Index(),)
    inner = _with_store(chain[1:], body, ir.Store(own.name, cell, store.value, combine))
    start: ir.Stmt = ir.Store(own.name, cell, identity(combine or "", dtype))
    parts: list[ir.Stmt] = [copied([lanes], (start,), "_init") if lanes else start, *inner]
    if count > 1:
        require_new(program, f"{lanes_of}_mix")
        other = ir.Load(own.name, (ir.index(f"{lanes_of}_mix") + 1,))
        mix = ir.Store(own.name, (ir.Index(),), other, combine)
        parts.append(ir.For(f"{lanes_of}_mix", count - 1, "unroll", (mix,)))
    return _Part(top=top, store=store, own=own, body=tuple(parts))


def _chain(top: ir.For) -> tuple[list[ir.For], Body]:
    """Perfectly nested loops from `top` inwards, and what the last one holds."""
    chain = [top]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], ir.For):
        chain = perfect_chain(top, len(chain) + 1)
    return chain, chain[-1].body


def _with_store(chain: list[ir.For], body: Body, store: ir.Store) -> Body:
    """The loops, and guards inside, around another store."""
    inner: ir.Stmt = store
    if len(body) == 1 and isinstance(body[0], ir.If):
        inner = ir.If(body[0].bounds, (store,))
    return (chain_stmt(chain, (inner,)),) if chain else (inner,)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SingleThread:
    """Stores directly in a block's loop are made by its first thread; the others wait for them.

    for i in 8: { s[i] = .. ; .. }   ->
    for i in 8: { for solo in 1 thread.x: s[i] = .. ; barrier ; .. }

    Nobody waits for a constant, which something will be added to. What is in registers every
    thread has for itself, and sets itself.
    """

    step: ClassVar[str] = "single_thread"
    loop: str

    def apply(self, program: ir.Program) -> ir.Program:
        loop = find_loop(program, self.loop)
        path = loop_path(program.body, self.loop)
        if loop.kind not in ir.BLOCK_KINDS:
            raise ScheduleError(f"loop {self.loop} is not a block's")
        if any(isinstance(s, ir.If) for s in path):
            raise ScheduleError(f"loop {self.loop} is inside a guard")
        return replace(program, loop, (with_body(loop, self._wrapped(program, loop.body)),))

    def _wrapped(self, program: ir.Program, body: Body) -> Body:
        out: list[ir.Stmt] = []
        for number, stmt in enumerate(body):
            if isinstance(stmt, ir.Alloc):
                out.append(with_body(stmt, self._wrapped(program, stmt.body)))
            elif isinstance(stmt, ir.Store):
                var = f"{self.loop}_solo{number}"
                require_new(program, var)
                private = find_buffer(program, stmt.buffer).scope == "register"
                threads = self._threads(program) if private else 1
                out.append(ir.For(var, threads, "thread.x", (stmt,)))
                out += [] if private or isinstance(stmt.value, ir.Const) else [ir.Barrier()]
            else:
                out.append(stmt)
        return tuple(out)

    def _threads(self, program: ir.Program) -> int:
        """Threads of the block."""
        inside = ir.walk(find_loop(program, self.loop).body)
        return max(
            (s.extent for s in inside if isinstance(s, ir.For) and s.kind == "thread.x"), default=1
        )
