"""Step partition_scatter: a scatter's destinations divided among iterations (owner computes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.analysis import reads_memory
from autotune.program.ir import Bound, For, If, Program, Store, index, walk
from autotune.program.rewrite import Body, find_buffer, find_loop, replace, with_body
from autotune.schedule.base import register
from autotune.schedule.loops.compute import root_body
from autotune.schedule.loops.nest import require_new


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionScatter:
    """Go through all updates of a tensor as often as it has parts, each time for those of one
    part: iterations of the new loop write elements of their own.

    for l: for w: y[int(p[l], 10), w] += u[l, w]   ->
    for r in 2: for l: if 0 <= int(p[l], 10) - 5*r < 5: for w: y[int(p[l], 10), w] += u[l, w]
    """

    step: ClassVar[str] = "partition_scatter"
    loop: str
    """The outermost loop over the updates."""
    size: int
    """Places of a part."""
    part: str

    def apply(self, program: Program) -> Program:
        loop = find_loop(program, self.loop)
        if not any(s is loop for s in root_body(program)):
            raise ScheduleError(f"loop {self.loop} is inside another loop")
        require_new(program, self.part)
        store = _only_store(loop)
        dims = [d for d, i in enumerate(store.indices) if reads_memory(i)]
        if len(dims) != 1 or self.size < 1:
            raise ScheduleError(f"{store.buffer} needs one computed place, and parts a size")
        place = store.indices[dims[0]]
        count = -(-find_buffer(program, store.buffer).shape[dims[0]] // self.size)
        bound = Bound(place - index(self.part) * self.size, 0, self.size)
        loops = [s.var for s in walk((loop,)) if isinstance(s, For)]
        # Under the innermost loop where the place is the same for all updates.
        *_, deepest = [v for v in loops if v in place.vars()] or loops
        (nest,) = _guarded((loop,), bound, deepest)
        return replace(program, loop, (For(self.part, count, "serial", (nest,)),))


def _only_store(loop: For) -> Store:
    """What perfectly nested loops, and guards, hold."""
    body: Body = (loop,)
    while len(body) == 1 and isinstance(body[0], For | If):
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], Store):
        raise ScheduleError(f"loop {loop.var} does not hold a single store")
    return body[0]


def _guarded(body: Body, bound: Bound, loop: str) -> Body:
    """A guard directly inside a loop."""
    (stmt,) = body
    if isinstance(stmt, For) and stmt.var == loop:
        return (with_body(stmt, (If((bound,), stmt.body),)),)
    inner = stmt.body if isinstance(stmt, For | If) else ()
    return (with_body(stmt, _guarded(inner, bound, loop)),)
