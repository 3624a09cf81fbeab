"""Checkpoints of a log that a full disk does not take: what is said, and that it is true."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from autotune.db import files
from autotune.db.guard import Guard
from autotune.db.lock import acknowledged
from autotune.db.store import TuningLog
from autotune.errors import LogError
from tests.unit.db.samples import matmul, record, target


class FullDisk:
    """A connection whose checkpoints end in an error when they have copied something."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, *given: object) -> sqlite3.Cursor:
        done = self._connection.execute(statement, *given)
        if "wal_checkpoint" in statement:
            raise sqlite3.OperationalError("database or disk is full")
        return done


def test_what_a_full_disk_took_of_a_checkpoint_is_nobody_else_s_change(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = TuningLog(path)
    log.append([record(), record()])
    assert log._guard is not None
    log._guard._connection = FullDisk(log._guard._connection)  # type: ignore[assignment]
    for work in (log.checkpoint, log.checkpoint, log.close):
        with pytest.raises(LogError, match="disk is full; free some disk space"):
            work()
    with TuningLog(path, read_only=True) as again:
        assert len(again.records(matmul().key, target())) == 2


def test_a_log_whose_last_checkpoint_failed_says_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, a -wal that a full disk cut looks like one that lost records."""
    path = tmp_path / "log.db"
    log = TuningLog(path)
    log.append([record(), record()])

    def full(*_: object) -> None:
        raise files.explain(sqlite3.OperationalError("database or disk is full"), log.name)

    with monkeypatch.context() as patched:
        patched.setattr(Guard, "_bring_in", full)
        with pytest.raises(LogError, match="everything committed before is safe"):
            log.close()
    assert acknowledged(path) == 2
    with TuningLog(path) as again:
        again.append([record()])
    assert acknowledged(path) == 0
