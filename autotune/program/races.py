"""Finding races while a program is interpreted. In: who reads and writes which element, and when.
Out: a VerifyError where the result depends on which thread comes first.

Between two barriers no thread may read or overwrite what another one wrote, nor write what another
one read; writing the same value again is harmless. Blocks of one launch have no barrier between
them at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from autotune.errors import VerifyError
from autotune.program.ir import BLOCK_KINDS, THREAD_KINDS, WARP

_SEVERAL = -2
"""More than one thread read the element."""


class Grid:
    """Which block and thread run, and how many barriers have been passed so far."""

    def __init__(self) -> None:
        self.blocks = 0
        """Block loops around the place; 0: not on a GPU."""
        self.threads = 0
        self.thread = (0, 0, 0)
        self.block_id = 0
        """Number of the block's run, never used again."""
        self.time = 0
        self.launch = 0
        """Time at which the launch began."""

    @property
    def between_threads(self) -> bool:
        """Whether the place is in a block but outside its thread loops."""
        return self.blocks > 0 and self.threads == 0

    @property
    def agent(self) -> int:
        """The running thread as one number."""
        x, y, z = self.thread
        return (self.block_id << 24) + (z << 20) + (y << 10) + x

    def barrier(self) -> None:
        self.time += 1

    @contextmanager
    def at(self, kind: str, i: int) -> Iterator[None]:
        """Run iteration `i` of a bound loop."""
        if kind in BLOCK_KINDS:
            self.time += 1
            if self.blocks == 0 and i == 0:
                self.launch = self.time
            self.block_id += 1
            self.blocks += 1
            yield
            self.blocks -= 1
            return
        before = self.thread
        if kind == "warp":  # its first thread stands for all
            axis, i = 0, WARP * i
        else:
            axis = THREAD_KINDS.index(kind)
        self.thread = (*before[:axis], i, *before[axis + 1 :])  # type: ignore[assignment]
        self.threads += 1
        yield
        self.threads -= 1
        self.thread = before


class Watch:
    """Who used each element of one buffer last, and when."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._writer = np.full(shape, -1, np.int64)
        self._written = np.full(shape, -1, np.int64)
        self._reader = np.full(shape, -1, np.int64)
        self._read = np.full(shape, -1, np.int64)

    def write(self, grid: Grid, name: str, at: tuple[int, ...], same: bool) -> None:
        """A thread writes the element, `same`: the value that is there."""
        agent = grid.agent
        if not same and self._by_another(self._writer, self._written, grid, at):
            raise VerifyError(f"race: {name}{list(at)} is written by two threads, {_HINT}")
        if not same and self._by_another(self._reader, self._read, grid, at):
            raise VerifyError(f"race: {name}{list(at)} is read and overwritten, {_HINT}")
        self._writer[at], self._written[at] = agent, grid.time

    def read(self, grid: Grid, name: str, at: tuple[int, ...]) -> None:
        """A thread reads the element."""
        agent = grid.agent
        if self._by_another(self._writer, self._written, grid, at):
            raise VerifyError(f"race: {name}{list(at)} is read before its writer is waited for")
        mixed = self._read[at] == grid.time and self._reader[at] not in (-1, agent)
        self._reader[at], self._read[at] = _SEVERAL if mixed else agent, grid.time

    def _by_another(
        self, who: np.ndarray, when: np.ndarray, grid: Grid, at: tuple[int, ...]
    ) -> bool:
        """Whether another thread used the element with no barrier since."""
        other, time = int(who[at]), int(when[at])
        if other in (-1, grid.agent) or time < grid.launch:
            return False
        same_block = other != _SEVERAL and other >> 24 == grid.block_id
        return time == grid.time or not (same_block or other == _SEVERAL)


_HINT = "with no barrier between them"
