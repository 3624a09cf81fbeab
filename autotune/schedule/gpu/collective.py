"""Steps for work that a block's threads do together on one value: tree, shuffle, single_thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    BLOCK_KINDS,
    WARP,
    Alloc,
    Barrier,
    Bound,
    Buffer,
    Const,
    For,
    If,
    Index,
    Load,
    Program,
    Shuffle,
    Stmt,
    Store,
    index,
    walk,
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

    def apply(self, program: Program) -> Program:
        part = _part_of(program, self.buffer, self.loop, self.lanes)
        top, own, threads = part.top, part.own, part.top.extent
        tree = Buffer.dense(f"{self.buffer}.tree", own.dtype, (threads,), "shared")
        last = Store(tree.name, (index(top.var),), Load(own.name, (Index(),)))
        first = For(top.var, threads, "thread.x", (Alloc(own, (*part.body, last)),))
        new = (first, Barrier(), *self._halves(tree, threads, part.store))
        return replace(program, top, (Alloc(tree, new),))

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

    def apply(self, program: Program) -> Program:
        part = _part_of(program, self.buffer, self.loop, self.lanes)
        top, own, store = part.top, part.own, part.store
        threads, width = top.extent, min(WARP, top.extent)
        combine, cell = store.combine or "", Load(own.name, (Index(),))
        if threads > WARP * WARP:
            raise ScheduleError(f"{threads} threads are more than a warp of warps")
        private = find_buffer(program, self.buffer).scope == "register"
        require_new(program, *(f"{self.loop}_{k}" for k in "wa0"))
        new: list[Stmt] = [For(top.var, threads, "thread.x", part.body)]
        new.append(Shuffle(combine, width, cell))
        if threads > width:
            new.append(self._between(own, threads, width))
            new.append(Shuffle(combine, threads // width, cell))
        last = Store(store.buffer, store.indices, cell, combine)
        new.append(For(f"{self.loop}_0", threads if private else 1, "thread.x", (last,)))
        around = [s for s in loop_path(program.body, self.loop)[:-1] if isinstance(s, For)]
        again = any(loop.kind not in BLOCK_KINDS for loop in around)
        new += [Barrier()] if again or not private else []
        return replace(program, top, (Alloc(own, tuple(new)),))

    def _between(self, own: Buffer, threads: int, width: int) -> Stmt:
        """Every thread gets the result of one of the warps."""
        warps = Buffer.dense(f"{self.buffer}.warps", own.dtype, (threads // width,), "shared")
        writer, reader = index(f"{self.loop}_w"), index(f"{self.loop}_a")
        keep = Store(warps.name, (writer // width,), Load(own.name, (Index(),)))
        take = Store(own.name, (Index(),), Load(warps.name, (reader % (threads // width),)))
        first = If((Bound(writer % width, 0, 1),), (keep,))
        body = (
            For(f"{self.loop}_w", threads, "thread.x", (first,)), Barrier(),
            For(f"{self.loop}_a", threads, "thread.x", (take,)),
        )  # fmt: skip
        return Alloc(warps, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one thread adds up: `body` leaves it in own[0]."""

    top: For
    """The loop that becomes the threads."""
    store: Store
    own: Buffer
    body: Body


def _part_of(program: Program, buffer: str, loop: str, lanes_of: str) -> _Part:
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
    own = Buffer.dense(f"{buffer}.own", dtype, (count,), "register")
    cell = (index(lanes.var) if lanes else Index(),)
    inner = _with_store(chain[1:], body, Store(own.name, cell, store.value, combine))
    start: Stmt = Store(own.name, cell, identity(combine or "", dtype))
    parts: list[Stmt] = [copied([lanes], (start,), "_init") if lanes else start, *inner]
    if count > 1:
        require_new(program, f"{lanes_of}_mix")
        other = Load(own.name, (index(f"{lanes_of}_mix") + 1,))
        mix = Store(own.name, (Index(),), other, combine)
        parts.append(For(f"{lanes_of}_mix", count - 1, "unroll", (mix,)))
    return _Part(top=top, store=store, own=own, body=tuple(parts))


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
class SingleThread:
    """Stores directly in a block's loop are made by its first thread; the others wait for them.

    for i in 8: { s[i] = .. ; .. }   ->
    for i in 8: { for solo in 1 thread.x: s[i] = .. ; barrier ; .. }

    Nobody waits for a constant, which something will be added to. What is in registers every
    thread has for itself, and sets itself.
    """

    step: ClassVar[str] = "single_thread"
    loop: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        path = loop_path(program.body, self.loop)
        if loop.kind not in BLOCK_KINDS:
            raise ScheduleError(f"loop {self.loop} is not a block's")
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
                private = find_buffer(program, stmt.buffer).scope == "register"
                threads = self._threads(program) if private else 1
                out.append(For(var, threads, "thread.x", (stmt,)))
                out += [] if private or isinstance(stmt.value, Const) else [Barrier()]
            else:
                out.append(stmt)
        return tuple(out)

    def _threads(self, program: Program) -> int:
        """Threads of the block."""
        inside = walk(find_loop(program, self.loop).body)
        return max(
            (s.extent for s in inside if isinstance(s, For) and s.kind == "thread.x"), default=1
        )
