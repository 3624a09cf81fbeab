"""Storage of buffers while a program is interpreted. In: buffers. Out: arrays with their halo.

What a program must not rely on (new buffers, the output) starts as nan or an odd integer.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.errors import VerifyError
from autotune.program.functions import combine
from autotune.program.ir import Buffer
from autotune.program.launch import storage_size
from autotune.types import Array
from tests.interpreter.races import Watch

GARBAGE = 85


@dataclass(frozen=True, slots=True)
class Memory:
    """Storage of a buffer with its halo; index 0 of dimension d is at before[d]."""

    name: str
    data: Array
    before: tuple[int, ...]
    interior: tuple[int, ...]
    halo_writable: bool
    watch: Watch | None = None
    """What is shared between threads notes who uses it."""
    swizzled: Buffer | None = None
    """Of this buffer `data` has one dimension, in which elements lie where its swizzle says."""

    def locate(self, point: tuple[int, ...]) -> tuple[int, ...]:
        """Position in `data`. VerifyError outside it."""
        if self.swizzled is not None:
            return self._moved(point, self.swizzled)
        at = tuple(map(operator.add, point, self.before)) if any(self.before) else point
        for i, e in zip(at, self.data.shape, strict=True):
            if not 0 <= i < e:
                raise VerifyError(f"{self.name}{list(point)} is outside {self._limits()}")
        return at

    def contains(self, point: tuple[int, ...]) -> bool:
        """Whether the element is none of the halo."""
        return all(0 <= i < e for i, e in zip(point, self.interior, strict=True))

    def _limits(self) -> str:
        ends = zip(self.before, self.data.shape, strict=True)
        return ", ".join(f"{-b}..{e - b - 1}" for b, e in ends)

    def _moved(self, point: tuple[int, ...], buffer: Buffer) -> tuple[int, ...]:
        if not self.contains(point):
            raise VerifyError(f"{self.name}{list(point)} is outside of {list(self.interior)}")
        offset = sum(i * s for i, s in zip(point, buffer.strides, strict=True))
        return (buffer.place(offset),)


def given(name: str, array: Array, halo: tuple[tuple[int, int], ...]) -> Memory:
    before = tuple(b for b, _ in halo)
    return Memory(name, np.pad(array, halo) if halo else array, before, array.shape, False)


def new_memory(buffer: Buffer, zero_halo: bool) -> Memory:
    padded = tuple(e + b + a for e, (b, a) in zip(buffer.shape, buffer.halo, strict=True))
    # bfloat16 values are kept as the float32 values they are.
    dtype = "float32" if buffer.dtype == "bfloat16" else buffer.dtype
    garbage = np.nan if dtype.startswith("float") else GARBAGE
    if buffer.swizzle:
        data = np.full(storage_size(buffer), garbage, dtype)
        return Memory(buffer.name, data, (), buffer.shape, True, Watch(), buffer)
    memory = Memory(
        buffer.name,
        np.full(padded, 0 if zero_halo else garbage, dtype),
        tuple(b for b, _ in buffer.halo),
        buffer.shape,
        not zero_halo,
        None if buffer.scope in ("register", "fragment") else Watch(),
    )
    interior_of(memory)[...] = garbage
    return memory


def interior_of(memory: Memory) -> Array:
    parts = zip(memory.before, memory.interior, strict=True)
    # The ellipsis makes it a view even where there are no dimensions.
    inside: Any = (*(slice(b, b + e) for b, e in parts), ...)
    return np.asarray(memory.data[inside])


@dataclass(frozen=True, slots=True)
class Private:
    """A register buffer that every thread of a block has a copy of."""

    buffer: Buffer
    copies: dict[tuple[int, int, int], Memory]

    def shuffle(self, name: str, width: int, at: tuple[int, ...]) -> None:
        """Every `width` threads along x combine an element, see `Shuffle`."""
        for x, y, z in {(x // width * width, y, z) for x, y, z in self.copies}:
            mine = [self.of((x + i, y, z)) for i in range(width)]
            values = [memory.data[memory.locate(at)] for memory in mine]
            while len(values) > 1:
                half = len(values) // 2
                pairs = zip(values[:half], values[half:], strict=True)
                values = [combine(name, a, b)[()] for a, b in pairs]
            for memory in mine:
                memory.data[memory.locate(at)] = values[0]

    def of(self, thread: tuple[int, int, int]) -> Memory:
        """A thread's copy."""
        if thread not in self.copies:
            self.copies[thread] = new_memory(self.buffer, zero_halo=False)
        return self.copies[thread]
