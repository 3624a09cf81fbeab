"""Clocks, heat and throttling as the system reports them, where it reports any.

In: the cores that a kernel runs on. Out: a count that grows while they are throttled, and one line
for a record. Without the kernel's files (virtual machines, most of all) the count stays 0 and the
line empty: then only the calibration kernel tells.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

SYSTEM = Path("/sys")
_RASPBERRY = "devices/platform/soc/soc:firmware/get_throttled"
_SLOWED_NOW = 0b1110
"""Bits of the Raspberry Pi's word: frequency capped, throttled, at the soft temperature limit,
now."""


class Throttling:
    """Reads the files below `root` that exist when it is made."""

    def __init__(self, cores: Sequence[int], root: Path = SYSTEM) -> None:
        folders = [root / "devices/system/cpu" / f"cpu{n}" for n in cores]
        self._counts = [
            path
            for folder in folders
            for name in ("core_throttle_count", "package_throttle_count")
            if _number(path := folder / "thermal_throttle" / name) is not None
        ]
        clocks = [folder / "cpufreq/scaling_cur_freq" for folder in folders]
        self._clocks = [path for path in clocks if _number(path) is not None]
        zones = sorted((root / "class/thermal").glob("thermal_zone*/temp"))
        self._heat = [path for path in zones if _number(path) is not None]
        self._word = root / _RASPBERRY
        self._slowed = 0

    def count(self) -> int:
        """Events so far; more than the last time: the cores were throttled in between."""
        word = _number(self._word, 16)
        self._slowed += bool(word and word & _SLOWED_NOW)
        return self._slowed + sum(_number(path) or 0 for path in self._counts)

    def conditions(self) -> str:
        """The slowest clock and the highest temperature now."""
        clocks = [n for path in self._clocks if (n := _number(path))]
        heat = [n for path in self._heat if (n := _number(path))]
        parts = [f"{min(clocks) / 1e3:.0f} MHz"] if clocks else []
        return ", ".join(parts + ([f"{max(heat) / 1e3:.0f} C"] if heat else []))


def available_cores() -> tuple[int, ...]:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _number(path: Path, base: int = 10) -> int | None:
    try:
        return int(path.read_text(encoding="ascii").strip(), base)
    except (OSError, ValueError):
        return None
