"""Speeds of cores together: memory for all of them, lines from one to another, parallel regions.

In: a target, and the cores that this process may use. Out: rows of MachineFacts; none where there
is one core. Threads are pinned, one a core, and meet by a number in a line that each waits for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Sequence

from autotune.codegen.loader import load
from autotune.machine.curves import Curve, falling
from autotune.machine.facts import Pairs
from autotune.measure.facts import texts
from autotune.measure.facts.memory import PIECE_BYTES, sizes
from autotune.measure.facts.timing import Clock, Loops, low, overhead_s, rounded
from autotune.measure.storage import aligned_bytes
from autotune.measure.team import Team, team_code
from autotune.target import Target
from autotune.types import Array

PINGS = 64
"""Turns of a sample."""
SAMPLES = 300
"""Turns of the number between two cores that are timed; the shortest ones count."""
BLOCK_BYTES = 256 << 10
"""Handed from one core to another: it fits a core's own caches."""
HANDED = 32
"""Times that it is."""
LOW = 0.05
"""Several cores are undisturbed at a time more rarely than one is."""
PIECES = 48
"""Timed of a footprint, at least."""
_APART_BYTES = 256
"""Between lines that are fetched apart."""


class Together:
    """Two threads and a team of them, on cores of their own."""

    def __init__(self, target: Target, clock: Clock, cores: Sequence[int]) -> None:
        self._clock, self._cores = clock, tuple(cores)
        self._wide = target.with_threads(len(self._cores))
        moves = [texts.passes_text(m, target.vector_bytes, m) for m in ("load", "store")]
        self._loops = Loops([*moves, texts.meeting_text()], target)
        self._piece = texts.BLOCK_VECTORS * target.vector_bytes
        self._over_s = overhead_s(clock)

    # -------------------------------------------------------------------------------- transfers

    def transfer_s(self) -> float | None:
        """Half of the time in which a number goes to another core and comes back."""
        if len(self._cores) < 2:
            return None
        line = aligned_bytes(_APART_BYTES, 0)
        address = line.ctypes.data
        ping, pong = self._loops.call("ping"), self._loops.call("pong")
        times: list[float] = []

        def here() -> None:
            for _ in range(SAMPLES):
                begin = self._clock()
                ping(address, PINGS)
                times.append(self._clock() - begin)

        # The other core is never between two calls: a sample that it disturbs is a long one.
        self._both(here, lambda: pong(address, SAMPLES * PINGS))
        return rounded(max(low(times, LOW) - self._over_s, 1e-9) / (2 * PINGS))

    def handed_bytes_per_s(self, *, dirty: bool) -> float | None:
        """Bytes a second of a block that another core has just written, or read."""
        if len(self._cores) < 2:
            return None
        state, block = aligned_bytes(_APART_BYTES, 0), aligned_bytes(BLOCK_BYTES, 1)
        two = ctypes.c_int64, ctypes.c_int64
        load, store = (self._loops.call(m, *two) for m in ("load", "store"))
        wait, tell = self._loops.call("wait"), self._loops.call("tell")
        line, data, blocks = state.ctypes.data, block.ctypes.data, BLOCK_BYTES // self._piece
        away = aligned_bytes(0 if dirty else 4 * self._wide.l2_bytes, 1)
        times: list[float] = []

        def here() -> None:
            for turn in range(HANDED):
                if not dirty:  # what is unchanged could still be in this core's own caches
                    load(away.ctypes.data, away.nbytes // self._piece, 1)
                tell(line, 2 * turn + 1)
                wait(line, 2 * turn + 2)
                begin = self._clock()
                load(data, blocks, 1)
                times.append(self._clock() - begin)

        def there() -> None:
            for turn in range(HANDED):
                wait(line, 2 * turn + 1)
                (store if dirty else load)(data, blocks, 2)
                tell(line, 2 * turn + 2)

        self._both(here, there)
        return rounded(BLOCK_BYTES / max(low(times, LOW) - self._over_s, 1e-9))

    def _both(self, here: Callable[[], None], there: Callable[[], None]) -> None:
        """Two functions at a time, on the first core and the second."""
        threads = [
            threading.Thread(target=_pinned, args=(core, work))
            for core, work in zip(self._cores, (here, there), strict=False)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # -------------------------------------------------------------------------------- all of them

    def load_curve(self, data: Array) -> Curve:
        """Bytes a second of all cores together, by footprint of them all: from where their own
        caches are full."""
        if len(self._cores) < 2:
            return ()
        team = Team(load([team_code(self._wide)], self._wide), self._wide, self._clock)
        over_s = low([team.empty_call_s() for _ in range(200)], LOW)
        least = 2 * len(self._cores) * self._wide.l2_bytes
        found = [(n, self._all_bytes_per_s(team, data[:n], over_s))
                 for n in sizes(data.nbytes)[::2] if n >= least]  # fmt: skip
        return tuple((n, rounded(value)) for n, value in falling(tuple(found)))

    def _all_bytes_per_s(self, team: Team, data: Array, over_s: float) -> float:
        step = min(len(self._cores) * PIECE_BYTES, data.nbytes)
        count = data.nbytes // step
        times = []
        for number in range(count + max(PIECES, count)):
            part = data[(number % count) * step :][:step]
            begin = self._clock()
            team.through(part)
            times.append(self._clock() - begin)
        return step / max(low(times[count:], LOW) - over_s, 1e-9)


def _pinned(core: int, work: Callable[[], None]) -> None:
    """Run the work with the calling thread on one core; where it cannot be kept there, figures are
    less exact."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})
    work()


def regions(region_s: Callable[[int], float], cores: int) -> Pairs:
    """(threads, seconds) of parallel regions on two cores and on all."""
    return tuple((n, rounded(region_s(n))) for n in sorted({2, cores}) if 1 < n <= cores)
