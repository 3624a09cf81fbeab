"""A new log's file, made in one transaction. In: a path where nothing is, and records. Out: the
file, complete and closed.

For logs that take over from others: of records that theirs could not take, and of what is left of
a damaged one. Nobody else knows of the file yet, so nothing is locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from autotune.db import engines, files, schema, state
from autotune.db.clock import utc_now
from autotune.db.statements import executor, insert_records
from autotune.db.types import Record


def make_log(path: Path, records: Sequence[Record] = ()) -> None:
    """Write a log with these records. Raises LogError."""
    files.check_writable(path)
    engine = engines.engine(str(path), write=True)
    try:
        with engine.begin() as connection:
            schema.upgrade(connection, str(path))
            insert_records(connection, records, utc_now())
            state.keep(executor(connection))
    except SQLAlchemyError as error:
        raise files.explain(error, str(path)) from None
    finally:
        engine.dispose()
