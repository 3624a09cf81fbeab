"""Step software_pipeline: two stages of neighbouring iterations side by side (Lam 1988)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.schedule.base import register
from autotune.schedule.loops.jam import check_serial
from autotune.schedule.loops.nest import require_new


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwarePipeline:
    """Software pipelining in two stages: the first stage of the next iteration runs before the
    last stage of this one, which begins at the statement that computes `buffer`. What the last
    stage reads of the first is copied; prologue and epilogue stand around the loop.

    for i in 9: alloc s: { s = f(x[i]) ; y[i] = g(s) }   ->
    alloc s: alloc s.now: { s = f(x[0]) ; for i in 8: { s.now = s ; s = f(x[i+1]) ;
                            y[i] = g(s.now) } ; y[8] = g(s) }

    A last iteration with code of its own comes after all others.
    """

    step: ClassVar[str] = "software_pipeline"
    loop: str
    buffer: str

    def apply(self, program: ir.Program) -> ir.Program:
        loop = rewrite.find_loop(program, self.loop)
        check_serial(loop)
        whole, rest = _whole(loop)
        if whole.extent < 2:
            raise ScheduleError(f"loop {self.loop} has no iteration to run ahead")
        local, stmts = rewrite.unwrapped(whole.body)
        at = next((n for n, s in enumerate(stmts) if rewrite.stores_of((s,), self.buffer)), 0)
        first, last = stmts[:at], stmts[at:]
        if not first:
            raise ScheduleError(f"nothing comes before {self.buffer} in loop {self.loop}")
        shared = _shared(first, last, local)
        ranges = rewrite.ranges_at(program, self.loop) | {self.loop: whole.extent - 1}
        require_new(program, *(f"{b.name}.now" for b in shared))
        var, end = ir.index(self.loop), whole.extent - 1
        start = rewrite.substitute(first, {self.loop: ir.Index()}, ranges)
        final = rewrite.substitute(last, {self.loop: ir.Index((), end)}, ranges)
        names = {b.name for b in shared}

        def kept(load: ir.Load) -> ir.Load | None:
            return ir.Load(f"{load.buffer}.now", load.indices) if load.buffer in names else None

        body: rewrite.Body = (
            *(_copied(b) for b in shared),
            *rewrite.substitute(first, {self.loop: var + 1}, ranges),
            *rewrite.map_loads(last, kept),
        )
        new: rewrite.Body = (
            *rewrite.renamed(start, "_first"),
            ir.For(loop.var, end, loop.kind, body),
            *rewrite.renamed(final, "_last"),
        )
        now = [dataclasses.replace(b, name=f"{b.name}.now") for b in shared]
        for buffer in reversed((*local, *now)):
            new = (ir.Alloc(buffer, new),)
        return rewrite.replace(program, loop, (*new, *rest))


def _whole(loop: ir.For) -> tuple[ir.For, rewrite.Body]:
    """The loop without a last iteration that has code of its own, and that code."""
    if len(loop.body) != 2 or not all(isinstance(s, ir.If) for s in loop.body):
        return loop, ()
    main, rest = loop.body
    assert isinstance(main, ir.If)
    assert isinstance(rest, ir.If)
    last, at = loop.extent - 1, ir.index(loop.var)
    wanted = (ir.Bound(at, 0, last),), (ir.Bound(at, last, loop.extent),)
    if (main.bounds, rest.bounds) != wanted:
        raise ScheduleError(f"loop {loop.var} is guarded within")
    body = rewrite.substitute(rest.body, {loop.var: ir.Index((), last)}, {})
    return ir.For(loop.var, last, loop.kind, main.body), body


def _shared(
    first: rewrite.Body, last: rewrite.Body, local: Sequence[ir.Buffer]
) -> list[ir.Buffer]:
    """Local buffers that the first part writes and the last one reads. Nothing else may pass
    between the two."""
    parts = [{name for name, _ in rewrite.accesses_of(body)} for body in (first, last)]
    written = [{s.buffer for s in rewrite.stores_of(body)} for body in (first, last)]
    if written[1] & parts[0]:
        raise ScheduleError(f"{min(written[1] & parts[0])} is needed from one part to the next")
    shared = [b for b in local if b.name in written[0] & parts[1]]
    if written[0] & parts[1] - {b.name for b in shared}:
        raise ScheduleError("what the last part reads is not in local buffers of the loop")
    return shared


def _copied(buffer: ir.Buffer) -> ir.Stmt:
    """A copy of a buffer's elements to its `.now`."""
    names = [f"{buffer.name}_now{d}" for d in range(len(buffer.shape))]
    cell = tuple(ir.index(n) for n in names)
    stmt: ir.Stmt = ir.Store(f"{buffer.name}.now", cell, ir.Load(buffer.name, cell))
    for name, extent in reversed(list(zip(names, buffer.shape, strict=True))):
        stmt = ir.For(name, extent, "serial", (stmt,))
    return stmt
