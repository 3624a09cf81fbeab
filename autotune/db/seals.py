"""Checksums of rows. In: a table's name and a row's values. Out: its seal, a CRC-32 of them all.

A row whose seal does not fit is damaged: a flipped digit of a time or of a schedule is as wrong as
text that is no JSON. Standard library only: `autotune query` checks what it shows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "tasks": ("key", "op", "flops", "description", "json"),
    "targets": ("digest", "key", "family", "name", "json"),
    "records": (
        "task_key", "target_key", "target", "device", "rule", "config", "schedule", "status",
        "times", "median_s", "calibration_s", "build_s", "run_s", "max_error", "error", "seed",
        "model", "versions", "created", "origin", "conditions",
    ),
    "rankings": (
        "task_key", "target_key", "model", "round", "samples", "rank_correlation", "top_recall",
        "regret", "created",
    ),
    "profiles": ("device", "target_key", "json", "created"),
    "latencies": (
        "model_key", "model", "target_key", "device", "before", "after", "kernels_before_s",
        "kernels_after_s", "created", "origin",
    ),
}  # fmt: skip
"""What a seal is of. A number that the database gives (`id`) is not in it."""
FLOATS: Mapping[str, tuple[str, ...]] = {
    "records": ("median_s", "calibration_s", "build_s", "run_s", "max_error"),
    "rankings": ("rank_correlation", "top_recall", "regret"),
    "latencies": ("kernels_before_s", "kernels_after_s"),
}
KEYS = {"tasks": "key", "targets": "digest"}
"""The primary key's column; of the others it is `id`."""
MARK_SHIFT = 32
"""The bits above a record's CRC are its mark, which changes: adding to the seal changes it too."""

_SEPARATOR = "\x1f"
_STARTS = {table: zlib.crc32(table.encode()) for table in COLUMNS}
_VALUES = {table: itemgetter(*columns) for table, columns in COLUMNS.items()}
_NUMBERS = frozenset((int, float, type(None)))
"""What is sealed as its `repr`."""


def seal(table: str, values: Sequence[Any], mark: int = 0) -> int:
    """The seal of a row's values, in the order of `COLUMNS`. Numbers must be of the type that the
    database gives back: 1.0 and 1 differ. Raises TypeError for a value that no column holds."""
    texts = [  # at every record: no calls
        v if v.__class__ is str else repr(v) if v.__class__ in _NUMBERS else _refused(v)
        for v in values
    ]
    data = _SEPARATOR.join(texts)
    own = data.encode() if data.isascii() else data.encode("utf-8", "surrogateescape")
    return zlib.crc32(own, _STARTS[table]) + (mark << MARK_SHIFT)


def seal_of(table: str, row: Any) -> int:
    """The seal of a row by names, a record's with its mark."""
    return seal(table, _VALUES[table](row), row.get("mark", 0))


def is_whole(table: str, row: Any) -> bool:
    """Whether the row is as it was written, as far as its seal tells; one without a seal is."""
    if row["seal"] is None:
        return True
    try:
        return bool(seal_of(table, row) == row["seal"])
    except (TypeError, ValueError, OverflowError):
        return False


def remarked(before: int, after: int) -> int:
    """What the seal of a record grows by as its mark changes."""
    return (after - before) << MARK_SHIFT


def _refused(value: Any) -> str:
    raise TypeError(f"a {type(value).__name__} in a sealed row")
