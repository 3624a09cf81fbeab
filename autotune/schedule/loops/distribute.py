"""Step distribute: loop distribution (fission) with scalar expansion (Allen & Kennedy 2001)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.schedule.base import register
from autotune.schedule.loops.jam import check_serial, flat
from autotune.schedule.loops.nest import require_new
from autotune.types import dense_strides


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Distribute:
    """Loop distribution: a loop of its own for what comes before the loop `inner`, for that loop,
    interchanged with it, and for what comes after. Local buffers around them are expanded: they
    get a dimension for the iterations.

    for r: alloc t: { t = 0 ; for k: t += x[r, k] ; y[r] = t }   ->
    alloc t[R]: { for r: t[r] = 0 ; for k: for r_k: t[r_k] += x[r_k, k] ; for r_out: y[..] = .. }
    """

    step: ClassVar[str] = "distribute"
    loop: str
    inner: str

    def apply(self, program: ir.Program) -> ir.Program:
        loop, inner = rewrite.find_loop(program, self.loop), rewrite.find_loop(program, self.inner)
        stmts, allocs = flat(loop.body, (inner,))
        at = next((n for n, s in enumerate(stmts) if s is inner), None)
        if at is None:
            raise ScheduleError(f"loop {self.inner} is not directly inside loop {self.loop}")
        local = [a.buffer for a in allocs]
        names = {b.name for b in local}
        check_serial(loop)
        _check_own(loop)
        if inner.kind == "vector":
            raise ScheduleError(f"loop {self.inner} is a vector's")
        within, after = f"{self.loop}_{self.inner}", f"{self.loop}_out"
        require_new(program, within, after)

        def part(body: Sequence[ir.Stmt], var: str) -> rewrite.Body:
            if not body:
                return ()
            env = {self.loop: ir.index(var)}
            moved = rewrite.map_stmt_indices(tuple(body), lambda i: i.substitute(env))
            moved = rewrite.map_buffers(moved, names, lambda indices: (ir.index(var), *indices))
            return (ir.For(var, loop.extent, loop.kind, moved),)

        new: rewrite.Body = (
            *part(stmts[:at], self.loop),
            rewrite.with_body(inner, part(inner.body, within)),
            *part(stmts[at + 1 :], after),
        )
        for buffer in reversed(local):
            new = (ir.Alloc(_expanded(buffer, loop.extent), new),)
        return rewrite.replace(program, loop, new)


def _expanded(buffer: ir.Buffer, count: int) -> ir.Buffer:
    """The buffer as many times."""
    shape = (count, *buffer.shape)
    return dataclasses.replace(
        buffer, shape=shape, strides=dense_strides(shape), halo=((0, 0), *buffer.halo)
    )


def _check_own(loop: ir.For) -> None:
    """Iterations of a loop touch nothing that others write: one dimension of every buffer that
    they write is indexed alike everywhere, and by each otherwise."""
    local = {s.buffer.name for s in ir.walk(loop.body) if isinstance(s, ir.Alloc)}
    inner = {s.var for s in ir.walk(loop.body) if isinstance(s, ir.For)}
    found: dict[str, list[tuple[ir.Index, ...]]] = {}
    for buffer, indices in rewrite.accesses_of(loop.body):
        found.setdefault(buffer, []).append(indices)
    for buffer in {s.buffer for s in rewrite.stores_of(loop.body)} - local:
        own = (
            len(set(same)) == 1 and same[0].coefficient(loop.var) and not same[0].vars() & inner
            for same in zip(*found[buffer], strict=True)
        )
        if not any(own):
            raise ScheduleError(f"iterations of {loop.var} share elements of {buffer}")
