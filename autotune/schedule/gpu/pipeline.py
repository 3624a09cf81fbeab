"""Steps that fetch ahead what a block's threads will read: asynchronous, pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.program.analysis import interval
from autotune.program.launch import storage_size
from autotune.schedule.base import register
from autotune.types import SHORT_FLOATS

Guards = tuple[ir.Bound, ...]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Asynchronous:
    """Copies to shared memory that the threads do not wait for.

    for v in 4: s[v] = x[i*4+v]   ->   copy 4 s[0] from x[i*4]

    Where the elements do not lie side by side in both, they are copied one by one. What a guard
    fills with zeros is stored as before. Waits are made by `pipeline`.
    """

    step: ClassVar[str] = "asynchronous"
    loop: str

    def apply(self, program: ir.Program) -> ir.Program:
        loop = rewrite.find_loop(program, self.loop)
        bounds, store = _store_of(loop)
        local = rewrite.find_buffer(program, store.buffer)
        if local.scope != "shared" or store.combine:
            raise ScheduleError(f"loop {self.loop} does not copy to shared memory")
        chosen = chosen_of(store.value)
        inner: Guards = chosen.bounds if chosen else ()
        value: ir.Value = chosen.then if chosen else store.value
        other: ir.Value | None = chosen.other if chosen else None
        if not isinstance(value, ir.Load) or (
            other is not None and not isinstance(other, ir.Const)
        ):
            raise ScheduleError(f"loop {self.loop} copies {value}, not what lies in a buffer")
        if any(self.loop in b.index.vars() for b in (*bounds, *inner)):
            raise ScheduleError(f"a guard goes through the elements of {self.loop}")
        source = rewrite.find_buffer(program, value.buffer)
        if source.dtype != local.dtype:
            raise ScheduleError(f"{store.buffer} holds {local.dtype}, {source.name} does not")
        new: rewrite.Body = _copies(
            loop, ir.Load(store.buffer, store.indices), value, (local, source)
        )
        if inner and other is not None:
            zero = ir.fn(f"to_{local.dtype}", other) if local.dtype in SHORT_FLOATS else other
            filled = rewrite.with_body(loop, (dataclasses.replace(store, value=zero),))
            ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
            zeros = [
                ir.If(guards, rewrite.renamed((filled,), f"_zero{number}"))
                for number, guards in enumerate(_outside(inner, ranges))
            ]
            new = (ir.If(inner, new), *zeros)
        return rewrite.replace(program, loop, (ir.If(bounds, new),) if bounds else new)


def chosen_of(value: ir.Value) -> ir.Select | None:
    """A selection of an element or another value; of short floats, by way of float32."""
    if not isinstance(value, ir.Apply):
        return value if isinstance(value, ir.Select) else None
    inner = value.args[0]
    if value.fn.removeprefix("to_") not in SHORT_FLOATS or not isinstance(inner, ir.Select):
        return None
    wide = inner.then
    if not isinstance(wide, ir.Apply) or wide.fn != "to_float32":
        return None
    return ir.Select(inner.bounds, wide.args[0], inner.other)


def _store_of(loop: ir.For) -> tuple[Guards, ir.Store]:
    """The loop's only store, and guards around it."""
    bounds: Guards = ()
    stmt: ir.Stmt | None = loop.body[0] if len(loop.body) == 1 else None
    while isinstance(stmt, ir.If) and len(stmt.body) == 1:
        bounds, stmt = (*bounds, *stmt.bounds), stmt.body[0]
    if not isinstance(stmt, ir.Store):
        raise ScheduleError(f"loop {loop.var} holds more than a store")
    return bounds, stmt


def _copies(
    loop: ir.For, to: ir.Load, source: ir.Load, buffers: tuple[ir.Buffer, ir.Buffer]
) -> rewrite.Body:
    """One copy of all elements where they lie side by side, else one for each."""
    side_by_side = all(
        b.strides[-1] == 1
        and p.indices[-1].coefficient(loop.var) == 1
        and not any(loop.var in i.vars() for i in p.indices[:-1])
        and loop.var not in (p.indices[-1] - ir.index(loop.var)).vars()
        for p, b in zip((to, source), buffers, strict=True)
    )
    if not side_by_side:
        kind: ir.LoopKind = "serial" if loop.extent == 1 else "unroll"
        return (ir.For(loop.var, loop.extent, kind, (ir.AsyncCopy(to, source, 1),)),)
    first = {loop.var: ir.Index()}
    places = [
        ir.Load(p.buffer, tuple(i.substitute(first) for i in p.indices)) for p in (to, source)
    ]
    return (ir.AsyncCopy(places[0], places[1], loop.extent),)


def _outside(bounds: Guards, ranges: Mapping[str, int]) -> Iterator[Guards]:
    """Guards that hold, one of them at a time, where not all the bounds do."""
    for number, bound in enumerate(bounds):
        lo, hi = interval(bound.index, ranges)
        if lo < bound.lo:
            yield (*bounds[:number], ir.Bound(bound.index, lo, bound.lo))
        if hi >= bound.hi:
            yield (*bounds[:number], ir.Bound(bound.index, bound.hi, hi + 1))


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Copy to shared memory for later iterations while this one computes.

    for k in 9: alloc s: { s = x[k] ; barrier ; use s ; barrier }   ->   (with 3 stages)
    alloc s[3]: { s[0] = x[0] ; commit ; s[1] = x[1] ; commit ; for k in 9: {
        wait 1 ; barrier ; if k + 2 < 9: s[(k+2) % 3] = x[k+2] ; commit ; use s[k % 3] } }

    Without asynchronous copies there is nothing to commit or wait for but the barrier.
    """

    step: ClassVar[str] = "pipeline"
    loop: str
    stages: int

    def apply(self, program: ir.Program) -> ir.Program:
        loop = rewrite.find_loop(program, self.loop)
        ahead = self.stages - 1
        if not 1 <= ahead < loop.extent:
            raise ScheduleError(f"{self.stages} stages in {loop.extent} iterations")
        buffers, body = rewrite.unwrapped(loop.body, "shared")
        if not buffers or body[-1] != ir.Barrier() or body.index(ir.Barrier()) == len(body) - 1:
            raise ScheduleError(f"loop {self.loop} does not copy, wait, compute and wait again")
        first = body.index(ir.Barrier())
        fetch, compute = body[:first], body[first + 1 : -1]
        if ir.Barrier() in fetch or ir.Barrier() in compute:
            raise ScheduleError(f"loop {self.loop} has more barriers than two")
        groups = any(isinstance(s, ir.AsyncCopy) for s in ir.walk(fetch))
        commit: rewrite.Body = (ir.AsyncCommit(),) if groups else ()
        ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}
        names = {b.name for b in buffers}

        def at(stmts: rewrite.Body, iteration: ir.Index) -> rewrite.Body:
            moved = rewrite.substitute(stmts, {self.loop: iteration}, ranges)
            return in_slot(moved, names, iteration % self.stages)

        new: list[ir.Stmt] = []
        for number in range(ahead):
            new += (*rewrite.renamed(at(fetch, ir.index(number)), f"_{number}"), *commit)
        var = ir.index(self.loop)
        later = ir.Bound(var, 0, loop.extent - ahead)
        # A guard that only the first iteration passes says so in its indices, too: left to find it
        # out, ptxas (12.8 to 13.0, sm_90a) takes 0 for the slot (var + 1) % 2, which is 1 there.
        next_one = var + ahead if later.hi > 1 else ir.index(ahead)
        inner: rewrite.Body = (
            *((ir.AsyncWait(ahead - 1),) if groups else ()),
            ir.Barrier(),
            ir.If((later,), at(fetch, next_one)),
            *commit,
            *in_slot(compute, names, var % self.stages),
        )
        nest: rewrite.Body = (*new, rewrite.with_body(loop, inner), ir.Barrier())
        for buffer in reversed(buffers):
            nest = (ir.Alloc(_staged(buffer, self.stages), nest),)
        return rewrite.replace(program, loop, nest)


def _staged(buffer: ir.Buffer, stages: int) -> ir.Buffer:
    """The buffer as many times, one behind the other, every one at a multiple of 16 elements, and
    of those after which its swizzle repeats itself."""
    unit = max(16, 1 << sum(buffer.swizzle))
    size = -(-storage_size(buffer) // unit) * unit
    return dataclasses.replace(
        buffer, shape=(stages, *buffer.shape), strides=(size, *buffer.strides),
        halo=((0, 0), *buffer.halo),
    )  # fmt: skip


def in_slot(body: rewrite.Body, names: set[str], slot: ir.Index) -> rewrite.Body:
    """Use one of the copies of staged buffers."""
    return rewrite.map_buffers(body, names, lambda indices: (slot, *indices))
