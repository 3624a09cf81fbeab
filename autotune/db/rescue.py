"""Records that their log cannot keep. In: records, and the connection to a log whose file is gone.
Out: a fresh log beside it that has them, and a sentence that says where.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.db.fresh import make_log
from autotune.db.types import Record
from autotune.errors import LogError

Written = tuple[int, int]
"""The number and the seal of the last record that was written."""


def save_records(log: Path | None, records: Sequence[Record]) -> str:
    """Keep records that could not be written to a file, or to a server (None)."""
    reason = "no folder can be written"
    for path in _fresh(log):
        try:
            make_log(path, records)
        except LogError as error:
            remove(path)
            reason = str(error)
            continue
        count = f"{len(records)} record{'s' * (len(records) != 1)}"
        return f"{count} that it did not take: saved in {path} (`autotune log merge` adds them)"
    return f"what it did not take could not be saved elsewhere either: {reason}"


def save_log(
    log: Path, source: sqlite3.Connection | None, records: Sequence[Record], written: Written
) -> str:
    """Keep a log whose file is gone: all of it as its connection still reads it, or else the
    latest records of the run."""
    for path in _fresh(log):
        if source is not None and _copied(source, path, written):
            return f"what was measured is saved in {path}"
        remove(path)
    if not records:
        return "nothing of it could be saved"
    return save_records(log, records)


def _copied(source: sqlite3.Connection, path: Path, written: Written) -> bool:
    """Whether the log was copied whole: with the last record that was written, unharmed."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as fresh:
            source.backup(fresh)
            if fresh.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                return False
            number, seal = written
            found = fresh.execute("SELECT seal FROM records WHERE id = ?", (number,)).fetchone()
            return not number or found == (seal,)
    except (sqlite3.Error, OSError):
        return False


def _fresh(log: Path | None) -> Iterator[Path]:
    """Names of files that are not there: in the log's folder, here, where temporary files go."""
    stem = "autotune" if log is None else log.stem
    folders = [Path.cwd(), Path(tempfile.gettempdir())]
    for folder in ([] if log is None else [log.absolute().parent]) + folders:
        if not folder.is_dir() or not os.access(folder, os.W_OK, effective_ids=True):
            continue
        name, number = f"{stem}.rescued.db", 1
        while os.path.lexists(folder / name):
            number += 1
            name = f"{stem}.rescued-{number}.db"
        yield folder / name


def remove(path: Path) -> None:
    """A file that came to nothing, with what SQLite and the lock made beside it."""
    for suffix in ("", "-wal", "-shm", "-journal", ".lock"):
        with contextlib.suppress(OSError):
            path.with_name(path.name + suffix).unlink()
