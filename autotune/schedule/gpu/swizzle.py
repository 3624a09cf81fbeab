"""Step that lays shared memory out without bank conflicts: swizzle."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import Alloc, Program, walk
from autotune.program.rewrite import replace
from autotune.schedule.base import register
from autotune.types import ITEM_BYTES

CHUNK_BYTES = 16
"""What one thread reads or writes at most, and one row of `ldmatrix`."""
_LINE = 8
"""Chunks in which every bank of the memory is once."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Swizzle:
    """Exchange chunks of 16 bytes within the rows of a shared buffer, differently in each of eight
    rows, so that the same columns of neighbouring rows lie in different banks.

    alloc s: bfloat16[64, 32] shared   ->   alloc s: bfloat16[64, 32] shared swizzle [2, 3, 3]

    Rows are dense, a power of two of chunks long, and begin at multiples of their length. Elements
    of a chunk stay side by side.
    """

    step: ClassVar[str] = "swizzle"
    buffer: str

    def apply(self, program: Program) -> Program:
        for stmt in walk(program.body):
            if isinstance(stmt, Alloc) and stmt.buffer.name == self.buffer:
                local = dataclasses.replace(stmt.buffer, swizzle=self._bits(stmt))
                return replace(program, stmt, (Alloc(local, stmt.body),))
        raise ScheduleError(f"no local buffer {self.buffer}")

    def _bits(self, alloc: Alloc) -> tuple[int, int, int]:
        buffer = alloc.buffer
        if buffer.scope != "shared" or buffer.swizzle:
            raise ScheduleError(f"{self.buffer} is not in shared memory, or swizzled already")
        chunk = CHUNK_BYTES // ITEM_BYTES[buffer.dtype]
        if len(buffer.shape) < 2 or buffer.strides[-1] != 1:
            raise ScheduleError(f"{self.buffer} has no rows of elements side by side")
        pitch = buffer.strides[-2]
        chunks = pitch // chunk
        if (
            pitch % chunk
            or chunks & (chunks - 1)
            or chunks < 2
            or any(stride % pitch for stride in buffer.strides[:-1])
        ):
            raise ScheduleError(
                f"rows of {self.buffer} are {pitch} elements apart, not 2, 4, 8, .. times {chunk}"
            )
        own = chunks.bit_length() - 1
        return min(own, _LINE.bit_length() - 1), chunk.bit_length() - 1, max(own, 3)
