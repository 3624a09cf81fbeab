"""The tracker's memory on disk. In: a FarmState and what changed in it. Out: the same state again.

One SQLite file, one row per board, request and lease. Every change is on disk before anybody is
told of it, so a tracker that is killed loses nothing it has promised.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from autotune.errors import ConfigError
from rpc_server.farm_state import FarmState
from rpc_server.farm_types import Board, Lease, Request

FORMAT = 1
T = TypeVar("T")
_TABLES = ("board", "request", "lease")


class StateStore:
    """Opened for one tracker at a time; without a path it is kept in memory only. Raises
    ConfigError where the file cannot be used."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        try:
            self._database = sqlite3.connect(
                path or ":memory:", isolation_level=None, check_same_thread=False, timeout=1.0
            )
            self._prepare()
        except sqlite3.Error as error:
            raise ConfigError(
                f"cannot use the farm's state file {path}: {error}; give --state another file"
            ) from None

    def _prepare(self) -> None:
        run = self._database.execute
        known = {name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if known and "lease" not in known:
            raise ConfigError(
                f"{self._path} is a database, but no farm's state; give --state another file"
            )
        run("PRAGMA locking_mode=EXCLUSIVE")
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=NORMAL")
        run("BEGIN IMMEDIATE")
        for table in _TABLES:
            run(f"CREATE TABLE IF NOT EXISTS {table} (place TEXT PRIMARY KEY, fields TEXT)")
        run("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER)")
        run("INSERT OR IGNORE INTO meta VALUES ('format', ?), ('fence', 0)", (FORMAT,))
        found = self._meta("format")
        run("COMMIT")
        if found != FORMAT:
            raise ConfigError(
                f"{self._path} has format {found}, expected {FORMAT}; it is of another version: "
                "give --state another file"
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
        tables: dict[str, Mapping[Any, Any]] = {
            "board": state.boards,
            "request": state.requests,
            "lease": state.leases,
        }
        run = self._database.execute
        try:
            run("BEGIN")
            for table, place in state.changed:
                entity = tables[table].get(place)
                if entity is None:
                    run(f"DELETE FROM {table} WHERE place = ?", (json.dumps(place),))
                else:
                    row = (json.dumps(place), json.dumps(_fields(entity)))
                    run(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", row)
            run("UPDATE meta SET value = ? WHERE name = 'fence'", (state.fence,))
            run("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                run("ROLLBACK")
            raise ConfigError(f"cannot write the farm's state file: {error}") from None
        state.changed.clear()

    def close(self) -> None:
        self._database.close()


def _fields(entity: Any) -> dict[str, Any]:
    """Of a flat dataclass; `asdict` would copy everything below too."""
    return {f.name: getattr(entity, f.name) for f in dataclasses.fields(entity)}
