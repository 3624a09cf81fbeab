"""Steps for reduced precision: cast (data copied to bfloat16), dot (neighbouring products)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir
from autotune.program.rewrite import Body, find_loop, map_loads, replace, with_body
from autotune.schedule.base import register
from autotune.schedule.loops.nest import require_new
from autotune.types import Layout

DOTS = (2, 4, 8)
"""Products that an instruction sums for an element."""
Loader = Callable[[ir.Load], ir.Value | None]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Copy a float32 param to bfloat16 at the start, halo included; `tensor` reads the copy.

    for k: t += x[k] * w[k]   ->
    alloc x.bf16: { for p: x.bf16[p] = to_bfloat16(x[p])
                    for k: t += to_float32(x.bf16[k]) * w[k] }

    Only the sum into `tensor` changes. Loops of the copy are named <buffer>_n0, <buffer>_n1, ...
    """

    step: ClassVar[str] = "cast"
    buffer: str
    tensor: str

    def apply(self, program: ir.Program) -> ir.Program:
        source = next((p for p in program.params if p.name == self.buffer), None)
        if source is None or source.dtype != "float32" or source.constant or source.written:
            raise ScheduleError(f"{self.buffer} is not a float32 input")
        layout = Layout.haloed(source.shape, source.halo)
        local = ir.Buffer(
            f"{self.buffer}.bf16", "bfloat16", source.shape, "scratch", layout.strides, source.halo
        )
        found = [0]

        def load(value: ir.Load) -> ir.Value | None:
            if value.buffer != self.buffer:
                return None
            found[0] += 1
            return ir.fn("to_float32", ir.Load(local.name, value.indices))

        body = in_sums(program.body, self.tensor, load)
        if not found[0]:
            raise ScheduleError(f"no sum into {self.tensor} reads {self.buffer}")
        return dataclasses.replace(
            program, body=with_first(local, self._copy(program, local), body)
        )

    def _copy(self, program: ir.Program, local: ir.Buffer) -> ir.Stmt:
        names = [f"{self.buffer}_n{d}" for d in range(len(local.shape))]
        require_new(program, *names)
        # The halo is read, not known to be zeros: neighbours of a strip lie there.
        point = tuple(
            ir.index(name) - before for name, (before, _) in zip(names, local.halo, strict=True)
        )
        value = ir.fn("to_bfloat16", ir.Load(self.buffer, point))
        stmt: ir.Stmt = ir.Store(local.name, point, value)
        extents = [e + b + a for e, (b, a) in zip(local.shape, local.halo, strict=True)]
        for name, extent in reversed(list(zip(names, extents, strict=True))):
            stmt = ir.For(name, extent, "serial", (stmt,))
        return stmt


def in_sums(body: Body, tensor: str, load: Loader) -> Body:
    """Map loads in the sums into one tensor."""
    out: list[ir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, ir.Store) and stmt.buffer == tensor and stmt.combine == "sum":
            out += map_loads((stmt,), load)
        elif isinstance(stmt, ir.For | ir.Alloc | ir.If):
            out.append(with_body(stmt, in_sums(stmt.body, tensor, load)))
        else:
            out.append(stmt)
    return tuple(out)


def with_first(local: ir.Buffer, first: ir.Stmt, body: Body) -> Body:
    """The statement before everything else, below the allocs at the root."""
    if len(body) == 1 and isinstance(body[0], ir.Alloc):
        return (with_body(body[0], with_first(local, first, body[0].body)),)
    return (ir.Alloc(local, (first, *body)),)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """Mark the innermost loop of two products of bfloat16, or four of bytes, as one operation:
    twice as many in a product of matrices.

    for l in 16: for p in 2: t[l] += to_float32(x[p]) * to_float32(w[l, p])   ->   the same, `dot`
    """

    step: ClassVar[str] = "dot"
    loop: str

    def apply(self, program: ir.Program) -> ir.Program:
        loop = find_loop(program, self.loop)
        stores = [s for s in ir.walk(loop.body) if not isinstance(s, ir.If)]
        if loop.extent not in DOTS or len(stores) != 1:
            raise ScheduleError(f"loop {self.loop} is not {DOTS} iterations of one sum")
        store = stores[0]
        if not isinstance(store, ir.Store) or store.combine != "sum":
            raise ScheduleError(f"loop {self.loop} is not a sum")
        return replace(program, loop, (ir.For(loop.var, loop.extent, "dot", loop.body),))
