"""Load of the cores by others: other processes here, and other guests of the same host.

In: cores. Out: the share of their time since the last look that this process did not have itself.
From the system's counts of its clock ticks; elsewhere than on Linux there is nothing to say.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

COUNTS = Path("/proc/stat")
_IDLE = (3, 4)
"""Columns of a core's counts that nobody used: idle, and waiting for a disk."""
_COUNTED = 8
"""Columns that add up to all of its time; what guests had is in them already."""
GLANCE_S = 0.3
"""Some dozens of clock ticks: enough to tell a busy core from one that is not."""


class Others:
    """Counts from the time that it is made. `own_s`: processor seconds of this process so far."""

    def __init__(
        self,
        cores: Sequence[int],
        counts: Path = COUNTS,
        own_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._cores, self._counts, self._own_s = cores, counts, own_s
        self._before, self._own_before_s = self._ticks(), own_s()

    def share(self) -> float | None:
        """Share of the cores' time since this was made, 0 to 1; None where nothing is counted."""
        now = self._ticks()
        if now is None or self._before is None:
            return None
        used, passed = (a - b for a, b in zip(now, self._before, strict=True))
        own = (self._own_s() - self._own_before_s) * os.sysconf("SC_CLK_TCK")
        return min(1.0, max(0.0, (used - own) / passed)) if passed > 0 else None

    def _ticks(self) -> tuple[int, int] | None:
        """Ticks that somebody used on the cores, and all of them."""
        names = {f"cpu{core}" for core in self._cores}
        try:
            lines = self._counts.read_text(encoding="ascii").splitlines()
            rows = [line.split() for line in lines]
            counted = [[int(n) for n in r[1:][:_COUNTED]] for r in rows if r and r[0] in names]
        except (OSError, ValueError):
            return None
        if not counted or any(len(row) <= max(_IDLE) for row in counted):
            return None
        passed = sum(map(sum, counted))
        return passed - sum(row[i] for row in counted for i in _IDLE), passed


def glance(cores: Sequence[int]) -> float | None:
    """What others have of the cores now; takes GLANCE_S."""
    others = Others(cores)
    time.sleep(GLANCE_S)
    return others.share()
