"""The tracker's memory on disk. In: a FarmState and what changed in it. Out: the same state again.

One SQLite file, one row per board, request and lease. Every change is on disk (synchronous=FULL:
the log is flushed at every commit) before anybody is told of it, so a tracker that is killed, or
whose machine loses power, loses nothing it has promised.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from autotune.errors import ConfigError
from rpc_server.tracker.state import FarmState
from rpc_server.tracker.state_lock import StateLock
from rpc_server.tracker.types import Board, Lease, Request

FORMAT = 1
"""Version of the state's file."""
T = TypeVar("T")
_TABLES = ("board", "request", "lease")
_COLUMNS = {**dict.fromkeys(_TABLES, ("place", "fields")), "meta": ("name", "value")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Rows to write: table, place, and fields as JSON, None where the row is to go."""

    rows: tuple[tuple[str, str, str | None], ...]
    places: frozenset[tuple[str, object]]
    fence: int


class StateStore:
    """Opened for one tracker at a time; without a path it is kept in memory only. Raises
    ConfigError where the file cannot be used."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = StateLock(path) if path is not None else None
        try:
            self._database = sqlite3.connect(
                path or ":memory:", isolation_level=None, check_same_thread=False, timeout=1.0
            )
        except sqlite3.Error as error:
            self._unlock(remove=True)
            raise self._unusable(error) from None
        try:
            self._prepare()
        except (sqlite3.Error, ConfigError) as error:
            self._database.close()
            self._unlock(remove=True)
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> ConfigError:
        if isinstance(error, ConfigError):
            return error
        return ConfigError(
            f"cannot use the farm's state file {self._path}: {error}; give --state another file"
        )

    def _prepare(self) -> None:
        run = self._database.execute
        known = {name for (name,) in run("SELECT name FROM sqlite_master WHERE name IS NOT NULL")}
        if known:
            self._check(known)  # before anything is written: it may be somebody else's
        run("PRAGMA locking_mode=EXCLUSIVE")
        run("PRAGMA journal_mode=WAL")
        # A transaction is on the disk, not with the system, when it is answered.
        run("PRAGMA synchronous=FULL")
        run("BEGIN IMMEDIATE")
        for table in _TABLES:
            run(f"CREATE TABLE IF NOT EXISTS {table} (place TEXT PRIMARY KEY, fields TEXT)")
        run("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER)")
        run("INSERT OR IGNORE INTO meta VALUES ('format', ?), ('fence', 0)", (FORMAT,))
        run("COMMIT")

    def _check(self, known: set[str]) -> None:
        """Raises ConfigError for a database that is not a farm's state of this format."""
        run = self._database.execute
        columns = {t: tuple(r[1] for r in run(f"PRAGMA table_info({t})")) for t in _COLUMNS}
        if columns != _COLUMNS or any(not _own(name) for name in known):
            raise ConfigError(
                f"{self._path} is a database, but no farm's state; give --state another file"
            )
        found = run("SELECT value FROM meta WHERE name = 'format'").fetchone()
        if found != (FORMAT,):
            raise ConfigError(
                f"{self._path} has format {found[0] if found else None}, expected {FORMAT}; it is "
                "of another version: give --state another file"
            )

    def _meta(self, name: str) -> int:
        row = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(row[0])

    def load(self, state: FarmState) -> None:
        """Give a new state what was kept. Raises ConfigError where it is damaged."""
        try:
            state.restore(
                self._all("board", Board),
                self._all("request", Request),
                self._all("lease", Lease),
                self._meta("fence"),
            )
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise ConfigError(
                f"the farm's state file {self._path} is damaged ({error}); move it away: boards "
                "register again by themselves, leases and queue start anew"
            ) from None

    def _all(self, table: str, kind: type[T]) -> list[T]:
        rows = self._database.execute(f"SELECT fields FROM {table}")
        return [kind(**json.loads(fields)) for (fields,) in rows]

    def save(self, state: FarmState) -> None:
        """Write what changed, all or nothing. Raises ConfigError: the disk is full or gone."""
        if not state.changed:
            return
        changes = self.changes(state)
        try:
            self.write(changes)
        except ConfigError:
            state.changed |= changes.places
            raise

    def changes(self, state: FarmState) -> Changes:
        """What changed since the last time, taken from the state: it may change on."""
        tables: dict[str, Mapping[Any, Any]] = {
            "board": state.boards,
            "request": state.requests,
            "lease": state.leases,
        }
        rows = []
        for table, place in state.changed:
            entity = tables[table].get(place)
            fields = None if entity is None else json.dumps(_fields(entity))
            rows.append((table, json.dumps(place), fields))
        places = frozenset(state.changed)
        state.changed.clear()
        return Changes(rows=tuple(rows), places=places, fence=state.fence)

    def write(self, changes: Changes) -> None:
        """Put changes on the disk, all or nothing, in any thread but one at a time. Raises
        ConfigError: the disk is full or gone."""
        run = self._database.execute
        try:
            run("BEGIN")
            for table, place, fields in changes.rows:
                if fields is None:
                    run(f"DELETE FROM {table} WHERE place = ?", (place,))
                else:
                    run(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (place, fields))
            run("UPDATE meta SET value = ? WHERE name = 'fence'", (changes.fence,))
            run("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                run("ROLLBACK")
            raise ConfigError(f"cannot write the farm's state file: {error}") from None

    def close(self) -> None:
        self._database.close()
        self._unlock()

    def _unlock(self, *, remove: bool = False) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close(remove=remove)


def _own(name: str) -> bool:
    """Whether a farm's state has a table or an index of this name."""
    return name in _COLUMNS or name.startswith("sqlite_autoindex_")


def _fields(entity: Any) -> dict[str, Any]:
    """The fields of a flat dataclass; `asdict` would copy everything below too."""
    return {f.name: getattr(entity, f.name) for f in dataclasses.fields(entity)}
