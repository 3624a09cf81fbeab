"""A log whose writer was killed, or is watched by others: what was committed is there."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.db import files, guard
from autotune.db.damage import Damage
from autotune.db.opening import open_log
from autotune.db.query import query_file
from autotune.db.store import TuningLog
from autotune.db.wal import LeftBehind
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


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file and the -wal of a killed writer, without its lock."""
    path = tmp_path_factory.mktemp("killed") / "log.db"
    subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False)
    path.with_name("log.db.lock").unlink()
    return path


def _cuts(wal: bytes) -> list[int]:
    """Before every frame, within its header and its page; then beyond the last."""
    step = int.from_bytes(wal[8:12], "big") + 24
    frames = (len(wal.rstrip(bytes(1))) - 32) // step + 2
    return [32 + n * step + at for n in range(frames) for at in (0, 7, 999)]


@pytest.mark.parametrize("read", [TuningLog, query_file])
def test_a_wal_cut_anywhere_keeps_what_is_whole_and_says_what_is_not(
    copied: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, read: Callable[..., Any]
) -> None:
    data, wal = copied.read_bytes(), copied.with_name("log.db-wal").read_bytes()
    seen, silent = set(), set()
    for cut in _cuts(wal):
        path = tmp_path / f"{cut}.db"
        path.write_bytes(data)
        path.with_name(f"{path.name}-wal").write_bytes(wal[:cut])
        caplog.clear()
        if read is TuningLog:
            with TuningLog(path, read_only=True) as log:
                kept = len(log.records(matmul().key, target()))
        else:
            damage = Damage("log")
            kept = len(query_file(path, top=100, damage=damage))
            damage.tell()
        lines = [r.getMessage() for r in caplog.records]
        assert all(f"what a run wrote after record {kept} is missing" in t for t in lines)
        assert len(lines) <= 1
        seen.add(kept)
        if not lines:
            silent.add(kept)
    assert seen == {5, 6, 7, 8}
    assert silent == {8}


def test_a_copy_with_its_lock_says_how_many_are_missing(killed: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    for suffix in ("", ".lock"):
        path.with_name(path.name + suffix).write_bytes(
            killed.with_name(killed.name + suffix).read_bytes()
        )
    with TuningLog(path, read_only=True) as log:
        (note,) = log.damage.take_notes()
    assert "3 records of a killed run are missing (up to number 8)" in note


def test_a_copy_of_a_log_at_work_is_whole(tmp_path: Path) -> None:
    """After every record, whatever the -wal has grown to."""
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    with TuningLog(path) as log:
        for n in range(1, 120):
            log.append([record()])
            time.sleep(2 * guard.LOOKED_S)
            for suffix in ("", "-wal"):
                data = path.with_name(path.name + suffix).read_bytes()
                copy.with_name(copy.name + suffix).write_bytes(data)
            assert not LeftBehind.of(copy).cut, n
    with TuningLog(copy, read_only=True) as log:
        assert len(log.records(matmul().key, target())) == 119


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
