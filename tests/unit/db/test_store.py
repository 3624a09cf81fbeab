"""How a log behaves when it cannot be used: one clear line each, and nothing is lost."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.db import files, query
from autotune.db.store import TuningLog
from autotune.errors import LogError, TargetError
from autotune.target import load_target
from tests.unit.db.samples import matmul, record, target

NOBODY = 65534


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with TuningLog(path) as log:
        log.append([record()])
    return path


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[Path]:
    """The test's directory, with permissions that count even where tests run as root."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
        yield tmp_path
        os.seteuid(0)
    else:
        tmp_path.chmod(0o555)
        yield tmp_path
        tmp_path.chmod(0o755)


def one_line(error: pytest.ExceptionInfo[LogError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("this is prose, not a database\n" * 99)
    with pytest.raises(LogError, match="not a database") as error:
        TuningLog(path)
    assert str(path) in one_line(error)
    with pytest.raises(LogError, match="not a database"):
        query.query_file(path)


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LogError, match="not a tuning log"), TuningLog(path) as log:
        log.append([record()])
    assert path.read_bytes() == before


@pytest.mark.parametrize("change", ["PRAGMA user_version = 99", "UPDATE schema SET version = 99"])
def test_a_newer_log_is_refused_by_every_way_in(log_path: Path, change: str) -> None:
    with sqlite3.connect(log_path) as connection:
        connection.execute(change)
    connection.close()
    for read_only in (False, True):
        with pytest.raises(LogError, match="newer release") as error:
            TuningLog(log_path, read_only=read_only)
        one_line(error)
    with pytest.raises(LogError, match="newer release"):
        query.query_file(log_path)


def test_a_damaged_log_is_one_line(log_path: Path) -> None:
    data = log_path.read_bytes()
    log_path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    with pytest.raises(LogError) as error, TuningLog(log_path) as log:
        log.records(matmul().key, target())
    assert str(log_path) in one_line(error)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="nowhere does not exist"):
        TuningLog(tmp_path / "nowhere" / "log.db")


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="directory"):
        TuningLog(tmp_path)


def test_a_missing_file_is_an_error_or_empty_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(LogError, match="does not exist"):
        TuningLog(path, read_only=True)
    with TuningLog(path, read_only=True, missing_ok=True) as log:
        assert log.best(matmul().key, target()) is None
        assert log.query() == query.query_file(path) == []
    assert not path.exists()


def test_looking_things_up_makes_no_file(tmp_path: Path) -> None:
    with TuningLog(tmp_path / "typo.db") as log:
        assert log.query() == []
    assert list(tmp_path.iterdir()) == []


def test_nothing_but_log_and_lock_is_left_behind(log_path: Path) -> None:
    query.query_file(log_path)
    with TuningLog(log_path, read_only=True) as log:
        log.query()
    assert {p.name for p in log_path.parent.iterdir()} == {"log.db", "log.db.lock"}


def test_a_log_made_by_another_process_later_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with TuningLog(path) as reader:
        assert reader.query() == []
        with TuningLog(path) as writer:
            writer.append([record()])
            assert len(reader.query()) == 1


def test_a_reader_cannot_write(log_path: Path) -> None:
    with TuningLog(log_path, read_only=True) as log, pytest.raises(LogError, match="reading only"):
        log.append([record()])


def test_a_read_only_directory_can_be_read_but_not_written(
    log_path: Path, unprivileged: Path
) -> None:
    assert log_path.parent == unprivileged
    with TuningLog(log_path, read_only=True) as log:
        assert len(log.query()) == 1
    assert len(query.query_file(log_path)) == 1
    with TuningLog(log_path) as log, pytest.raises(LogError, match="read-only"):
        log.append([record()])
    with pytest.raises(LogError, match="read-only"):
        TuningLog(unprivileged / "new.db")


def test_two_writers_of_one_process_are_refused_too(log_path: Path) -> None:
    with TuningLog(log_path) as first, TuningLog(log_path) as second:
        first.claim()
        with pytest.raises(LogError, match=f"pid {os.getpid()}"):
            second.claim()
        first.close()
        second.append([record()])
        assert len(second.records(matmul().key, target())) == 2


def test_a_disk_too_full_to_say_who_writes_is_locked_all_the_same(
    log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with TuningLog(log_path) as first, TuningLog(log_path) as second:
        first.claim()
        with pytest.raises(LogError, match="another process is writing to it"):
            second.claim()


def test_a_stale_lock_file_does_not_keep_a_writer_out(log_path: Path) -> None:
    lock = log_path.with_name("log.db.lock")
    lock.write_text('{"pid": 1, "host": "elsewhere", "since": "2020-01-01T00:00:00+00:00"}')
    with TuningLog(log_path) as log:
        log.append([record()])
        assert f'"pid": {os.getpid()}' in lock.read_text()


_FULL = """
import resource, signal, sys
from autotune.db.store import TuningLog
from autotune.errors import LogError, TargetError
from autotune.target import load_target
from tests.unit.db.samples import record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
log = TuningLog(sys.argv[1])
try:
    while True:
        log.append([record() for _ in range(20)])
except LogError as error:
    print(error)
"""


def test_a_full_disk_is_one_line_and_loses_nothing_committed(log_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(log_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == 1
    assert "everything committed before is safe" in done.stdout
    with TuningLog(log_path) as log:
        assert len(log.records(matmul().key, target())) % 20 == 1
        log.append([record()])


def test_a_url_without_its_driver_says_what_to_install() -> None:
    with pytest.raises(LogError, match="driver is missing") as error:
        TuningLog("postgresql+pg8000://nobody@127.0.0.1:1/log")
    assert "pip install" in one_line(error)


@pytest.mark.parametrize("url", ["cloud://somewhere/log", "mysql://me@somewhere/log", "://"])
def test_a_url_of_an_unknown_kind_is_refused(url: str) -> None:
    with pytest.raises(LogError, match="expected the path of a file, or postgresql://"):
        TuningLog(url)


def test_a_step_of_another_release_is_named(log_path: Path) -> None:
    with sqlite3.connect(log_path) as connection:
        connection.execute(
            """UPDATE records SET seal = NULL, schedule = '[{"step":"levitate"}]'"""
        )
    connection.close()
    with (
        TuningLog(log_path) as log,
        pytest.raises(LogError, match="record 1: unknown step 'levitate'"),
    ):
        log.best(matmul().key, target())


def test_the_file_is_in_wal_mode_with_its_version(log_path: Path) -> None:
    connection = sqlite3.connect(log_path)
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert connection.execute("PRAGMA user_version").fetchone()[0] == files.SCHEMA_VERSION
    connection.close()


def test_best_is_answered_by_the_covering_index(log_path: Path) -> None:
    connection = sqlite3.connect(log_path)
    plan = connection.execute(
        "EXPLAIN QUERY PLAN SELECT id FROM records WHERE task_key = 'a' AND target_key = 'b' "
        "AND status = 'OK' AND mark = 0 ORDER BY median_s, id LIMIT 1"
    ).fetchall()
    connection.close()
    assert len(plan) == 1, plan
    assert "USING COVERING INDEX records_best" in plan[0][3]


def test_a_target_may_be_named(tmp_path: Path) -> None:
    made = record(on=load_target("x86-64-v3"))
    with TuningLog(tmp_path / "log.db") as log:
        log.append([made])
        found = log.best(made.task.key, "x86-64-v3")
        assert found is not None
        assert found.result == made.result
        assert log.best(made.task.key, "x86-64-v4") is None
        with pytest.raises(TargetError, match="unknown target 'toaster'"):
            log.best(made.task.key, "toaster")
