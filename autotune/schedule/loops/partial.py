"""Steps that let several blocks share one long sum (split-K): unit_loop, partial."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import rewrite
from autotune.program.ir import Alloc, Buffer, For, If, Load, Program, Stmt, Store, index
from autotune.schedule.base import register
from autotune.schedule.loops.nest import chain_stmt, require_new
from autotune.schedule.loops.rfactor import identity

_SUFFIX = "_part"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLoop:
    """Put the computation of what has no dimensions, and all after it, into a loop of one
    iteration, which can be bound.

    y[] = 0 ; for k in 9: y[] += x[k]   ->   for one in 1: { y[] = 0 ; for k in 9: y[] += x[k] }
    """

    step: ClassVar[str] = "unit_loop"
    loop: str

    def apply(self, program: Program) -> Program:
        require_new(program, self.loop)
        body = program.body
        while len(body) == 1 and isinstance(body[0], Alloc):
            body = body[0].body
        first = next((n for n, stmt in enumerate(body) if isinstance(stmt, Store)), None)
        if first is None:
            raise ScheduleError("every element is computed in a loop")
        whole = _with_tail(program.body, body, first, self.loop)
        return dataclasses.replace(program, body=whole)


def _with_tail(body: rewrite.Body, inner: rewrite.Body, first: int, var: str) -> rewrite.Body:
    """Statements from the `first` of the innermost ones on in a loop."""
    if body is inner:
        return (*body[:first], For(var, 1, "serial", body[first:]))
    (alloc,) = body
    assert isinstance(alloc, Alloc)
    return (rewrite.with_body(alloc, _with_tail(alloc.body, inner, first, var)),)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Add up every iteration of a reduction's outermost loop by itself first, in scratch memory.

    for i: { y[i] = 0 ; for p in 4: for k: y[i] += .. ; z[i] = f(y[i]) }   ->
    alloc y.parts[4, I]: { for p in 4: for i_part: { y.parts[p, i_part] = 0 ;
                                                     for k: y.parts[p, i_part] += .. }
                           for i: { y[i] = 0 ; for p_sum in 4: y[i] += y.parts[p_sum, i] ; .. } }
    """

    step: ClassVar[str] = "partial"
    buffer: str
    loop: str

    def apply(self, program: Program) -> Program:
        path = [s for s in rewrite.loop_path(program.body, self.loop) if not isinstance(s, Alloc)]
        if any(isinstance(s, If) for s in path):
            raise ScheduleError(f"loop {self.loop} is inside a guard")
        *chain, loop = (s for s in path if isinstance(s, For))
        if not chain or any(len(c.body) != 1 for c in chain[:-1]):
            raise ScheduleError(f"loops around {self.loop} hold more than each other")
        stores = rewrite.stores_of((loop,))
        if len(stores) != 1 or stores[0].buffer != self.buffer or not stores[0].combine:
            raise ScheduleError(f"loop {self.loop} is not a reduction into {self.buffer} alone")
        store, dtype = stores[0], rewrite.find_buffer(program, self.buffer).dtype
        shape = (loop.extent, *(c.extent for c in chain))
        parts = Buffer.dense(f"{self.buffer}.parts", dtype, shape, "scratch")
        require_new(program, f"{self.loop}_sum", *(c.var + _SUFFIX for c in chain))
        first = self._parts(loop, chain, store, parts)
        cell = (index(f"{self.loop}_sum"), *(index(c.var) for c in chain))
        add = Store(self.buffer, store.indices, Load(parts.name, cell), store.combine)
        total = For(f"{self.loop}_sum", loop.extent, "serial", (add,))
        top = chain[0]
        program = rewrite.replace(program, loop, (total,))
        kept = next(s for s in rewrite.loop_path(program.body, top.var) if isinstance(s, For))
        program = rewrite.replace(program, kept, (first, kept))
        return dataclasses.replace(program, body=(Alloc(parts, program.body),))

    def _parts(self, loop: For, chain: list[For], store: Store, parts: Buffer) -> Stmt:
        """The nest that computes the parts."""
        env = {c.var: index(c.var + _SUFFIX) for c in chain}
        cell = (index(loop.var), *env.values())
        start = Store(parts.name, cell, identity(store.combine or "", parts.dtype))
        inner = rewrite.map_stmt_indices(loop.body, lambda i: i.substitute(env))

        def redirected(body: rewrite.Body) -> rewrite.Body:
            out: list[Stmt] = []
            for stmt in body:
                if isinstance(stmt, Store):
                    out.append(Store(parts.name, cell, stmt.value, stmt.combine))
                elif isinstance(stmt, For | Alloc | If):
                    out.append(rewrite.with_body(stmt, redirected(stmt.body)))
                else:
                    out.append(stmt)
            return tuple(out)

        nest = chain_stmt(chain, (start, *redirected(inner)), _SUFFIX)
        return For(loop.var, loop.extent, "serial", (nest,))
