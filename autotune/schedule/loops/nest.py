"""Steps that reshape loops: split, fuse, reorder, and the annotations of a loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.analysis import carried_vars, interval, own_loads, own_vars, reads_memory
from autotune.program.ir import (
    Alloc,
    Bound,
    For,
    If,
    Index,
    LoopKind,
    Program,
    Stmt,
    Store,
    index,
    walk,
)
from autotune.program.rewrite import (
    Body,
    find_loop,
    loop_path,
    map_stmt_indices,
    ranges_at,
    replace,
    stores_of,
    substitute,
    with_body,
)
from autotune.schedule.base import register
from autotune.sizes import is_size

Guards = tuple[Bound, ...]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One loop into two; a guard where the factor does not divide the extent.

    for i in 10: A[i]   ->   for io in 3: for ii in 4: if io*4 + ii < 10: A[io*4 + ii]
    """

    step: ClassVar[str] = "split"
    loop: str
    factor: int
    outer: str
    inner: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        if self.factor < 1:
            raise ScheduleError(f"factor must be at least 1, got {self.factor}")
        require_new(program, self.outer, self.inner)
        count = -(-loop.extent // self.factor)
        value = index(self.outer) * self.factor + self.inner
        ranges = ranges_at(program, self.loop) | {self.outer: count, self.inner: self.factor}
        body = substitute(loop.body, {self.loop: value}, ranges)
        if loop.extent % self.factor:
            body = guarded(body, Bound(value, 0, loop.extent))
        nest = For(self.outer, count, loop.kind, (For(self.inner, self.factor, "serial", body),))
        return replace(program, loop, (nest,))


def guarded(body: Body, bound: Bound) -> Body:
    """The guard around the body, below loops that are perfectly nested in it: so that the loops
    stay a chain that later steps can reorder."""
    if len(body) == 1 and isinstance(body[0], For):
        return (with_body(body[0], guarded(body[0].body, bound)),)
    if len(body) == 1 and isinstance(body[0], If):
        return (If((*body[0].bounds, bound), body[0].body),)
    return (If((bound,), body),)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Fuse:
    """Two perfectly nested loops into one.

    for i in 4: for j in 5: A[i, j]   ->   for f in 20: A[f // 5, f % 5]
    """

    step: ClassVar[str] = "fuse"
    outer: str
    inner: str
    fused: str

    def apply(self, program: Program) -> Program:
        outer = find_loop(program, self.outer)
        if len(outer.body) != 1 or not isinstance(outer.body[0], For):
            raise ScheduleError(f"loop {self.outer} holds more than one loop")
        inner = outer.body[0]
        if inner.var != self.inner:
            raise ScheduleError(f"loop directly inside {self.outer} is {inner.var}")
        require_new(program, self.fused)
        fused, extent = index(self.fused), outer.extent * inner.extent
        if outer.extent == 1 and is_size(inner.extent):  # no number to divide by
            env = {self.outer: index(0), self.inner: fused}
        else:
            env = {self.outer: fused // inner.extent, self.inner: fused % inner.extent}
        ranges = ranges_at(program, self.outer) | {self.fused: extent}
        body = substitute(inner.body, env, ranges)
        return replace(program, outer, (For(self.fused, extent, outer.kind, body),))


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder:
    """Perfectly nested loops in a new order, outermost first.

    for i: for j: A[i, j]   ->   for j: for i: A[i, j]
    """

    step: ClassVar[str] = "reorder"
    loops: tuple[str, ...]

    def apply(self, program: Program) -> Program:
        paths = {v: loop_path(program.body, v) for v in self.loops}
        if not paths:
            raise ScheduleError("no loops to reorder")
        top = min(paths.values(), key=len)[-1]
        assert isinstance(top, For)
        chain = perfect_chain(top, len(self.loops))
        if {c.var for c in chain} != set(self.loops):
            raise ScheduleError(f"{self.loops} are not directly nested in each other")
        body = chain[-1].body
        _check_independent([c.var for c in chain], self.loops, body)
        extents = {c.var: c for c in chain}
        for var in reversed(self.loops):
            body = (with_body(extents[var], body),)
        return replace(program, top, body)


def perfect_chain(top: For, count: int) -> list[For]:
    """The loop and the next ones directly inside it, `count` in all."""
    chain = [top]
    while len(chain) < count:
        body = chain[-1].body
        if len(body) != 1 or not isinstance(body[0], For):
            raise ScheduleError(f"loop {chain[-1].var} does not hold exactly one loop")
        chain.append(body[0])
    return chain


def _check_independent(old: Sequence[str], new: Sequence[str], body: Body) -> None:
    """Iterations may run in the new order: every store goes to an element of its own, or the only
    one adds, or those that may meet at an element stay in order."""
    local = {s.buffer.name for s in walk(body) if isinstance(s, Alloc)}
    stores = [s for s in stores_of(body) if s.buffer not in local]
    for store in stores:
        for load in own_loads(store):
            if sum(a != b for a, b in zip(store.indices, load.indices, strict=True)) > 1:
                raise ScheduleError(f"{store.buffer} is made of elements made before, both ways")
        own = own_vars(store.indices)
        before, after = ([v for v in order if v not in own] for order in (old, new))
        if before and not (len(stores) == 1 and (store.combine or before == after)):
            raise ScheduleError(f"{store.buffer} is written by several iterations of {before}")


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Unroll:
    """Mark loops to be written out, so that their variables are constants in the code."""

    step: ClassVar[str] = "unroll"
    loops: tuple[str, ...]

    def apply(self, program: Program) -> Program:
        return annotate(program, self.loops, "unroll")


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Vectorize:
    """Mark loops whose iterations are the lanes of vector instructions. No vector loop inside."""

    step: ClassVar[str] = "vectorize"
    loops: tuple[str, ...]

    def apply(self, program: Program) -> Program:
        for var in self.loops:
            inner = walk(find_loop(program, var).body)
            if any(isinstance(s, For) and s.kind in ("vector", "parallel") for s in inner):
                raise ScheduleError(f"loop {var} holds a vector or parallel loop")
            if any(isinstance(s, Alloc) for s in walk(find_loop(program, var).body)):
                raise ScheduleError(f"loop {var} holds a local buffer")
            for store in stores_of(find_loop(program, var).body):
                if any(reads_memory(i) and var in i.vars() for i in store.indices):
                    raise ScheduleError(f"lanes of {var} may meet at an element: {store.buffer}")
                if var in carried_vars(store):
                    raise ScheduleError(f"lanes of {var} wait for each other: {store.buffer}")
        return annotate(program, self.loops, "vector")


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Divide a loop's iterations among the threads. Only an outermost loop."""

    step: ClassVar[str] = "parallel"
    loop: str

    def apply(self, program: Program) -> Program:
        path = loop_path(program.body, self.loop)
        if any(not isinstance(s, Alloc) for s in path[:-1]):
            raise ScheduleError(f"loop {self.loop} is inside another loop")
        check_apart(program, find_loop(program, self.loop))
        return annotate(program, (self.loop,), "parallel")


def check_apart(program: Program, loop: For) -> None:
    """ScheduleError where iterations of a loop may write the same element."""
    local = {s.buffer.name for s in walk(loop.body) if isinstance(s, Alloc)}
    ranges = {s.var: s.extent for s in walk(program.body) if isinstance(s, For)}
    for store, guards in _guarded_stores(loop.body, ()):
        if loop.var in carried_vars(store):
            raise ScheduleError(f"iterations of {loop.var} wait for each other: {store.buffer}")
        if store.buffer in local or loop.var in own_vars(store.indices, guards):
            continue
        if sum(_may_hold(guards, loop, at, ranges) for at in range(loop.extent)) > 1:
            raise ScheduleError(f"iterations of {loop.var} write the same {store.buffer}")


def _guarded_stores(body: Body, guards: Guards) -> Iterator[tuple[Store, Guards]]:
    """Every store with the bounds of the `if`s around it."""
    for stmt in body:
        if isinstance(stmt, Store):
            yield stmt, guards
        elif isinstance(stmt, If):
            yield from _guarded_stores(stmt.body, (*guards, *stmt.bounds))
        elif isinstance(stmt, For | Alloc):
            yield from _guarded_stores(stmt.body, guards)


def _may_hold(guards: Guards, loop: For, at: int, ranges: Mapping[str, int]) -> bool:
    """Whether iteration `at` of the loop may satisfy all the bounds."""
    for bound in guards:
        lo, hi = interval(bound.index.substitute({loop.var: Index((), at)}), ranges)
        if hi < bound.lo or lo >= bound.hi:
            return False
    return True


def annotate(program: Program, loops: tuple[str, ...], kind: LoopKind) -> Program:
    """The program with loops made of another kind."""
    for var in loops:
        loop = find_loop(program, var)
        program = replace(program, loop, (For(loop.var, loop.extent, kind, loop.body),))
    return program


def require_new(program: Program, *names: str) -> None:
    """ScheduleError if a loop or a buffer of that name exists, or two are to have it."""
    taken = {p.name for p in program.params}
    for stmt in walk(program.body):
        if isinstance(stmt, For):
            taken.add(stmt.var)
        elif isinstance(stmt, Alloc):
            taken.add(stmt.buffer.name)
    for name in names:
        if name in taken:
            raise ScheduleError(f"loop name {name} is taken")
        taken.add(name)


def chain_stmt(loops: list[For], body: Body, suffix: str = "") -> Stmt:
    """Loops (renamed by a suffix) around a body that already uses the new names."""
    for loop in reversed(loops):
        body = (For(loop.var + suffix, loop.extent, loop.kind, body),)
    return body[0]


def copied(chain: Sequence[For], body: Body, suffix: str) -> Stmt:
    """Loops and their body again, under names with a suffix."""
    env = {c.var: index(c.var + suffix) for c in chain}
    return chain_stmt(list(chain), map_stmt_indices(body, lambda i: i.substitute(env)), suffix)
