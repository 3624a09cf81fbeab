"""A log whose writer was killed, or is watched by others: what was committed is there."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.db import files
from autotune.db.opening import open_log
from autotune.db.query import query_file
from autotune.db.store import TuningLog
from tests.unit.db.samples import matmul, record, target

_KILLED = """
import os, sys
from autotune.db.store import TuningLog
from tests.unit.db.samples import record
log = TuningLog(sys.argv[1])
for _ in range(5):
    log.append([record()])
log.checkpoint()
for _ in range(3):
    log.append([record()])
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A log whose writer died: five records in the file, three in its -wal."""
    path = tmp_path / "log.db"
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    return path


def test_a_killed_writer_loses_nothing(killed: Path) -> None:
    with TuningLog(killed, read_only=True) as log:
        assert len(log.records(matmul().key, target())) == 8
        assert not log.damage.take_notes()


@pytest.mark.parametrize("left_bytes", [0, 9000])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_cut_wal_is_noticed(killed: Path, left_bytes: int, *, read_only: bool) -> None:
    wal = killed.with_name("log.db-wal")
    if left_bytes:
        wal.write_bytes(wal.read_bytes()[:left_bytes])
    else:
        wal.unlink()
    with TuningLog(killed, read_only=read_only) as log:
        kept = len(log.records(matmul().key, target()))
        assert 5 <= kept < 8
        (note,) = log.damage.take_notes()
        assert f"{8 - kept} records of a killed run are missing" in note
    if not read_only:
        with TuningLog(killed) as log:
            log.append([record()])
        with TuningLog(killed) as log:
            assert not log.damage.take_notes()


def test_an_older_file_with_records_missing_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record(), record(), record()])
    for number, words in ((2, "1 of the 3 records"), (3, "records up to number 3")):
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("DELETE FROM records WHERE id = ?", (number,))
        connection.close()
        with TuningLog(path, read_only=True) as log:
            (note,) = log.damage.take_notes()
        assert words in note


_LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT COUNT(*) FROM records").fetchone()
connection.close()
"""


@pytest.mark.parametrize(
    "look",
    [
        lambda path: open_log(path).close(),
        lambda path: TuningLog(path).close(),
        query_file,
        files.is_text,
        files.check_header,
        files.trouble,
    ],
)
def test_looking_at_the_log_that_is_written_gives_up_no_lock(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    """Another process's reader would take itself for the last one and delete the -wal."""
    path = tmp_path / "log.db"
    with contextlib.closing(TuningLog(path)) as before, TuningLog(path) as log:
        before.records(matmul().key, target())
        log.append([record()])
        look(path)
        subprocess.run([sys.executable, "-c", _LOOK, str(path)], check=True)
        log.append([record()])
    with TuningLog(path, read_only=True) as log:
        assert len(log.records(matmul().key, target())) == 2


def test_a_writer_that_closes_gives_up_no_lock_of_a_reader(tmp_path: Path) -> None:
    """The reader would go on with a -wal that another process had deleted."""
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record()])
    with TuningLog(path) as reader:
        reader.records(matmul().key, target())
        with TuningLog(path) as log:
            log.append([record()])
        subprocess.run([sys.executable, "-c", _LOOK, str(path)], check=True)
        done = subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False)
        assert done.returncode == -signal.SIGKILL
        with TuningLog(path, read_only=True) as log:
            assert len(log.records(matmul().key, target())) == 10
            assert not log.damage.take_notes()
