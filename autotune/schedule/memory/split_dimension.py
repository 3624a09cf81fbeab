"""Step split_dimension: data layout tiling of a local buffer, for readers that take every n-th."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program import ir, rewrite
from autotune.program.analysis import reads_memory, simplify
from autotune.schedule.base import register


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDimension:
    """Elements of a scratch buffer that lie `factor` apart along a dimension lie side by side:
    it becomes two, the remainder before the quotient.

    alloc t[6]: .. t[2*i + k] ..   ->   alloc t[2, 3]: .. t[(2*i + k) % 2, (2*i + k) // 2] ..
    """

    step: ClassVar[str] = "split_dimension"
    buffer: str
    dim: int
    factor: int

    def apply(self, program: ir.Program) -> ir.Program:
        alloc = next(
            (s for s in ir.walk(program.body)
             if isinstance(s, ir.Alloc) and s.buffer.name == self.buffer), None,
        )  # fmt: skip
        if alloc is None or alloc.buffer.scope != "scratch":
            raise ScheduleError(f"{self.buffer} is no scratch buffer")
        old = alloc.buffer
        if not 0 <= self.dim < len(old.shape) or not 1 < self.factor <= old.shape[self.dim]:
            raise ScheduleError(
                f"dimension {self.dim} of {self.buffer}{list(old.shape)} cannot be split by "
                f"{self.factor}: it takes two or more, and no more elements than there are"
            )
        if any(before or after for before, after in old.halo):
            raise ScheduleError(f"{self.buffer} has a halo")
        if any(isinstance(s, ir.Group) for s in ir.walk(alloc.body)):
            raise ScheduleError(f"{self.buffer} is used by a group of threads")
        each = -(-old.shape[self.dim] // self.factor)
        shape = (*old.shape[: self.dim], self.factor, each, *old.shape[self.dim + 1 :])
        ranges = {s.var: s.extent for s in ir.walk(program.body) if isinstance(s, ir.For)}

        def places(indices: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
            at = indices[self.dim]
            if reads_memory(at):
                raise ScheduleError(f"{self.buffer} is used at places that are read")
            parts = (simplify(at % self.factor, ranges), simplify(at // self.factor, ranges))
            return (*indices[: self.dim], *parts, *indices[self.dim + 1 :])

        new = ir.Buffer.dense(old.name, old.dtype, shape, old.scope)
        body = rewrite.map_buffers(alloc.body, {old.name}, places)
        made = dataclasses.replace(alloc, buffer=new, body=body)
        return rewrite.replace(program, alloc, (made,))
