"""The tuning log. In: a path or an SQLAlchemy URL. Out: a Store in SQLite or PostgreSQL.

A file has one writer (see `lock`) and any number of readers; a batch is one transaction, so a
killed writer loses the batch in flight and nothing else. The first write makes a missing file.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, Select, create_engine, event, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from autotune.db import codec, files, query, schema
from autotune.db.lock import WriterLock
from autotune.db.schema import RECORDS, TARGETS, TASKS
from autotune.db.types import Record
from autotune.errors import LogError
from autotune.target import Target
from autotune.types import Task


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class TuningLog:
    """A tuning log by path or URL; implements `autotune.db.types.Store`.

    The right to write is taken by the first `append`, or earlier by `claim`, and kept until
    `close`: looking things up never disturbs a tuner at work. `missing_ok`: with `read_only`, a
    missing file is an empty log. Everything raises LogError, one line, for what cannot be done.
    """

    def __init__(
        self,
        path_or_url: str | Path,
        read_only: bool = False,
        *,
        missing_ok: bool = False,
        now: Callable[[], str] = utc_now,
    ) -> None:
        self._name = str(path_or_url)
        self._path = None if files.is_url(self._name) else Path(self._name)
        if self._name.startswith("sqlite:"):
            self._path = Path(self._name.partition(":///")[2])
        self._read_only = read_only
        self._now = now
        self._lock: WriterLock | None = None
        self._engine: Engine | None = None
        if self._path is None:
            self._engine = self._open_url()
        elif files.exists(self._path):
            self._engine = self._open_reader(self._path)
        elif read_only and not missing_ok:
            raise LogError(f"tuning log {self._name}: does not exist; `autotune tune` makes one")
        elif not read_only:
            files.check_writable(self._path)

    def __enter__(self) -> TuningLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------ writing

    def claim(self) -> None:
        """Become the writer and make or upgrade the tables. LogError names another writer."""
        if self._read_only:
            raise LogError(f"tuning log {self._name}: it was opened for reading only")
        if self._path is None or self._lock is not None:
            return
        files.check_writable(self._path)
        lock = WriterLock(self._path, self._now())
        try:
            engine = self._open_file(self._path, write=True)
            with self._explained(), engine.begin() as connection:
                schema.upgrade(connection, self._name)
        except LogError:
            lock.release()
            raise
        if self._engine is not None:
            self._engine.dispose()
        self._lock, self._engine = lock, engine

    def append(self, records: Iterable[Record]) -> None:
        """Add records, all or none: they are committed when this returns."""
        batch = list(records)
        self.claim()
        if not batch:
            return
        now = self._now()
        tasks = {r.task.key: codec.task_row(r) for r in batch}
        targets = {row["digest"]: row for row in map(codec.target_row, {r.target for r in batch})}
        with self._transaction() as connection:
            _insert_new(connection, TASKS, list(tasks.values()))
            _insert_new(connection, TARGETS, list(targets.values()))
            connection.execute(RECORDS.insert(), [codec.record_row(r, now) for r in batch])

    def close(self) -> None:
        """Give back the right to write and every connection; the log may be opened again."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # ------------------------------------------------------------------------------------ reading

    def best(self, task_key: str, target: Target) -> Record | None:
        """Fastest OK record of the task on exactly this target key, or None."""
        return next(iter(self.top(task_key, target, 1)), None)

    def top(self, task_key: str, target: Target, count: int) -> Sequence[Record]:
        """The `count` fastest OK records of the task on this target key, fastest first."""
        return self._read(_fastest(task_key, target.key, count))

    def records(self, task_key: str, target: Target) -> Sequence[Record]:
        """Every record of the task on this target key, failures too, oldest first."""
        wanted = (RECORDS.c.task_key == task_key) & (RECORDS.c.target_key == target.key)
        return self._read(_RECORD.where(wanted).order_by(RECORDS.c.id))

    def nearest(self, task: Task, target: Target, count: int) -> Sequence[Record]:
        """Best OK records of tasks of the same op on targets of the same family, most similar
        shapes first, this very target before its relatives."""
        with self._transaction() as connection:
            if connection is None:
                return ()
            tasks = connection.execute(select(TASKS.c.json).where(TASKS.c.op == task.op)).all()
            family = select(TARGETS.c.key).distinct().where(TARGETS.c.family == target.family)
            keys = sorted(connection.execute(family).scalars(), key=lambda k: (k != target.key, k))
            others = [Task.from_json(json.loads(row.json)) for row in tasks]
            near = sorted((codec.distance(task, o), o.key) for o in others)
            found: list[Record] = []
            for far, key in near:
                if len(found) >= count or far == float("inf"):
                    break
                for target_key in keys:
                    rows = connection.execute(_fastest(key, target_key, 1))
                    found += [codec.record_from_row(row, self._name) for row in rows]
            return tuple(found[:count])

    def query(
        self,
        *,
        task_keys: Sequence[str] | None = None,
        op: str | None = None,
        target: str | None = None,
        top: int = 1,
    ) -> list[dict[str, Any]]:
        """Best `top` records of every matching task, as plain dicts; see `query.best_records`."""
        with self._transaction() as connection:
            if connection is None:
                return []

            def execute(statement: str, params: Mapping[str, Any]) -> Iterable[query.Row]:
                rows: Sequence[query.Row] = connection.execute(text(statement), params).all()
                return rows

            return query.best_records(execute, task_keys=task_keys, op=op, target=target, top=top)

    # ----------------------------------------------------------------------------------- plumbing

    def _read(self, statement: Select[Any]) -> tuple[Record, ...]:
        with self._transaction() as connection:
            if connection is None:
                return ()
            rows = connection.execute(statement).all()
        return tuple(codec.record_from_row(row, self._name) for row in rows)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A connection inside a transaction, or None while the log's file is not there."""
        if self._engine is None and self._path is not None and files.exists(self._path):
            self._engine = self._open_reader(self._path)
        if self._engine is None:
            yield None
            return
        with self._explained(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise files.explain(error, self._name) from None

    def _open_reader(self, path: Path) -> Engine | None:
        """An engine for looking things up; None if the file holds no tables yet."""
        engine = self._open_file(path, write=False)
        with self._explained(), engine.begin() as connection:
            if schema.is_current(connection, self._name):
                return engine
            fresh = not inspect(connection).get_table_names()
        engine.dispose()
        if fresh:
            return None
        if self._read_only:
            raise LogError(
                f"tuning log {self._name}: of an older release; `autotune tune` upgrades it"
            )
        self.claim()
        return self._engine

    def _open_file(self, path: Path, *, write: bool) -> Engine:
        if files.exists(path):
            files.check_header(path)
        engine = create_engine(
            "sqlite://", creator=lambda: files.connect(path, write=write), poolclass=QueuePool
        )
        # The driver would not open a transaction before DDL: without this, making the tables could
        # be cut in half.
        start = "BEGIN IMMEDIATE" if write else "BEGIN"
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(start))
        return engine

    def _open_url(self) -> Engine:
        try:
            engine = create_engine(self._name)
        except ArgumentError:
            raise LogError(f"tuning log {self._name}: not an SQLAlchemy URL") from None
        except ImportError as error:
            raise LogError(
                f"tuning log {self._name}: its driver is missing ({error}); "
                "for PostgreSQL: pip install 'autotune-compiler[postgres]'"
            ) from None
        with self._explained(), engine.begin() as connection:
            schema.upgrade(connection, self._name)
        return engine


_RECORD = (
    select(RECORDS, TASKS.c.json.label("task_json"), TASKS.c.flops)
    .add_columns(TARGETS.c.json.label("target_json"))
    .join(TASKS, RECORDS.c.task_key == TASKS.c.key)
    .join(TARGETS, RECORDS.c.target == TARGETS.c.digest)
)


def _fastest(task_key: str, target_key: str, count: int) -> Select[Any]:
    """The ids come from the covering index alone; only their rows are read from the table."""
    ids = (
        select(RECORDS.c.id)
        .where(
            RECORDS.c.task_key == task_key,
            RECORDS.c.target_key == target_key,
            RECORDS.c.status == "OK",
        )
        .order_by(RECORDS.c.median_s, RECORDS.c.id)
        .limit(count)
    )
    return _RECORD.where(RECORDS.c.id.in_(ids)).order_by(RECORDS.c.median_s, RECORDS.c.id)


def _insert_new(connection: Connection, table: Any, rows: Sequence[codec.Values]) -> None:
    """Insert the rows whose primary key is not there yet."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), rows)
