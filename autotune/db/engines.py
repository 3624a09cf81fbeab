"""Database engines of tuning logs. In: a path or URL. Out: an SQLAlchemy engine, or a LogError."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.pool import QueuePool

from autotune.db import files
from autotune.errors import LogError

PAUSE_S = 0.5
"""A connection used within this time is taken to be good."""


def engine(path_or_url: str, *, write: bool) -> Engine:
    """An engine that connects when it is first used."""
    path = files.file_of(path_or_url)
    return _of_url(path_or_url) if path is None else _of_file(path, write=write)


def transactions(engine: Engine) -> Engine:
    """The same connections, for several statements that take effect together. A server's are in
    autocommit mode otherwise: it makes a lone statement's transaction itself, which saves the
    waits for the transaction's start and end, and asking for it each time would cost as much."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="READ COMMITTED")


def _of_file(path: Path, *, write: bool) -> Engine:
    if files.exists(path):
        files.check_header(path)
    made = create_engine(
        "sqlite://", creator=lambda: files.connect(path, write=write), poolclass=QueuePool
    )
    # The driver would not open a transaction before DDL: without this, making or migrating the
    # tables could be cut in half.
    start = "BEGIN IMMEDIATE" if write else "BEGIN"
    event.listen(made, "begin", lambda connection: connection.exec_driver_sql(start))
    return made


def _of_url(text: str) -> Engine:
    name = files.shown(text)
    try:
        url = _with_driver(make_url(text))
        if url.get_backend_name() != "postgresql":
            raise ArgumentError(url.drivername)
        made = create_engine(url, isolation_level="AUTOCOMMIT")
    except ArgumentError:
        raise LogError(
            f"tuning log {name}: not a log's address; expected the path of a file, or "
            "postgresql://user@host/database"
        ) from None
    except ImportError as error:
        raise LogError(
            f"tuning log {name}: its driver is missing ({error}); "
            "for PostgreSQL: pip install 'autotune-compiler[postgres]'"
        ) from None
    _ask_after_a_pause(made)
    if made.dialect.name == "postgresql":
        event.listen(made, "connect", _plan_once)
    return made


def _plan_once(connection: Any, _: Any) -> None:
    """Planning takes a server longer than finding a record does. What is asked again and again is
    found by an index whatever the values are, so one plan of it serves for all of them."""
    with connection.cursor() as cursor:
        cursor.execute("SET plan_cache_mode = force_generic_plan")
    connection.commit()


def _ask_after_a_pause(engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
    """Before a connection is used again after a pause, ask whether its server is still there: a
    tuner works for hours, and a server restarted meanwhile costs it no result. Not every time: the
    question takes as long as a record."""

    def remember(_: Any, about: Any) -> None:
        about.info["used"] = clock()

    def ask(connection: Any, about: Any, _: Any) -> None:
        if clock() - about.info.get("used", clock()) > PAUSE_S:
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise DisconnectionError from error

    event.listen(engine, "checkin", remember)
    event.listen(engine, "checkout", ask)


def _with_driver(url: URL) -> URL:
    """postgres:// and postgresql:// mean the driver that the extra installs."""
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    return url
