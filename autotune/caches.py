"""Caches as Linux tells of them. In: a sysfs `cache` directory. Out: sizes, and other figures."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def sizes(root: Path) -> dict[int, int]:
    """Cache level -> bytes (data and unified caches of a core) from a sysfs `cache` directory."""
    found: dict[int, int] = {}
    for entry in sorted(root.glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            size = (entry / "size").read_text().strip()
            number = int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1)
        except (OSError, ValueError):
            continue
        if kind != "Instruction":
            found[level] = number
    return found


def inner(root: Path, name: str, default: int) -> int:
    """A figure of the first-level data cache from a sysfs `cache` directory."""
    for entry in sorted(root.glob("index*")):
        try:
            level, kind = ((entry / part).read_text().strip() for part in ("level", "type"))
            if level == "1" and kind != "Instruction":
                return int((entry / name).read_text()) or default
        except (OSError, ValueError):
            continue
    return default
