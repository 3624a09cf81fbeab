"""Database engines of tuning logs. In: a path or URL. Out: an SQLAlchemy engine, or a LogError."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from autotune.db import files
from autotune.errors import LogError


def file_of(path_or_url: str) -> Path | None:
    """The file of a log that is one: a path, or a URL of SQLite."""
    if path_or_url.startswith("sqlite:"):
        return Path(path_or_url.partition(":///")[2])
    return None if files.is_url(path_or_url) else Path(path_or_url)


def engine(path_or_url: str, *, write: bool) -> Engine:
    """An engine that connects when it is first used."""
    path = file_of(path_or_url)
    return _of_url(path_or_url) if path is None else _of_file(path, write=write)


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
        # A tuner works for hours: a server restarted meanwhile costs it no result.
        return create_engine(url, pool_pre_ping=True)
    except ArgumentError:
        raise LogError(f"tuning log {name}: not an SQLAlchemy URL") from None
    except ImportError as error:
        raise LogError(
            f"tuning log {name}: its driver is missing ({error}); "
            "for PostgreSQL: pip install 'autotune-compiler[postgres]'"
        ) from None


def _with_driver(url: URL) -> URL:
    """postgres:// and postgresql:// mean the driver that the extra installs."""
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    return url
