"""Finding races while a program is interpreted. In: who reads and writes which element, and when.
Out: a VerifyError where the result depends on which thread comes first.

Between two barriers no thread may read or overwrite what another one wrote, nor write what another
one read; writing the same value again is harmless. Blocks of one launch have no barrier between
them at all.
"""

from __future__ import annotations

from autotune.errors import VerifyError
from autotune.program.ir import BLOCK_KINDS, THREAD_KINDS, WARP

Thread = tuple[int, int, int]
_SEVERAL = -2
"""More than one thread read the element."""


class Grid:
    """Which block and thread run, and how many barriers have been passed so far."""

    def __init__(self) -> None:
        self.blocks = 0
        """Block loops around the place; 0: not on a GPU."""
        self.thread = (0, 0, 0)
        self.block_id = 0
        """Number of the block's run, never used again."""
        self.agent = 0
        """The running thread as one number."""
        self.time = 0
        self.launch = 0
        """Time at which the launch began."""

    def barrier(self) -> None:
        self.time += 1

    def begin(self, kind: str, i: int) -> Thread:
        """Iteration `i` of a bound loop begins. Returns who ran before."""
        before = self.thread
        if kind in BLOCK_KINDS:
            self.time += 1
            if self.blocks == 0 and i == 0:
                self.launch = self.time
            self.block_id += 1
            self.blocks += 1
            self._run(before)
            return before
        if kind == "warp":  # its first thread stands for all
            axis, i = 0, WARP * i
        else:
            axis = THREAD_KINDS.index(kind)
        self._run((*before[:axis], i, *before[axis + 1 :]))  # type: ignore[arg-type]
        return before

    def end(self, kind: str, before: Thread) -> None:
        """The iteration ends; `before` ran before it."""
        if kind in BLOCK_KINDS:
            self.blocks -= 1
        else:
            self._run(before)

    def _run(self, thread: Thread) -> None:
        x, y, z = self.thread = thread
        self.agent = (self.block_id << 24) + (z << 20) + (y << 10) + x


class Watch:
    """Who used each element of one buffer last, and when."""

    def __init__(self) -> None:
        self._written: dict[tuple[int, ...], tuple[int, int]] = {}
        self._read: dict[tuple[int, ...], tuple[int, int]] = {}

    def write(self, grid: Grid, name: str, at: tuple[int, ...], same: bool) -> None:
        """A thread writes the element, `same`: the value that is there."""
        if not same and _by_another(self._written.get(at), grid):
            raise VerifyError(f"race: {name}{list(at)} is written by two threads, {_HINT}")
        if not same and _by_another(self._read.get(at), grid):
            raise VerifyError(f"race: {name}{list(at)} is read and overwritten, {_HINT}")
        self._written[at] = grid.agent, grid.time

    def read(self, grid: Grid, name: str, at: tuple[int, ...]) -> None:
        """A thread reads the element."""
        if _by_another(self._written.get(at), grid):
            raise VerifyError(f"race: {name}{list(at)} is read before its writer is waited for")
        now = grid.agent, grid.time
        before = self._read.get(at, now)
        mixed = before[1] == grid.time and before[0] != grid.agent
        self._read[at] = (_SEVERAL, grid.time) if mixed else now


def _by_another(use: tuple[int, int] | None, grid: Grid) -> bool:
    """Whether another thread used the element with no barrier since."""
    if use is None or use[0] == grid.agent or use[1] < grid.launch:
        return False
    other, time = use
    same_block = other != _SEVERAL and other >> 24 == grid.block_id
    return time == grid.time or not (same_block or other == _SEVERAL)


_HINT = "with no barrier between them"
