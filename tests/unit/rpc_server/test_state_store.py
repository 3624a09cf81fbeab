"""The tracker's file: whose it is, who has it, and when what is written is on the disk."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.errors import ConfigError
from rpc_server.tracker.state import FarmState
from rpc_server.tracker.store import StateStore
from rpc_server.tracker.types import FarmRules, Registered

HOLDER = (
    "import sys\n"
    "from pathlib import Path\n"
    "from rpc_server.tracker.store import StateStore\n"
    "store = StateStore(Path(sys.argv[1]))\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)


def test_a_state_file_in_use_names_the_process_that_has_it(tmp_path: Path) -> None:
    path = tmp_path / "farm.db"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        with pytest.raises(ConfigError, match=f"is in use by process {holder.pid} .*stop that"):
            StateStore(path)
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    StateStore(path).close()  # what a killed process held is free


def test_one_state_file_serves_one_tracker_of_a_process_too(tmp_path: Path) -> None:
    path = tmp_path / "farm.db"
    with (
        contextlib.closing(StateStore(path)),
        pytest.raises(ConfigError, match=f"in use by process {os.getpid()} "),
    ):
        StateStore(path)


def test_a_state_file_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "farm.db"
    path.write_text("not a database, " * 100, encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot use the farm's state file"):
        StateStore(path)


FOREIGN = {
    "records": "CREATE TABLE records (id INTEGER)",
    "a lease of cars": "CREATE TABLE lease (car TEXT, until TEXT)",
    "the same columns": "CREATE TABLE lease (place TEXT PRIMARY KEY, fields TEXT)",
    "a view": "CREATE VIEW lease AS SELECT 1 AS place, 2 AS fields",
}


@pytest.mark.parametrize("made", FOREIGN.values(), ids=FOREIGN)
def test_a_database_of_something_else_is_left_as_it_was(tmp_path: Path, made: str) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(made)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="no farm's state; give --state another file"):
        StateStore(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["other.db"]


def changed(path: Path, statement: str) -> None:
    StateStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE meta SET value = 9 WHERE name = 'format'", "has format 9, expected 1"),
        ("DELETE FROM meta", "has format None, expected 1"),
        ("CREATE TABLE more (id INTEGER)", "no farm's state"),
        ("DROP TABLE request", "no farm's state"),
    ],
)
def test_a_state_of_another_version_is_refused(tmp_path: Path, statement: str, error: str) -> None:
    path = tmp_path / "farm.db"
    changed(path, statement)
    with pytest.raises(ConfigError, match=error):
        StateStore(path)


def traced(store: StateStore, work: Callable[[], None]) -> list[str]:
    """Statements that a store runs."""
    seen: list[str] = []
    store._database.set_trace_callback(seen.append)
    work()
    store._database.set_trace_callback(None)
    return seen


def test_every_commit_is_flushed_to_the_disk(tmp_path: Path) -> None:
    """FULL is 2: the write-ahead log is synchronized at every commit, not at checkpoints only."""
    with contextlib.closing(StateStore(tmp_path / "farm.db")) as store:
        assert store._database.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        state = FarmState(FarmRules())
        state.apply(1.0, Registered(board="b", key="k", address="h:1", secret="s"))
        seen = traced(store, lambda: store.save(state))
        assert (seen[0], seen[-1]) == ("BEGIN", "COMMIT")
        assert traced(store, lambda: store.save(state)) == []
