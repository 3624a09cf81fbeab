"""The number of records that a log's file had at its last checkpoint. In: a way to run statements.
Out: the number, kept in `schema`, or how many records are missing since.

Records only ever get more, but for `prune`, which counts them anew. A server's log has no file of
its own to lose: nothing is kept of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.db import files
from autotune.db.selection import Execute, Row
from autotune.db.wal import LeftBehind

_NEW = "SELECT COUNT(*), MAX(id) FROM records WHERE id > :last"


def keep(execute: Execute) -> None:
    """Add what came since the last time. Only the new records are counted."""
    records, last = _kept(execute)
    new, highest = _one(execute, _NEW, {"last": last})
    if new:
        _write(execute, records + new, highest)


def count_anew(execute: Execute) -> None:
    """Count every record that is there."""
    count, highest = _one(execute, "SELECT COUNT(*), MAX(id) FROM records")
    _write(execute, count, highest or 0)


def settle(execute: Execute, left: LeftBehind) -> str:
    """What `missing` says, once: what is there is counted anew."""
    lost = missing(execute, left, whole=False)
    if lost:
        count_anew(execute)
    return lost


def missing(execute: Execute, left: LeftBehind, *, whole: bool) -> str:
    """What is said of records that were there and are not; empty where none is missing. `left`: by
    a writer killed since. `whole`: count all of them."""
    records, last = _kept(execute)
    highest = _one(execute, "SELECT MAX(id) FROM records")[0] or 0
    if highest < last:
        return (
            f"its last checkpoint had records up to number {last}, now they end at {highest}: "
            "part of the file, or its -wal, is an older copy"
        )
    if highest < left.last:
        return (
            f"{left.last - highest} records of a killed run are missing (up to number "
            f"{left.last}): its -wal was cut or removed"
        )
    if left.cut:
        return (
            f"its -wal was cut, or copied in part: what a run wrote after record {highest} is "
            "missing"
        )
    if whole:
        count = _one(execute, "SELECT COUNT(*) FROM records")[0]
        if count < records:
            return f"{records - count} of the {records} records of its last checkpoint are missing"
    return ""


def _kept(execute: Execute) -> tuple[int, int]:
    rows = list(execute("SELECT records, last FROM schema", {}))
    records, last = rows[0] if rows else (0, 0)
    return files.number(records), files.number(last)


def _write(execute: Execute, records: int, last: int) -> None:
    change = "UPDATE schema SET records = :records, last = :last"
    execute(change, {"records": records, "last": last})


def _one(execute: Execute, statement: str, params: Mapping[str, Any] | None = None) -> Row:
    return next(iter(execute(statement, params or {})))
