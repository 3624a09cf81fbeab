"""A simulated board's memory. In: what the code is given. Out: addresses, and all bytes of it,
which come back as the code left them.

From the beginning on: four words that say where stack and arguments are and how much is used; then
every block, on pages of its own with one between two that is not there; the arguments, which are
addresses; the stack.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from autotune.errors import BuildError
from autotune.measure.simulator.cores import Core
from autotune.types import Array

PAGE = 4096
SCRATCH_OFFSET = 1024
"""Where the variables of the C library's one thread lie (errno), from the beginning on."""
_STACK_FILL = 0x5C
"""What is in a stack that nobody used."""


class CoreMemory:
    """`blocks`: what the code is given, by address, in order, each with the place of its first
    element; the code finds these in an array that its first argument points to. `results`: numbers
    of those that are asked for afterwards."""

    def __init__(
        self, core: Core, blocks: Sequence[tuple[Array, int]], results: Collection[int]
    ) -> None:
        """Raises BuildError where they are more than the board has."""
        self._blocks, self._results = tuple(blocks), frozenset(results)
        self.base = at = core.memory
        self.scratch = at + SCRATCH_OFFSET
        at += core.apart
        self._places: list[int] = []
        addresses = []
        for block, offset in self._blocks:
            self._places.append(at)
            addresses.append(at + offset)
            at += pages(block.nbytes, core.apart) + core.apart
        self.arguments = at
        self._words = b"".join(a.to_bytes(4, "little") for a in addresses)
        self._stack = at + pages(len(self._words), core.apart) + core.apart
        self._stack_bytes = core.stack_bytes
        self.stack_top = self._stack + core.stack_bytes
        self.nbytes = self.stack_top - self.base
        if self.nbytes > core.memory_bytes:
            raise BuildError(
                f"the code's data take {self.nbytes / 2**20:.1f} MiB, the memory of a "
                f"{core.name} is {core.memory_bytes / 2**20:.1f}"
            )

    def parts(self) -> list[tuple[int, bytes]]:
        """Everything, by address; nothing lies between."""
        head = (self.stack_top, self.arguments, self.base, self.nbytes)
        return [
            (self.base, b"".join(word.to_bytes(4, "little") for word in head)),
            *((at, b.tobytes()) for at, (b, _) in zip(self._places, self._blocks, strict=True)),
            (self.arguments, self._words),
            (self._stack, bytes([_STACK_FILL]) * self._stack_bytes),
        ]

    def whole(self) -> bytes:
        """All of it in one piece."""
        out = bytearray(self.nbytes)
        for at, data in self.parts():
            out[at - self.base : at - self.base + len(data)] = data
        return bytes(out)

    def asked_for(self) -> list[tuple[int, int]]:
        """Addresses and bytes of what `take` reads."""
        return [(self._places[n], self._blocks[n][0].nbytes) for n in sorted(self._results)]

    def take(self, data: bytes) -> None:
        """The results as the code left them, into the arrays that they came from; `data`: all of
        the memory."""
        for number in self._results:
            block, at = self._blocks[number][0], self._places[number] - self.base
            block.reshape(-1).view("uint8")[:] = np.frombuffer(data, np.uint8, block.nbytes, at)

    def stack_used(self, data: bytes) -> int:
        """Bytes of the stack that the code wrote to."""
        stack = np.frombuffer(data, np.uint8, self._stack_bytes, self._stack - self.base)
        touched = np.flatnonzero(stack != _STACK_FILL)
        return self._stack_bytes - int(touched[0]) if len(touched) else 0


def pages(count: int, page: int = PAGE) -> int:
    """Bytes of so many whole pages that they hold `count`."""
    return -(-max(count, 1) // page) * page
