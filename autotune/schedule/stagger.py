"""Steps that let parts of a loop's iterations run side by side: hoist, abreast, ahead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    Alloc,
    Apply,
    Bound,
    Buffer,
    Const,
    For,
    If,
    Index,
    Load,
    Program,
    Stmt,
    Store,
    Value,
    index,
    walk,
)
from autotune.program.rewrite import (
    Body,
    find_buffer,
    find_loop,
    loads_of,
    loop_path,
    map_buffers,
    map_loads,
    map_stmt_indices,
    map_value,
    map_values,
    ranges_at,
    renamed,
    replace,
    stores_of,
    substitute,
    value_loads,
    with_body,
)
from autotune.schedule.base import register
from autotune.schedule.jam import check_plain, flat
from autotune.schedule.loops import require_new
from autotune.types import dense_strides

_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "max", "min", "neg", "abs"))


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Abreast:
    """Take all iterations of a loop through each of its parts together: what is before a loop
    inside it, that loop, and what comes after. Local buffers around them hold one of each.

    for r: alloc t: { t = 0 ; for k: t += x[r, k] ; y[r] = t }   ->
    alloc t[R]: { for r: t[r] = 0 ; for k: for r_k: t[r_k] += x[r_k, k] ; for r_out: y[..] = .. }
    """

    step: ClassVar[str] = "abreast"
    loop: str
    inner: str

    def apply(self, program: Program) -> Program:
        loop, inner = find_loop(program, self.loop), find_loop(program, self.inner)
        stmts, allocs = flat(loop.body, (inner,))
        at = next((n for n, s in enumerate(stmts) if s is inner), None)
        if at is None:
            raise ScheduleError(f"loop {self.inner} is not directly inside loop {self.loop}")
        local = [a.buffer for a in allocs]
        names = {b.name for b in local}
        _check_serial(loop)
        _check_own(loop)
        if inner.kind == "vector":
            raise ScheduleError(f"loop {self.inner} is a vector's")
        within, after = f"{self.loop}_{self.inner}", f"{self.loop}_out"
        require_new(program, within, after)

        def part(body: Sequence[Stmt], var: str) -> Body:
            if not body:
                return ()
            env = {self.loop: index(var)}
            moved = map_stmt_indices(tuple(body), lambda i: i.substitute(env))
            moved = map_buffers(moved, names, lambda indices: (index(var), *indices))
            return (For(var, loop.extent, loop.kind, moved),)

        new: Body = (
            *part(stmts[:at], self.loop),
            with_body(inner, part(inner.body, within)),
            *part(stmts[at + 1 :], after),
        )
        for buffer in reversed(local):
            new = (Alloc(_times(buffer, loop.extent), new),)
        return replace(program, loop, new)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Hoist:
    """Compute values that are the same in every iteration of a loop ahead of it, into registers.

    for k: t += x[k] - max(x[0], x[1])   ->
    alloc k.kept0: { k.kept0 = max(x[0], x[1]) ; for k: t += x[k] - k.kept0 }
    """

    step: ClassVar[str] = "hoist"
    loop: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        _check_serial(loop)
        if any(
            isinstance(s, For) and s.kind == "vector" for s in loop_path(program.body, loop.var)
        ):
            raise ScheduleError(f"loop {self.loop} is inside a vector loop")
        inner = {s.var for s in walk((loop,)) if isinstance(s, For)}
        written = {s.buffer for s in stores_of(loop.body)}

        def same(value: Value) -> bool:
            loads = list(value_loads(value))
            used = {v for load in loads for i in load.indices for v in i.vars()}
            plain = all(find_buffer(program, v.buffer).dtype == "float32" for v in loads)
            free = used.isdisjoint(inner) and written.isdisjoint(v.buffer for v in loads)
            return bool(loads) and plain and free and _is_arithmetic(value)

        values = {v: None for s in _always(loop.body) for v in _largest(s.value, same)}
        if not values:
            raise ScheduleError(f"nothing is the same in every iteration of loop {self.loop}")
        kept = {v: f"{self.loop}.kept{n}" for n, v in enumerate(values)}

        def load(value: Value) -> Value | None:
            return Load(kept[value], ()) if isinstance(value, Apply) and value in kept else None

        moved = map_values(loop.body, lambda value: map_value(value, load))
        new: Body = (with_body(loop, moved),)
        for value, name in reversed(kept.items()):
            local = Buffer.dense(name, "float32", (), "register")
            new = (Alloc(local, (Store(name, (), value), *new)),)
        return replace(program, loop, new)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Run the first part of a loop's next iteration before the last part of this one, which begins
    at the statement that computes `buffer`. What the last part reads of the first is copied.

    for i in 9: alloc s: { s = f(x[i]) ; y[i] = g(s) }   ->
    alloc s: alloc s.now: { s = f(x[0]) ; for i in 8: { s.now = s ; s = f(x[i+1]) ;
                            y[i] = g(s.now) } ; y[8] = g(s) }

    A last iteration with code of its own comes after all others.
    """

    step: ClassVar[str] = "ahead"
    loop: str
    buffer: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        _check_serial(loop)
        whole, rest = _whole(loop)
        if whole.extent < 2:
            raise ScheduleError(f"loop {self.loop} has no iteration to run ahead")
        local, stmts = _unwrapped(whole.body)
        at = next((n for n, s in enumerate(stmts) if stores_of((s,), self.buffer)), 0)
        first, last = stmts[:at], stmts[at:]
        if not first:
            raise ScheduleError(f"nothing comes before {self.buffer} in loop {self.loop}")
        shared = _shared(first, last, local)
        ranges = ranges_at(program, self.loop) | {self.loop: whole.extent - 1}
        require_new(program, *(f"{b.name}.now" for b in shared))
        var, end = index(self.loop), whole.extent - 1
        start = substitute(first, {self.loop: Index()}, ranges)
        final = substitute(last, {self.loop: Index((), end)}, ranges)
        names = {b.name for b in shared}

        def kept(load: Load) -> Load | None:
            return Load(f"{load.buffer}.now", load.indices) if load.buffer in names else None

        body: Body = (
            *(_copied(b) for b in shared),
            *substitute(first, {self.loop: var + 1}, ranges),
            *map_loads(last, kept),
        )
        new: Body = (
            *renamed(start, "_first"),
            For(loop.var, end, loop.kind, body),
            *renamed(final, "_last"),
        )
        now = [dataclasses.replace(b, name=f"{b.name}.now") for b in shared]
        for buffer in reversed((*local, *now)):
            new = (Alloc(buffer, new),)
        return replace(program, loop, (*new, *rest))


def _unwrapped(body: Body) -> tuple[list[Buffer], Body]:
    """Local buffers around everything, and what is inside."""
    buffers: list[Buffer] = []
    while len(body) == 1 and isinstance(body[0], Alloc):
        buffers.append(body[0].buffer)
        body = body[0].body
    return buffers, body


def _check_serial(loop: For) -> None:
    """ScheduleError where a loop does more than compute, one after the other, at known places."""
    for stmt in walk((loop,)):
        if not isinstance(stmt, For | If | Alloc | Store):
            raise ScheduleError(f"a {type(stmt).__name__} stays where it is")
        if isinstance(stmt, For) and stmt.kind not in ("serial", "unroll", "vector"):
            raise ScheduleError(f"loop {stmt.var} is {stmt.kind}")
    if loop.kind == "vector":
        raise ScheduleError(f"loop {loop.var} is a vector's")
    check_plain(loop)


def _always(body: Body) -> Iterator[Store]:
    """Stores that no guard skips."""
    for stmt in body:
        if isinstance(stmt, Store):
            yield stmt
        elif isinstance(stmt, For | Alloc):
            yield from _always(stmt.body)


def _is_arithmetic(value: Value) -> bool:
    """Whether a value is float32 where what it loads is."""
    if isinstance(value, Apply):
        return value.fn in _ARITHMETIC and all(_is_arithmetic(a) for a in value.args)
    return isinstance(value, Load) or (isinstance(value, Const) and value.dtype == "float32")


def _largest(value: Value, wanted: Callable[[Value], bool]) -> Iterator[Apply]:
    """Parts of a value that are as wanted and computed, none inside another."""
    if isinstance(value, Apply):
        if wanted(value):
            yield value
        else:
            for part in value.args:
                yield from _largest(part, wanted)


def _times(buffer: Buffer, count: int) -> Buffer:
    """The buffer as many times."""
    shape = (count, *buffer.shape)
    return dataclasses.replace(
        buffer, shape=shape, strides=dense_strides(shape), halo=((0, 0), *buffer.halo)
    )


def _accesses(body: Body) -> Iterator[tuple[str, tuple[Index, ...]]]:
    """What is stored and loaded."""
    yield from ((s.buffer, s.indices) for s in stores_of(body))
    yield from ((v.buffer, v.indices) for v in loads_of(body))


def _check_own(loop: For) -> None:
    """Iterations of a loop touch nothing that others write: one dimension of every buffer that
    they write is indexed alike everywhere, and by each otherwise."""
    local = {s.buffer.name for s in walk(loop.body) if isinstance(s, Alloc)}
    inner = {s.var for s in walk(loop.body) if isinstance(s, For)}
    found: dict[str, list[tuple[Index, ...]]] = {}
    for buffer, indices in _accesses(loop.body):
        found.setdefault(buffer, []).append(indices)
    for buffer in {s.buffer for s in stores_of(loop.body)} - local:
        own = (
            len(set(same)) == 1 and same[0].coefficient(loop.var) and not same[0].vars() & inner
            for same in zip(*found[buffer], strict=True)
        )
        if not any(own):
            raise ScheduleError(f"iterations of {loop.var} share elements of {buffer}")


def _whole(loop: For) -> tuple[For, Body]:
    """The loop without a last iteration that has code of its own, and that code."""
    if len(loop.body) != 2 or not all(isinstance(s, If) for s in loop.body):
        return loop, ()
    main, rest = loop.body
    assert isinstance(main, If)
    assert isinstance(rest, If)
    last, at = loop.extent - 1, index(loop.var)
    wanted = (Bound(at, 0, last),), (Bound(at, last, loop.extent),)
    if (main.bounds, rest.bounds) != wanted:
        raise ScheduleError(f"loop {loop.var} is guarded within")
    body = substitute(rest.body, {loop.var: Index((), last)}, {})
    return For(loop.var, last, loop.kind, main.body), body


def _shared(first: Body, last: Body, local: Sequence[Buffer]) -> list[Buffer]:
    """Local buffers that the first part writes and the last one reads. Nothing else may pass
    between the two."""
    parts = [{name for name, _ in _accesses(body)} for body in (first, last)]
    written = [{s.buffer for s in stores_of(body)} for body in (first, last)]
    if written[1] & parts[0]:
        raise ScheduleError(f"{min(written[1] & parts[0])} is needed from one part to the next")
    shared = [b for b in local if b.name in written[0] & parts[1]]
    if written[0] & parts[1] - {b.name for b in shared}:
        raise ScheduleError("what the last part reads is not in local buffers of the loop")
    return shared


def _copied(buffer: Buffer) -> Stmt:
    """A copy of a buffer's elements to its `.now`."""
    names = [f"{buffer.name}_now{d}" for d in range(len(buffer.shape))]
    cell = tuple(index(n) for n in names)
    stmt: Stmt = Store(f"{buffer.name}.now", cell, Load(buffer.name, cell))
    for name, extent in reversed(list(zip(names, buffer.shape, strict=True))):
        stmt = For(name, extent, "serial", (stmt,))
    return stmt
