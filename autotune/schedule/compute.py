"""Steps that move computations: inline, compute_at, cache_write, rfactor, specialize."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.analysis import interval
from autotune.program.ir import (
    Alloc,
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
    drop_alloc,
    find_loop,
    loads_of,
    loop_path,
    map_indices,
    map_loads,
    map_stmt_indices,
    prune,
    ranges_at,
    renamed,
    replace,
    stores_of,
    substitute,
    with_body,
)
from autotune.schedule.base import register
from autotune.schedule.loops import chain_stmt, perfect_chain


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """Put an elementwise local into its readers.

    for i: t[i] = x[i]*2 ; for j: y[j] = t[j]+1   ->   for j: y[j] = x[j]*2+1
    """

    step: ClassVar[str] = "inline"
    buffer: str

    def apply(self, program: Program) -> Program:
        store = single_store(program, self.buffer)
        nest = nest_of(program, self.buffer)
        program = _drop_nest(program, nest, self.buffer)
        formals = [i.terms[0][0] if len(i.terms) == 1 else None for i in store.indices]
        cache: dict[Load, Value] = {}

        def load(value: Load) -> Value | None:
            if value.buffer != self.buffer:
                return None
            if value not in cache:
                pairs = zip(formals, value.indices, strict=True)
                env = {f: i for f, i in pairs if isinstance(f, str)}
                cache[value] = map_indices(store.value, lambda i: i.substitute(env))
            return cache[value]

        body = map_loads(program.body, load)
        return drop_alloc(changed(program, body=body), self.buffer)


def _drop_nest(program: Program, nest: For, buffer: str) -> Program:
    if len(stores_of((nest,))) != 1:
        raise ScheduleError(f"the loops that compute {buffer} compute something else too")
    return replace(program, nest, ())


def single_store(program: Program, buffer: str) -> Store:
    """The only store to a buffer, not a reduction, indexed by one distinct loop per dimension."""
    stores = stores_of(program.body, buffer)
    if len(stores) != 1 or stores[0].combine:
        raise ScheduleError(f"{buffer} is not computed by a single plain store")
    atoms = [i.terms[0] for i in stores[0].indices if i.terms]
    plain = all(isinstance(a, str) and c == 1 for a, c in atoms)
    simple = all(i == Index() or (len(i.terms) == 1 and not i.const) for i in stores[0].indices)
    if not (plain and simple) or len(set(atoms)) != len(atoms):
        raise ScheduleError(f"{buffer} is not indexed by one loop per dimension")
    return stores[0]


def nest_of(program: Program, buffer: str) -> For:
    """The outermost loop around the stores to a buffer."""
    body = root_body(program)
    for stmt in body:
        if isinstance(stmt, For) and stores_of((stmt,), buffer):
            return stmt
    raise ScheduleError(f"no top-level loop computes {buffer}")


def root_body(program: Program) -> Body:
    """The statements below the allocs at the root."""
    body = program.body
    while len(body) == 1 and isinstance(body[0], Alloc):
        body = body[0].body
    return body


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAt:
    """Compute a consumer inside its producer's loops, down to and including the loop `at`.

    for i: t[i] = .. ; for j: y[j] = t[j]   ->   for i: { t[i] = .. ; y[i] = t[i] }
    """

    step: ClassVar[str] = "compute_at"
    buffer: str
    at: str

    def apply(self, program: Program) -> Program:
        consumer = nest_of(program, self.buffer)
        path = [s for s in loop_path(program.body, self.at) if isinstance(s, For)]
        if path[0] is consumer:
            raise ScheduleError(f"{self.buffer} is computed inside {self.at} already")
        producer = path[0]
        _check_between(program, producer, consumer, self.buffer)
        chain = perfect_chain(consumer, len(path))
        if [c.extent for c in chain] != [p.extent for p in path]:
            raise ScheduleError(f"loops of {self.buffer} differ from those down to {self.at}")
        env = {c.var: index(p.var) for c, p in zip(chain, path, strict=True)}
        moved = map_stmt_indices(chain[-1].body, lambda i: i.substitute(env))
        _check_same_elements({p.var for p in path}, path[-1].body, moved)
        program = replace(program, consumer, ())
        target = find_loop(program, self.at)
        return replace(program, target, (with_body(target, target.body + moved),))


def _check_between(program: Program, producer: For, consumer: For, buffer: str) -> None:
    body = root_body(program)
    first, last = (next(i for i, s in enumerate(body) if s is n) for n in (producer, consumer))
    if last < first:
        raise ScheduleError(f"{buffer} is computed before the loop")
    read = {v.buffer for v in loads_of((consumer,))}
    between = body[first + 1 : last]
    if any(s.buffer in read for s in stores_of(between)):
        raise ScheduleError(f"{buffer} needs something that is computed after the loop")


def _check_same_elements(loops: set[str], producer: Body, consumer: Body) -> None:
    """Every iteration of the joined loops reads only what that iteration wrote."""
    for store in stores_of(producer):
        for read in loads_of(consumer):
            if read.buffer != store.buffer:
                continue
            pairs = zip(store.indices, read.indices, strict=True)
            for written, wanted in pairs:
                if (written.vars() | wanted.vars()) & loops and written != wanted:
                    raise ScheduleError(f"{store.buffer} is read where it is not written yet")


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheWrite:
    """Accumulate a tile of `buffer` in registers; the tile loops sink below the reduction.

    for i in 4: { y[i] = 0 ; for k: y[i] += .. ; z[i] = f(y[i]) }   ->
    alloc y.reg[4]: { for i_init: y.reg[i] = 0 ; for k: for i: y.reg[i] += .. ; for i_out: z[i] = f(y.reg[i]) }

    A guard on the last tile loop is widened to whole vectors where that reads nothing outside.
    """

    step: ClassVar[str] = "cache_write"
    buffer: str
    loops: tuple[str, ...]

    def apply(self, program: Program) -> Program:
        chain = perfect_chain(find_loop(program, self.loops[0]), len(self.loops))
        if tuple(c.var for c in chain) != self.loops:
            raise ScheduleError(f"{self.loops} are not directly nested in this order")
        body, bounds = _open_guard(chain[-1].body)
        cell = self._cell(program, body)
        inside = len(_loads(body, self.buffer))
        name = f"{self.buffer}.reg"
        dtype, output = _storage(program, self.buffer)
        output = output or len(_loads(program.body, self.buffer)) > inside
        local = Buffer.dense(name, dtype, tuple(c.extent for c in chain), "register")
        tile = tuple(index(c.var) for c in chain)
        body = _redirect(body, self.buffer, name, tile)
        if output:
            body = (*body, Store(self.buffer, cell, Load(name, tile)))
        wide = widened(program, bounds, body, chain[-1])
        parts: list[Stmt] = []
        for number, stmt in enumerate(body):
            if isinstance(stmt, For):
                parts.append(_sink(stmt, chain, wide))
            elif stmt.buffer == name:  # type: ignore[union-attr]
                parts.append(_copy(chain, (stmt,), "_init"))
            else:
                suffix = "_out" if number == len(body) - 1 else f"_out{number}"
                parts.append(_copy(chain, (If(bounds, (stmt,)),) if bounds else (stmt,), suffix))
        program = replace(program, chain[0], (Alloc(local, tuple(parts)),))
        return program if output else drop_alloc(program, self.buffer)

    def _cell(self, program: Program, body: Body) -> tuple[Index, ...]:
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
        return cell


def _loads(body: Body, buffer: str) -> list[Load]:
    return [v for v in loads_of(body) if v.buffer == buffer]


def _open_guard(body: Body) -> tuple[Body, tuple[Bound, ...]]:
    if len(body) == 1 and isinstance(body[0], If):
        return body[0].body, body[0].bounds
    return body, ()


def _storage(program: Program, buffer: str) -> tuple[str, bool]:
    """(dtype, whether it is a param)."""
    for param in program.params:
        if param.name == buffer:
            return param.dtype, True
    for stmt in walk(program.body):
        if isinstance(stmt, Alloc) and stmt.buffer.name == buffer:
            return stmt.buffer.dtype, False
    raise ScheduleError(f"no buffer {buffer}")


def _redirect(body: Body, buffer: str, name: str, cell: tuple[Index, ...]) -> Body:
    """Use `name[cell]` for every element of `buffer`."""

    def load(value: Load) -> Value | None:
        return Load(name, cell) if value.buffer == buffer else None

    def store(stmts: Body) -> Body:
        out: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, Store) and stmt.buffer == buffer:
                out.append(Store(name, cell, stmt.value, stmt.combine))
            else:
                inner = isinstance(stmt, For | Alloc | If)
                out.append(with_body(stmt, store(stmt.body)) if inner else stmt)  # type: ignore[union-attr]
        return tuple(out)

    return store(map_loads(body, load))


def _copy(chain: Sequence[For], body: Body, suffix: str) -> Stmt:
    env = {c.var: index(c.var + suffix) for c in chain}
    return chain_stmt(list(chain), map_stmt_indices(body, lambda i: i.substitute(env)), suffix)


def _sink(stmt: For, chain: Sequence[For], bounds: tuple[Bound, ...]) -> Stmt:
    """The tile loops inside the reduction loops."""
    if len(stmt.body) == 1 and isinstance(stmt.body[0], For):
        return with_body(stmt, (_sink(stmt.body[0], chain, bounds),))
    body = (If(bounds, stmt.body),) if bounds else stmt.body
    return with_body(stmt, (chain_stmt(list(chain), body),))


def widened(
    program: Program, bounds: tuple[Bound, ...], body: Body, lane: For
) -> tuple[Bound, ...]:
    """Bounds on the lane loop, rounded up to whole vectors where no load leaves its buffer."""
    ranges = {s.var: s.extent for s in walk(program.body) if isinstance(s, For)}
    out: list[Bound] = []
    for bound in bounds:
        if bound.index.coefficient(lane.var) != 1 or not _stays_inside(
            program, body, bound, ranges
        ):
            out.append(bound)
        else:
            out.append(Bound(bound.index, bound.lo, -(-bound.hi // lane.extent) * lane.extent))
    return tuple(out)


def _stays_inside(program: Program, body: Body, bound: Bound, ranges: dict[str, int]) -> bool:
    buffers = {p.name: p for p in program.params}
    buffers |= {s.buffer.name: s.buffer for s in walk(program.body) if isinstance(s, Alloc)}
    reductions = tuple(s for s in body if isinstance(s, For))
    for load in loads_of(reductions):
        buffer = buffers.get(load.buffer)
        if buffer is None:
            continue
        dims = zip(load.indices, buffer.shape, buffer.halo, strict=True)
        for i, extent, (before, after) in dims:
            if not i.vars() & bound.index.vars():
                continue
            lo, hi = interval(i, ranges)
            if lo < -before or hi >= extent + after:
                return False
    return True


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RFactor:
    """Reduce into one partial result per iteration of `loops`, then combine those.

    for k: for l in 16: s += a[k*16+l]   ->
    alloc s.part[16]: { for l_init: s.part[l] = 0 ; for k: for l: s.part[l] += .. ; for l_out: s += s.part[l] }
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
        dtype, _ = _storage(program, self.buffer)
        names = [s.buffer.name for s in walk(program.body) if isinstance(s, Alloc)]
        name = f"{self.buffer}.part"
        if name in names:
            raise ScheduleError(f"{self.buffer} is factored already")
        local = Buffer.dense(name, dtype, tuple(c.extent for c in chain), "register")
        cell = tuple(index(v) for v in self.loops)
        start = Store(name, cell, identity(store.combine or "", dtype))
        last = Store(self.buffer, store.indices, Load(name, cell), store.combine)
        update = Store(name, cell, store.value, store.combine)
        inner = _swap((top,), store, update)
        parts = (_copy(chain, (start,), "_init"), *inner, _copy(chain, (last,), "_out"))
        return replace(program, top, (Alloc(local, parts),))


def identity(combine: str, dtype: str) -> Const:
    """The value that changes nothing when combined."""
    values = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
    if combine in ("max", "min") and not dtype.startswith("float"):
        raise ScheduleError(f"no identity of {combine} for {dtype}")
    value = values[combine]
    return Const(value if dtype.startswith("float") else int(value), dtype)


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


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Specialize:
    """A copy of the register tile for the last iteration of a loop, where guards are constant.

    for i in 3: alloc t: {.. if i*4+j < 10 ..}   ->
    for i in 3: { if i < 2: alloc t: {..} ; if i >= 2: alloc t_tail: {.. if 8+j < 10 ..} }
    """

    step: ClassVar[str] = "specialize"
    loop: str
    at: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        found = [
            s
            for s in walk(loop.body)
            if isinstance(s, Alloc) and s.buffer.name.startswith(self.at)
        ]
        if not found:
            raise ScheduleError(f"no buffer {self.at} inside loop {self.loop}")
        for number, alloc in enumerate(found):
            program = self._copy(program, alloc, number)
        return program

    def _copy(self, program: Program, alloc: Alloc, number: int) -> Program:
        path = loop_path(program.body, self.loop)
        loop = path[-1]
        assert isinstance(loop, For)
        last = loop.extent - 1
        ranges = {s.var: s.extent for s in walk(program.body) if isinstance(s, For)}
        suffix = f".{self.loop}{number}"
        tail = substitute((alloc,), {self.loop: Index((), last)}, ranges)
        tail = renamed(prune(tail, ranges), suffix)
        main = prune((alloc,), ranges | {self.loop: last}) if last else ()
        at = index(self.loop)
        new: list[Stmt] = []
        if main:
            new.append(If((Bound(at, 0, last),), main))
        new.append(If((Bound(at, last, loop.extent),), tail))
        return replace(program, alloc, tuple(new) if last else tail)


__all__ = ["CacheWrite", "ComputeAt", "Inline", "RFactor", "Specialize", "ranges_at"]
