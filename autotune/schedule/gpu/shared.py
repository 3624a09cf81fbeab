"""Step that keeps what a block's threads read together in shared memory: shared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir
from autotune.program.affine import FloorDiv, Index, Mod, index
from autotune.program.analysis import Ranges, recombine, simplify
from autotune.program.rewrite import (
    Body,
    find_buffer,
    find_loop,
    map_loads,
    ranges_at,
    replace,
    stores_of,
    value_loads,
    with_body,
    zero,
)
from autotune.schedule.base import register
from autotune.schedule.loops.nest import require_new
from autotune.types import SHORT_FLOATS

Guards = tuple[ir.Bound, ...]
Axes = tuple[tuple[str, ...], ...]
Env = Mapping[str, Index]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Copy what one iteration of a loop reads of some buffers into shared memory first.

    for k in 9: for i: for j in 4: t[i] += x[i, k*4+j]   ->
    for k in 9: alloc x.shared[4, 64] shared: {
        for x_s0 in 4: for x_s1 in 64: x.shared[x_s0, x_s1] = x[x_s1, k*4+x_s0]
        barrier ; for i: for j in 4: t[i] += x.shared[j, i] ; barrier }

    `axes`: per buffer, per dimension of the copy, the loops (outermost first) it runs along: here
    (("j",), ("i",)). `pads`: per buffer, elements left free behind each run of the last dimension,
    against bank conflicts. What guards forbid to read is copied as zero; guards that then keep
    nothing but zeros out of a sum, or sums out of elements that are not used, disappear.
    """

    step: ClassVar[str] = "shared"
    loop: str
    buffers: tuple[str, ...]
    axes: tuple[Axes, ...]
    pads: tuple[int, ...]
    dtype: str = ""
    """bfloat16 or float16 to round copies of float32 to; empty: as they are."""

    def apply(self, program: ir.Program) -> ir.Program:
        if self.dtype not in ("", *SHORT_FLOATS):
            known = " or ".join(SHORT_FLOATS)
            raise ScheduleError(f"copies are rounded to {known} or not at all, not {self.dtype}")
        if not len(self.buffers) == len(self.axes) == len(self.pads) > 0:
            raise ScheduleError("every buffer needs its axes and its padding")
        loop = find_loop(program, self.loop)
        copies = [
            _copy_of(program, loop, name, axes, pad=pad, dtype=self.dtype)
            for name, axes, pad in zip(self.buffers, self.axes, self.pads, strict=True)
        ]
        by_name = {copy.source: copy for copy in copies}

        def load(value: ir.Load) -> ir.Value | None:
            copy = by_name.get(value.buffer)
            if copy is None:
                return None
            found = ir.Load(copy.local.name, copy.cell)
            return ir.fn("to_float32", found) if copy.rounded else found

        inner = map_loads(_unguarded(program, loop, by_name), load)
        body: Body = (*(copy.nest for copy in copies), ir.Barrier(), *inner, ir.Barrier())
        for copy in reversed(copies):
            body = (ir.Alloc(copy.local, body),)
        return replace(program, loop, (with_body(loop, body),))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """One buffer's copy: the nest that makes it, and where its readers find an element."""

    source: str
    local: ir.Buffer
    cell: tuple[Index, ...]
    nest: ir.Stmt
    rounded: bool
    guards: Guards
    """Bounds, in the readers' loops, outside of which it holds zeros."""


def _copy_of(
    program: ir.Program, loop: ir.For, name: str, axes: Axes, *, pad: int, dtype: str
) -> _Copy:
    source = find_buffer(program, name)
    if stores_of(loop.body, name):
        raise ScheduleError(f"{name} is written in loop {loop.var}")
    loads = [(v, guards) for v, guards in _guarded_loads(loop.body, ()) if v.buffer == name]
    found = {(v.indices, guards) for v, guards in loads}
    if len(found) != 1:
        raise ScheduleError(f"{name} is read at {len(found)} places in {loop.var}, not at one")
    indices, guards = found.pop()
    outer = ranges_at(program, loop.var)
    inside = {s.var: s.extent for s in ir.walk(loop.body) if isinstance(s, ir.For)}
    own = [v for axis in axes for v in axis]
    if not set(own) <= inside.keys() or len(set(own)) != len(own):
        raise ScheduleError(f"{own} are not loops inside {loop.var}")
    known = outer.keys() | set(own)
    if any(not i.vars() <= known for i in indices):
        raise ScheduleError(f"{name} depends on more loops inside {loop.var} than {own}")
    shape = tuple(math.prod(inside[v] for v in axis) for axis in axes)
    names = tuple(f"{name.replace('.', '_')}_s{d}" for d in range(len(axes)))
    require_new(program, *names)
    env: dict[str, Index] = {}
    for axis, var in zip(axes, names, strict=True):
        env |= _parts(axis, inside, var)
    ranges = outer | dict(zip(names, shape, strict=True))
    kept = tuple(b for b in guards if b.index.vars() <= known)
    value: ir.Value = ir.Load(name, tuple(_resolved(i, env, ranges) for i in indices))
    bounds = tuple(ir.Bound(_resolved(b.index, env, ranges), b.lo, b.hi) for b in kept)
    rounded = bool(dtype) and source.dtype == "float32"
    narrow = bool(bounds) and source.dtype in SHORT_FLOATS  # which have no literals
    if bounds:
        value = ir.fn("to_float32", value) if narrow else value
        value = ir.Select(bounds, value, zero("float32" if narrow else source.dtype))
    kept_as = dtype if rounded else source.dtype
    if rounded or narrow:
        value = ir.fn(f"to_{kept_as}", value)
    local = _padded(f"{name}.shared", kept_as, shape, pad)
    nest: ir.Stmt = ir.Store(local.name, tuple(index(v) for v in names), value)
    for var, extent in reversed(list(zip(names, shape, strict=True))):
        nest = ir.For(var, extent, "serial", (nest,))
    cell = tuple(_position(axis, inside) for axis in axes)
    return _Copy(source=name, local=local, cell=cell, nest=nest, rounded=rounded, guards=kept)


def _padded(name: str, dtype: str, shape: tuple[int, ...], pad: int) -> ir.Buffer:
    """Rows of the last dimension `pad` elements apart."""
    out = [1] * len(shape)
    if len(shape) > 1:
        out[-2] = shape[-1] + pad
        for d in range(len(shape) - 3, -1, -1):
            out[d] = out[d + 1] * shape[d + 1]
    return ir.Buffer(name, dtype, shape, "shared", tuple(out), ((0, 0),) * len(shape))


def _parts(axis: tuple[str, ...], extents: Mapping[str, int], var: str) -> dict[str, Index]:
    """The loops of an axis as parts of the one variable that runs along all of it."""
    out, rest = {}, index(var)
    for number, loop in enumerate(reversed(axis)):
        last = number == len(axis) - 1
        out[loop] = rest if last else rest % extents[loop]
        rest = rest // extents[loop]
    return out


def _position(axis: tuple[str, ...], extents: Mapping[str, int]) -> Index:
    """The place along an axis that its loops are at."""
    out = Index()
    for loop in axis:
        out = out * extents[loop] + loop
    return out


def _resolved(value: Index, env: Env, ranges: Ranges) -> Index:
    """The index with loops replaced by parts of others, put back together where they are whole."""
    return simplify(_whole(value.substitute(env)), ranges)


def _whole(value: Index) -> Index:
    out = Index((), value.const)
    for atom, c in value.terms:
        if isinstance(atom, FloorDiv):
            out = out + (_whole(atom.index) // atom.divisor) * c
        elif isinstance(atom, Mod):
            out = out + (_whole(atom.index) % atom.divisor) * c
        else:
            out = out + Index(((atom, c),))
    return recombine(out)


def _guarded_loads(body: Body, guards: Guards) -> Iterator[tuple[ir.Load, Guards]]:
    """Every load in the values of stores, with the bounds of the `if`s around it."""
    for stmt in body:
        if isinstance(stmt, ir.Store):
            for load in value_loads(stmt.value):
                yield load, guards
        elif isinstance(stmt, ir.If):
            yield from _guarded_loads(stmt.body, (*guards, *stmt.bounds))
        elif isinstance(stmt, ir.For | ir.Alloc):
            yield from _guarded_loads(stmt.body, guards)


# ------------------------------------------------------------------------------ needless guards


def _unguarded(program: ir.Program, loop: ir.For, copies: Mapping[str, _Copy]) -> Body:
    """The loop's body without the guards of sums that the copies make needless."""
    used = [
        (v, guards)
        for v, guards in _guarded_loads(_without(program.body, loop), ())
        if any(v.buffer == s.buffer for s in stores_of(loop.body))
    ]

    def strip(body: Body) -> Body:
        out: list[ir.Stmt] = []
        for stmt in body:
            store = _only_store(stmt)
            if isinstance(stmt, ir.If) and store is not None:
                left = tuple(b for b in stmt.bounds if not _needless(b, store, copies, used))
                inner = strip(stmt.body)
                out += [ir.If(left, inner)] if left else inner
            elif isinstance(stmt, ir.For | ir.Alloc | ir.If):
                out.append(with_body(stmt, strip(stmt.body)))
            else:
                out.append(stmt)
        return tuple(out)

    return strip(loop.body)


def _only_store(stmt: ir.Stmt) -> ir.Store | None:
    """The store that guards, and nothing else, stand around."""
    while isinstance(stmt, ir.If) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    return stmt if isinstance(stmt, ir.Store) else None


def _without(body: Body, loop: ir.For) -> Body:
    out: list[ir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, ir.For | ir.Alloc | ir.If) and stmt is not loop:
            out.append(with_body(stmt, _without(stmt.body, loop)))
        elif stmt is not loop:
            out.append(stmt)
    return tuple(out)


def _needless(
    bound: ir.Bound,
    store: ir.Store,
    copies: Mapping[str, _Copy],
    used: list[tuple[ir.Load, Guards]],
) -> bool:
    """Whether a sum may run outside a bound: it adds products of zeros, or adds to an element of
    registers that nobody reads there."""
    loads = list(value_loads(store.value))
    if store.combine != "sum" or any(v.buffer not in copies for v in loads):
        return False
    if _is_product(store.value) and all(bound in copies[v.buffer].guards for v in loads):
        return True
    cell = {i.terms[0][0]: d for d, i in enumerate(store.indices) if _plain(i)}
    inner = [v for v in bound.index.vars() if v in cell]
    if not inner or bound.index.vars() - set(inner) & _inside_vars(copies):
        return False
    return all(
        any(_implies(g, _moved(bound, store.indices, v.indices)) for g in guards)
        for v, guards in used
        if v.buffer == store.buffer
    )


def _implies(known: ir.Bound, wanted: ir.Bound) -> bool:
    return known.index == wanted.index and known.lo >= wanted.lo and known.hi <= wanted.hi


def _inside_vars(copies: Mapping[str, _Copy]) -> frozenset[str]:
    return frozenset[str]().union(*(i.vars() for c in copies.values() for i in c.cell))


def _plain(value: Index) -> bool:
    return len(value.terms) == 1 and not value.const and value.terms[0][1] == 1


def _moved(bound: ir.Bound, written: tuple[Index, ...], read: tuple[Index, ...]) -> ir.Bound:
    """The bound as a reader of the same element would write it."""
    env = {str(w.terms[0][0]): r for w, r in zip(written, read, strict=True) if _plain(w)}
    return ir.Bound(bound.index.substitute(env), bound.lo, bound.hi)


def _is_product(value: ir.Value) -> bool:
    if isinstance(value, ir.Apply):
        return value.fn in ("mul", "to_float32", "to_int32") and all(
            _is_product(a) for a in value.args
        )
    return isinstance(value, ir.Load)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class UniformBounds:
    """Bounds that hold for all lanes of a vector or for none, without the lane in them.

    for v in 4: if 0 <= i*4 + v < 20: ..   ->   for v in 4: if 0 <= i < 5: ..
    """

    step: ClassVar[str] = "uniform_bounds"
    loops: tuple[str, ...]

    def apply(self, program: ir.Program) -> ir.Program:
        for var in self.loops:
            loop = find_loop(program, var)
            program = replace(program, loop, (with_body(loop, _uniform(loop.body, loop)),))
        return program


def _uniform(body: Body, lane: ir.For) -> Body:
    out: list[ir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, ir.If):
            out.append(ir.If(_aligned(stmt.bounds, lane), _uniform(stmt.body, lane)))
        elif isinstance(stmt, ir.Store):
            out.append(ir.Store(stmt.buffer, stmt.indices, _lanes(stmt.value, lane), stmt.combine))
        elif isinstance(stmt, ir.For | ir.Alloc):
            out.append(with_body(stmt, _uniform(stmt.body, lane)))
        else:
            out.append(stmt)
    return tuple(out)


def _lanes(value: ir.Value, lane: ir.For) -> ir.Value:
    if isinstance(value, ir.Apply):
        return ir.Apply(value.fn, tuple(_lanes(a, lane) for a in value.args))
    if isinstance(value, ir.Select):
        bounds = _aligned(value.bounds, lane)
        return ir.Select(bounds, _lanes(value.then, lane), _lanes(value.other, lane))
    return value


def _aligned(bounds: Guards, lane: ir.For) -> Guards:
    return tuple(_aligned_bound(b, lane) for b in bounds)


def _aligned_bound(bound: ir.Bound, lane: ir.For) -> ir.Bound:
    rest = bound.index - Index(((lane.var, bound.index.coefficient(lane.var)),))
    numbers = (rest.const, bound.lo, bound.hi, *(c for _, c in rest.terms))
    even = all(n % lane.extent == 0 for n in numbers) and lane.var not in rest.vars()
    if bound.index.coefficient(lane.var) != 1 or not even:
        return bound
    return ir.Bound(rest // lane.extent, bound.lo // lane.extent, bound.hi // lane.extent)
