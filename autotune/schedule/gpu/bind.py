"""Steps that hand loops to a GPU's blocks and threads: bind, privatize."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.schedule.base import register
from autotune.schedule.loops.nest import annotate, check_apart

_AGENTS = (*ir.THREAD_KINDS, "warp")


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Run a loop's iterations as blocks of a grid, as threads or as warps of a block.

    for i in 8: for j in 32: A[i, j]   ->   for i in 8 block.x: for j in 32 thread.x: A[i, j]

    Block loops are outermost and hold nothing but each other or the body; a block's thread loops
    are inside. Iterations must write elements of their own.
    """

    step: ClassVar[str] = "bind"
    loop: str
    axis: ir.LoopKind

    def apply(self, program: ir.Program) -> ir.Program:
        path = rewrite.loop_path(program.body, self.loop)
        outer = [s for s in path[:-1] if isinstance(s, ir.For)]
        if self.axis in ir.BLOCK_KINDS:
            self._check_block(path[:-1], outer)
        elif self.axis in _AGENTS:
            self._check_thread(outer)
        else:
            known = ", ".join((*ir.BLOCK_KINDS, *ir.THREAD_KINDS, "warp"))
            raise ScheduleError(f"no axis {self.axis!r}; expected one of {known}")
        check_apart(program, rewrite.find_loop(program, self.loop))
        return annotate(program, (self.loop,), self.axis)

    def _check_block(self, around: tuple[ir.Stmt, ...], outer: list[ir.For]) -> None:
        if any(loop.kind not in ir.BLOCK_KINDS for loop in outer):
            raise ScheduleError(f"loop {self.loop} is inside a loop that is not bound to blocks")
        if any(loop.kind == self.axis for loop in outer):
            raise ScheduleError(f"a loop around {self.loop} is bound to {self.axis} already")
        inside = around[around.index(outer[0]) :] if outer else ()
        if any(not isinstance(s, ir.For) for s in inside):
            raise ScheduleError(f"loop {self.loop} is not directly inside a block loop")

    def _check_thread(self, outer: list[ir.For]) -> None:
        if not any(loop.kind in ir.BLOCK_KINDS for loop in outer):
            raise ScheduleError(f"loop {self.loop} is in no block loop")
        if any(loop.kind in (self.axis, "vector", "dot", "warp") for loop in outer):
            raise ScheduleError(f"loop {self.loop} is inside a loop of {self.axis}, or a vector")


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Privatize:
    """Privatization: only a thread's or warp's own part is left of registers around thread loops.

    alloc r[32, 4]: for t in 32 thread.x: for i: r[t, i] = .. ; for u in 32 thread.x: .. r[u, i]
    ->   alloc r[4]: for t in 32 thread.x: for i: r[i] = .. ; for u in 32 thread.x: .. r[i]

    Dimensions go that every access indexes by the same function of the thread's number.
    """

    step: ClassVar[str] = "privatize"
    buffer: str

    def apply(self, program: ir.Program) -> ir.Program:
        alloc = self._alloc(program)
        threads: dict[str, ir.Index] = {
            loop.var: ir.Index(((loop.kind, 1),))
            for loop in ir.walk(alloc.body)
            if isinstance(loop, ir.For) and loop.kind in _AGENTS
        }
        found = [v.indices for v in rewrite.loads_of(alloc.body) if v.buffer == self.buffer]
        found += [s.indices for s in rewrite.stores_of(alloc.body, self.buffer)]
        named = [tuple(i.substitute(threads) for i in indices) for indices in found]
        own = [
            len({indices[d] for indices in named}) == 1
            and named[0][d].vars() <= set(_AGENTS)
            and (extent == 1 or bool(named[0][d].vars()))
            for d, extent in enumerate(alloc.buffer.shape)
        ]
        if not any(own):
            raise ScheduleError(f"no dimension of {self.buffer} is a thread's own")
        kept = tuple(d for d, mine in enumerate(own) if not mine)
        shape = tuple(alloc.buffer.shape[d] for d in kept)
        local = ir.Buffer.dense(self.buffer, alloc.buffer.dtype, shape, "register")
        return rewrite.replace(
            program, alloc, (ir.Alloc(local, rewrite.keep_dims(alloc.body, self.buffer, kept)),)
        )

    def _alloc(self, program: ir.Program) -> ir.Alloc:
        for stmt in ir.walk(program.body):
            if isinstance(stmt, ir.Alloc) and stmt.buffer.name == self.buffer:
                if stmt.buffer.scope != "register":
                    raise ScheduleError(f"{self.buffer} is not in registers")
                return stmt
        raise ScheduleError(f"no local buffer {self.buffer}")
