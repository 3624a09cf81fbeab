"""Records one by one, through a database's own driver. In: an engine that may write, a record's
row. Out: the row in the table, committed.

A driver makes the transaction of a lone statement itself, at a third of what asking for one costs
a file, and SQLAlchemy's layers take longer than PostgreSQL does to keep the record. Records of
other databases go through these layers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, PoolProxiedConnection, bindparam
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import psycopg

from autotune.db import codec, engines
from autotune.db.schema import RECORDS

_COLUMNS = tuple(column.name for column in RECORDS.c if column.name != "id")
ADD = RECORDS.insert().values({name: bindparam(name) for name in _COLUMNS}).inline()
"""Without asking for the id that the record got."""


def _text(dialect: Any) -> tuple[str, tuple[str, ...]]:
    """The statement, and its parameters in their order."""
    compiled = ADD.compile(dialect=dialect)
    return str(compiled), tuple(compiled.positiontup or ())


_TEXTS = {
    "pysqlite": _text(sqlite.dialect(paramstyle="qmark")),
    "psycopg": _text(psycopg.dialect(paramstyle="format")),  # type: ignore[no-untyped-call]
}
"""By SQLAlchemy's name of the driver."""


class DirectWriter:
    """A connection of the engine's, kept until `close`. Raises what the driver does."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._statement, self._order = _TEXTS[engine.driver]
        self._connection: PoolProxiedConnection | None = None
        self._used_s = 0.0

    @staticmethod
    def serves(engine: Engine) -> bool:
        """Whether the engine's driver is one of those that are known."""
        return engine.driver in _TEXTS

    def add(self, row: codec.Values) -> int:
        """Commit the row; its number, where the database says it. After an error a new connection
        is made."""
        connection = self._ready()
        try:
            cursor = connection.cursor()
            cursor.execute(self._statement, [row[name] for name in self._order])
        except self._engine.dialect.loaded_dbapi.Error:
            connection.invalidate()
            self._connection = None
            raise
        self._used_s = self._clock()
        return getattr(cursor, "lastrowid", None) or 0

    def _ready(self) -> PoolProxiedConnection:
        """The connection; after a pause, another one where its server has ended it."""
        dialect = self._engine.dialect
        paused = self._clock() - self._used_s > engines.PAUSE_S
        server = None if self._connection is None else self._connection.dbapi_connection
        if self._connection and server and paused and dialect.name != "sqlite":
            try:
                dialect.do_ping(server)
            except dialect.loaded_dbapi.Error:
                self._connection.invalidate()
                self._connection = None
        if self._connection is None:
            self._connection = self._engine.raw_connection()
        return self._connection

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
