"""Rewriting program trees: what steps are made of. In: statements. Out: new statements."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from autotune.errors import ScheduleError
from autotune.program import ir
from autotune.program.analysis import Ranges, always, never, simplify

Body = tuple[ir.Stmt, ...]


def with_body(stmt: ir.Stmt, body: Body) -> ir.Stmt:
    """The same loop, alloc or guard around another body."""
    if isinstance(stmt, ir.For):
        return ir.For(stmt.var, stmt.extent, stmt.kind, body)
    if isinstance(stmt, ir.Alloc):
        return ir.Alloc(stmt.buffer, body)
    if isinstance(stmt, ir.If):
        return ir.If(stmt.bounds, body)
    return stmt


def unwrapped(body: Body, scope: str | None = None) -> tuple[list[ir.Buffer], Body]:
    """Buffers (of a scope) allocated around everything, outermost first, and what is inside."""
    buffers: list[ir.Buffer] = []
    while len(body) == 1 and isinstance(stmt := body[0], ir.Alloc):
        if scope not in (None, stmt.buffer.scope):
            break
        buffers.append(stmt.buffer)
        body = stmt.body
    return buffers, body


def in_loops(loops: Sequence[tuple[str, int]], body: Body) -> Body:
    """The body inside serial loops (variable, extent), outermost first."""
    for var, extent in reversed(loops):
        body = (ir.For(var, extent, "serial", body),)
    return body


def map_value(value: ir.Value, f: Callable[[ir.Value], ir.Value | None]) -> ir.Value:
    """Rebuild a value top-down; where `f` gives a value, that replaces the sub-value."""
    new = f(value)
    if new is not None:
        return new
    if isinstance(value, ir.Apply):
        return ir.Apply(value.fn, tuple(map_value(a, f) for a in value.args))
    if isinstance(value, ir.Select):
        return ir.Select(value.bounds, map_value(value.then, f), map_value(value.other, f))
    return value


def map_indices(value: ir.Value, f: Callable[[ir.Index], ir.Index]) -> ir.Value:
    """A value with every index mapped; itself where none changes."""
    if isinstance(value, ir.Load):
        indices = tuple([f(i) for i in value.indices])
        return value if _same(indices, value.indices) else ir.Load(value.buffer, indices)
    if isinstance(value, ir.Apply):
        args = tuple([map_indices(a, f) for a in value.args])
        return value if _same(args, value.args) else ir.Apply(value.fn, args)
    if isinstance(value, ir.IndexValue):
        return ir.IndexValue(f(value.index), value.dtype)
    if isinstance(value, ir.Select):
        bounds = tuple(ir.Bound(f(b.index), b.lo, b.hi) for b in value.bounds)
        return ir.Select(bounds, map_indices(value.then, f), map_indices(value.other, f))
    if isinstance(value, ir.Table):
        return ir.Table(value.values, f(value.row), f(value.column))
    return value


def _same(new: Sequence[object], old: Sequence[object]) -> bool:
    return all(map(operator.is_, new, old))


def map_stmt_indices(body: Body, f: Callable[[ir.Index], ir.Index]) -> Body:
    """Rebuild statements with every index mapped."""
    out: list[ir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, ir.Store):
            indices = tuple(f(i) for i in stmt.indices)
            out.append(ir.Store(stmt.buffer, indices, map_indices(stmt.value, f), stmt.combine))
        elif isinstance(stmt, ir.Prefetch):
            out.append(ir.Prefetch(stmt.buffer, tuple(f(i) for i in stmt.indices)))
        elif isinstance(stmt, ir.If):
            bounds = tuple(ir.Bound(f(b.index), b.lo, b.hi) for b in stmt.bounds)
            out.append(ir.If(bounds, map_stmt_indices(stmt.body, f)))
        elif isinstance(stmt, ir.Group):
            out.append(map_places(stmt, lambda p: ir.Load(p.buffer, tuple(map(f, p.indices)))))
        else:
            out.append(with_body(stmt, map_stmt_indices(stmt.body, f)))
    return tuple(out)


def map_loads(body: Body, f: Callable[[ir.Load], ir.Value | None]) -> Body:
    """Rebuild statements with every load mapped where `f` gives a value."""

    def one(value: ir.Value) -> ir.Value | None:
        return f(value) if isinstance(value, ir.Load) else None

    return map_values(body, lambda value: map_value(value, one))


def map_values(body: Body, f: Callable[[ir.Value], ir.Value]) -> Body:
    """Rebuild statements with every stored value mapped."""
    out: list[ir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, ir.Store):
            out.append(dataclasses.replace(stmt, value=f(stmt.value)))
        elif isinstance(stmt, ir.Prefetch | ir.Group):
            out.append(stmt)
        else:
            out.append(with_body(stmt, map_values(stmt.body, f)))
    return tuple(out)


def decided(body: Body, ranges: Ranges) -> Body:
    """Selections whose bounds always hold, or one of them never, as what they select."""
    inner = {**ranges, **{s.var: s.extent for s in ir.walk(body) if isinstance(s, ir.For)}}

    def choose(value: ir.Value) -> ir.Value | None:
        if not isinstance(value, ir.Select):
            return None
        if all(always(b, inner) for b in value.bounds):
            return map_value(value.then, choose)
        if any(never(b, inner) for b in value.bounds):
            return map_value(value.other, choose)
        return None

    return map_values(body, lambda value: map_value(value, choose))


def keep_dims(
    body: Body, buffer: str, kept: tuple[int, ...], starts: Mapping[int, ir.Index] | None = None
) -> Body:
    """Statements that reach a buffer by these of its dimensions only, which begin at `starts`."""
    begins = starts or {}

    def places(indices: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
        return tuple(indices[d] - begins.get(d, ir.Index()) for d in kept)

    return map_buffers(body, {buffer}, places)


def map_buffers(
    body: Body, names: Set[str], f: Callable[[tuple[ir.Index, ...]], tuple[ir.Index, ...]]
) -> Body:
    """Rebuild statements with the indices of these buffers mapped, loaded or stored."""

    def load(value: ir.Load) -> ir.Load | None:
        return ir.Load(value.buffer, f(value.indices)) if value.buffer in names else None

    def rebuilt(stmts: Body) -> Body:
        out: list[ir.Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, ir.Store) and stmt.buffer in names:
                out.append(dataclasses.replace(stmt, indices=f(stmt.indices)))
            elif isinstance(stmt, ir.Group):
                out.append(map_places(stmt, lambda place: load(place) or place))
            elif isinstance(stmt, ir.NESTED):
                out.append(with_body(stmt, rebuilt(stmt.body)))
            else:
                out.append(stmt)
        return tuple(out)

    return rebuilt(map_loads(body, load))


def map_places(stmt: ir.Group, f: Callable[[ir.Load], ir.Load]) -> ir.Group:
    """Rebuild what threads do together with every place mapped."""
    if isinstance(stmt, ir.Mma):
        return ir.Mma(f(stmt.total), f(stmt.a), f(stmt.b), stmt.across)
    if isinstance(stmt, ir.AsyncCopy):
        return ir.AsyncCopy(f(stmt.to), f(stmt.source), stmt.count)
    if isinstance(stmt, ir.WarpgroupMma):
        return ir.WarpgroupMma(f(stmt.total), f(stmt.a), f(stmt.b), stmt.count)
    if isinstance(stmt, ir.Fetch):
        return ir.Fetch(f(stmt.to), f(stmt.source), stmt.box)
    return dataclasses.replace(stmt, place=f(stmt.place)) if isinstance(stmt, ir.Shuffle) else stmt


def substitute(body: Body, env: Mapping[str, ir.Index], ranges: Ranges) -> Body:
    """Replace loop variables by indices and simplify by the loops' ranges."""
    inner = {**ranges, **{s.var: s.extent for s in ir.walk(body) if isinstance(s, ir.For)}}

    done: dict[int, ir.Index] = {}
    """By identity: what several loads of a value have in common is rewritten once."""

    def one(value: ir.Index) -> ir.Index:
        new = done.get(id(value))
        if new is None:
            new = value
            if value.reads(env.keys()):
                new = simplify(value.substitute(env), inner)
            done[id(value)] = new
        return new

    return map_stmt_indices(body, one)


def renamed(body: Body, suffix: str) -> Body:
    """A copy whose loop variables and local buffers carry a suffix."""
    loops = {s.var: ir.index(s.var + suffix) for s in ir.walk(body) if isinstance(s, ir.For)}
    names = {s.buffer.name for s in ir.walk(body) if isinstance(s, ir.Alloc)}

    def load(value: ir.Load) -> ir.Value | None:
        return ir.Load(value.buffer + suffix, value.indices) if value.buffer in names else None

    def place(old: ir.Load) -> ir.Load:
        return ir.Load(old.buffer + suffix, old.indices) if old.buffer in names else old

    def declare(stmts: Body) -> Body:
        out: list[ir.Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, ir.For):
                out.append(ir.For(stmt.var + suffix, stmt.extent, stmt.kind, declare(stmt.body)))
            elif isinstance(stmt, ir.Alloc):
                local = dataclasses.replace(stmt.buffer, name=stmt.buffer.name + suffix)
                out.append(ir.Alloc(local, declare(stmt.body)))
            elif isinstance(stmt, ir.If):
                out.append(ir.If(stmt.bounds, declare(stmt.body)))
            elif isinstance(stmt, ir.Group):
                out.append(map_places(stmt, place))
            elif isinstance(stmt, ir.Store | ir.Prefetch) and stmt.buffer in names:
                out.append(dataclasses.replace(stmt, buffer=stmt.buffer + suffix))
            else:
                out.append(stmt)
        return tuple(out)

    return declare(map_loads(map_stmt_indices(body, lambda i: i.substitute(loops)), load))


def loop_path(body: Body, var: str) -> tuple[ir.Stmt, ...]:
    """Statements from the outermost down to the loop `var`, it included. ScheduleError if none."""
    path = _find(body, lambda s: isinstance(s, ir.For) and s.var == var)
    if path is None:
        known = ", ".join(s.var for s in ir.walk(body) if isinstance(s, ir.For))
        raise ScheduleError(f"no loop {var}; loops: {known}")
    return path


def _find(body: Body, wanted: Callable[[ir.Stmt], bool]) -> tuple[ir.Stmt, ...] | None:
    for stmt in body:
        if wanted(stmt):
            return (stmt,)
        if isinstance(stmt, ir.NESTED):
            below = _find(stmt.body, wanted)
            if below is not None:
                return (stmt, *below)
    return None


def find_loop(program: ir.Program, var: str) -> ir.For:
    """The loop of that name. ScheduleError if there is none."""
    loop = loop_path(program.body, var)[-1]
    assert isinstance(loop, ir.For)
    return loop


def find_buffer(program: ir.Program, name: str) -> ir.Buffer:
    """The param or local buffer of that name. ScheduleError if there is none."""
    for param in program.params:
        if param.name == name:
            return param
    for stmt in ir.walk(program.body):
        if isinstance(stmt, ir.Alloc) and stmt.buffer.name == name:
            return stmt.buffer
    raise ScheduleError(f"no buffer {name}")


def ranges_at(program: ir.Program, var: str) -> dict[str, int]:
    """Extents of the loops around the loop `var`, it included."""
    path = loop_path(program.body, var)
    return {s.var: s.extent for s in path if isinstance(s, ir.For)}


def replace(program: ir.Program, old: ir.Stmt, new: Body) -> ir.Program:
    """The program with one statement (by identity) replaced by others."""
    return dataclasses.replace(program, body=_replace(program.body, old, new))


def _replace(body: Body, old: ir.Stmt, new: Body) -> Body:
    """The body itself where nothing in it changes."""
    out: list[ir.Stmt] = []
    for stmt in body:
        inner = _replace(stmt.body, old, new) if isinstance(stmt, ir.NESTED) else ()
        if stmt is old:
            out += new
        elif not isinstance(stmt, ir.NESTED) or inner is stmt.body:
            out.append(stmt)
        elif inner:
            out.append(with_body(stmt, inner))
    return body if len(out) == len(body) and _same(out, body) else tuple(out)


def drop_alloc(program: ir.Program, name: str) -> ir.Program:
    """The program without the alloc of a buffer that nothing uses any more."""
    found = _find(program.body, lambda s: isinstance(s, ir.Alloc) and s.buffer.name == name)
    if found is None:
        raise ScheduleError(f"no local buffer {name}")
    alloc = found[-1]
    assert isinstance(alloc, ir.Alloc)
    return replace(program, alloc, alloc.body)


def loads_of(body: Body) -> Iterator[ir.Load]:
    """Every load in the values of statements."""
    for stmt in ir.walk(body):
        if isinstance(stmt, ir.Store):
            yield from value_loads(stmt.value)


def value_loads(value: ir.Value) -> Iterator[ir.Load]:
    """Every load in a value."""
    if isinstance(value, ir.Load):
        yield value
    elif isinstance(value, ir.Apply):
        for arg in value.args:
            yield from value_loads(arg)
    elif isinstance(value, ir.Select):
        yield from value_loads(value.then)
        yield from value_loads(value.other)


def stores_of(body: Body, buffer: str | None = None) -> list[ir.Store]:
    """Every store (to one buffer)."""
    return [s for s in ir.walk(body) if isinstance(s, ir.Store) and buffer in (None, s.buffer)]


def accesses_of(body: Body) -> Iterator[tuple[str, tuple[ir.Index, ...]]]:
    """Buffer and indices of every store and load."""
    yield from ((s.buffer, s.indices) for s in stores_of(body))
    yield from ((v.buffer, v.indices) for v in loads_of(body))


def prune(body: Body, ranges: Ranges) -> Body:
    """Drop guards that always hold and statements that can never run."""
    out: list[ir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, ir.If):
            inner = prune(stmt.body, ranges)
            left = tuple(b for b in stmt.bounds if not always(b, ranges))
            if any(never(b, ranges) for b in left) or not inner:
                continue
            out += [ir.If(left, inner)] if left else inner
        elif isinstance(stmt, ir.For):
            inner = prune(stmt.body, {**ranges, stmt.var: stmt.extent})
            if inner:
                out.append(with_body(stmt, inner))
        elif isinstance(stmt, ir.Alloc):
            inner = prune(stmt.body, ranges)
            if inner:
                out.append(with_body(stmt, inner))
        else:
            out.append(stmt)
    return tuple(out)


def zero(dtype: str) -> ir.Const:
    """The zero of a dtype."""
    return ir.Const(0.0 if dtype.startswith("float") else 0, dtype)
