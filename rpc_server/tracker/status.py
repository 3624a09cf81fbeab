"""The status of a farm as text. In: the tracker's answer to `status`. Out: text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.printable import printable

HEADINGS = ("BOARD", "KEY", "STATE", "CLIENT", "TRIALS", "FAILED", "PER S", "TEMP", "FAULTS",
            "SEEN", "LAST ERROR")  # fmt: skip
MAX_ERROR = 60
"""Characters of an error in the table."""


def farm_text(farm: Mapping[str, Any]) -> str:
    """A line per board, the queue by key, and what is not as it should be."""
    boards, queue = farm["boards"], farm["queue"]
    lines = _table([HEADINGS, *(_row(b) for b in boards)]) if boards else ["no boards"]
    for key in sorted({r["key"] for r in queue}):
        waiting = [r for r in queue if r["key"] == key]
        longest = max(r["waited_s"] for r in waiting)
        who = ", ".join(sorted({r["client"] for r in waiting}))
        lines.append(f"queue {key}: {len(waiting)} waiting, {longest:g} s the longest ({who})")
    if farm["storage_error"]:
        lines.append(f"warning: {farm['storage_error']}; what changes is kept in memory only")
    lines += [_difference(b, farm["version"]) for b in boards if _differs(b, farm["version"])]
    for board in boards:
        for bound, why in sorted(board["info"].get("sandbox", {}).items()):
            if why:
                lines.append(f"{board['name']} runs without {bound}: {why}")
    return "\n".join(map(printable, lines))


def _row(board: Mapping[str, Any]) -> tuple[str, ...]:
    stats = board["stats"]
    temperature = stats.get("temperature_c")
    state = board["state"] + (" (recalled)" if board["recalled"] else "")
    if board["quarantine_left_s"] is not None:
        state += f" {board['quarantine_left_s']:.0f} s"
    client = board["client"]
    return (
        board["name"],
        board["key"],
        state,
        f"{client} {board['leased_s']:.0f} s" if client else "-",
        str(stats.get("trials", 0)),
        str(stats.get("failed", 0)),
        f"{board['trials_per_s']:.1f}",
        "-" if temperature is None else f"{temperature:.0f} C",
        str(board["faults"]),
        f"{board['seen_s']:.0f} s",
        str(board["last_error"] or "-")[:MAX_ERROR],
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEADINGS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _differs(board: Mapping[str, Any], version: str) -> bool:
    return bool(board["info"].get("version", version) != version)


def _difference(board: Mapping[str, Any], version: str) -> str:
    return f"{board['name']} is of version {board['info']['version']}, the tracker of {version}"
