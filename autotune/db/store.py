"""The tuning log. In: a path or an SQLAlchemy URL. Out: a Store in SQLite or PostgreSQL.

A file has one writer (see `lock`) and any number of readers, a PostgreSQL database any number of
both; a batch is one transaction, so a killed writer loses the batch in flight and nothing else.
The first write makes the file or the tables.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Integer,
    Select,
    bindparam,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from autotune.db import codec, engines, files, query, schema
from autotune.db.direct import ADD, DirectWriter
from autotune.db.lock import WriterLock
from autotune.db.schema import RECORDS, TARGETS, TASKS
from autotune.db.selection import ALL, Execute, Selection
from autotune.db.types import Mark, Record
from autotune.errors import LogError
from autotune.schedule.base import schedule_to_json
from autotune.target import Target, load_target
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
        self.name = files.shown(str(path_or_url))
        self.path = engines.file_of(str(path_or_url))
        self._url = str(path_or_url)
        self._read_only = read_only
        self._now = now
        self._lock: WriterLock | None = None
        self._claimed = False
        self._parsed = codec.Parsed()
        self._filed: set[str] = set()
        self._direct: DirectWriter | None = None
        self._engine = self._open_reader()
        if self._engine is not None:
            return
        if read_only and not missing_ok:
            raise files.missing(self.name)
        if self.path is not None and not read_only:
            files.check_writable(self.path)

    def __enter__(self) -> TuningLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def must_exist(self) -> TuningLog:
        """Itself. Raises LogError where the log has still to be made."""
        if self._engine is None:
            raise files.missing(self.name)
        return self

    # ------------------------------------------------------------------------------------ writing

    def claim(self) -> None:
        """Become a writer and make or upgrade the tables. LogError names a file's other writer."""
        if self._read_only:
            raise LogError(f"tuning log {self.name}: it was opened for reading only")
        if self._claimed:
            return
        lock = None
        if self.path is not None:
            files.check_writable(self.path)
            lock = WriterLock(self.path, self._now())
        engine = engines.engine(self._url, write=True)
        try:
            with self._explained(), engines.transactions(engine).begin() as connection:
                schema.upgrade(connection, self.name)
        except BaseException:  # of a Ctrl-C too, after which others may want to write
            engine.dispose()
            if lock is not None:
                lock.release()
            raise
        if self._engine is not None:
            self._engine.dispose()
        self._lock, self._engine, self._claimed = lock, engine, True

    def append(self, records: Iterable[Record]) -> None:
        """Add records, all or none: they are committed when this returns."""
        batch = list(records)
        self.claim()
        if not batch:
            return
        if len(batch) == 1:
            row = codec.record_row(batch[0], self._now())
            if {row["task_key"], row["target"]} <= self._filed:
                self._append_row(row)
                return
        with self.writing() as connection:
            filed = self.insert(connection, batch)
        self._filed |= filed

    def repeat(self, records: Iterable[Record]) -> None:
        """Append records that count instead of the earlier ones of their schedules."""
        batch = list(records)
        if not batch:
            return
        with self.writing() as connection:
            for record in batch:
                earlier = (
                    RECORDS.c.task_key == record.task.key,
                    RECORDS.c.target_key == record.target.key,
                    RECORDS.c.mark == int(Mark.OWN),
                    RECORDS.c.schedule == codec.to_text(schedule_to_json(record.schedule)),
                )
                done = update(RECORDS).where(*earlier).values(mark=int(Mark.REPEATED))
                connection.execute(done)
            filed = self.insert(connection, batch)
        self._filed |= filed

    def insert(self, connection: Connection, batch: Sequence[Record]) -> set[str]:
        """Add records inside the caller's transaction; the tasks and targets this filed."""
        now = self._now()
        tasks = {r.task.key: r for r in batch}
        targets = {codec.target_digest(t): t for t in {r.target for r in batch}}
        new_tasks = [codec.task_row(r) for key, r in tasks.items() if key not in self._filed]
        new_targets = [codec.target_row(t) for d, t in targets.items() if d not in self._filed]
        _insert_new(connection, TASKS, new_tasks)
        _insert_new(connection, TARGETS, new_targets)
        connection.execute(RECORDS.insert(), [codec.record_row(r, now) for r in batch])
        return {*tasks, *targets}

    def _append_row(self, row: codec.Values) -> None:
        """Add a record whose task and target are there."""
        if self._engine is None or not DirectWriter.serves(self._engine):
            with self.writing(alone=True) as connection:
                connection.execute(ADD, row)
            return
        self._direct = self._direct or DirectWriter(self._engine)
        driver_error = self._engine.dialect.loaded_dbapi.Error
        try:
            self._direct.add(row)
        except (driver_error, SQLAlchemyError) as error:
            raise files.explain(error, self.name) from None

    def close(self) -> None:
        """Give back the right to write and every connection; the log may be opened again."""
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._claimed = False

    # ------------------------------------------------------------------------------------ reading

    def best(self, task_key: str, target: Target | str) -> Record | None:
        """Fastest OK record of the task on exactly this target key, or None. A target's name
        stands for that target with one thread."""
        wanted = load_target(target) if isinstance(target, str) else target
        return next(iter(self.top(task_key, wanted, 1)), None)

    def top(self, task_key: str, target: Target, count: int) -> Sequence[Record]:
        """The `count` fastest OK records of the task on this target key, fastest first."""
        return self._read(*_fastest(task_key, target.key, count))

    def records(self, task_key: str, target: Target) -> Sequence[Record]:
        """Every record of the task on this target key measured here, failures too, by age."""
        wanted = (RECORDS.c.task_key == task_key) & (RECORDS.c.target_key == target.key)
        own = RECORDS.c.mark == int(Mark.OWN)
        return self._read(_RECORD.where(wanted & own).order_by(RECORDS.c.id))

    def nearest(
        self, task: Task, target: Target, count: int, *, imported: bool = False, each: int = 1
    ) -> Sequence[Record]:
        """The `each` fastest OK records of `count` pairs of a task of the same op and a target of
        the same family: most similar shapes first, this very target before its relatives, records
        measured here before the imported ones, which only come with `imported`."""
        marks = (Mark.OWN, Mark.IMPORTED) if imported else (Mark.OWN,)
        with self.reading() as connection:
            if connection is None:
                return ()
            tasks = connection.execute(select(TASKS.c.json).where(TASKS.c.op == task.op)).all()
            family = select(TARGETS.c.key).distinct().where(TARGETS.c.family == target.family)
            keys = sorted(connection.execute(family).scalars(), key=lambda k: (k != target.key, k))
            others = [self._parsed.task(row.json) for row in tasks]
            near = sorted((codec.distance(task, o), o.key) for o in others)
            found: list[tuple[Record, ...]] = []
            for far, key in near:
                if len(found) >= count or far == float("inf"):
                    break
                for target_key, mark in itertools.product(keys, marks):
                    rows = connection.execute(*_fastest(key, target_key, each, mark)).all()
                    found += [tuple(map(self.record, rows))] if rows else []
            return tuple(itertools.chain.from_iterable(found[:count]))

    def query(
        self, selection: Selection = ALL, *, top: int = 1, history: bool = False
    ) -> list[dict[str, Any]]:
        """Best `top` records of every matching task, as plain dicts; see `query.best_records` and
        `query.history`."""
        with self.reading() as connection:
            if connection is None:
                return []
            execute = executor(connection)
            if history:
                return query.history(execute, selection)
            lateral = connection.dialect.name == "postgresql"
            return query.best_records(execute, selection, top=top, lateral=lateral)

    # ------------------------------------------------------------------- for the rest of this room

    @contextlib.contextmanager
    def reading(self, *, alone: bool = False) -> Iterator[Connection | None]:
        """A connection inside a transaction, or None while there is no log. `alone`: for one
        statement only, see `engines.transactions`."""
        if self._engine is None:
            self._engine = self._open_reader()
        if self._engine is None:
            yield None
            return
        engine = self._engine if alone else engines.transactions(self._engine)
        with self._explained(), engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, *, alone: bool = False) -> Iterator[Connection]:
        """A connection inside a transaction that may write, committed at the end. `alone`: for one
        statement only, as in `reading`."""
        self.claim()
        if self._engine is None:
            raise LogError(f"tuning log {self.name}: it was closed; open it again")
        engine = self._engine if alone else engines.transactions(self._engine)
        with self._explained(), engine.begin() as connection:
            yield connection

    def record(self, row: Any) -> Record:
        """The Record of a row of `record_rows`."""
        return codec.record_from_row(row, self.name, self._parsed)

    # ----------------------------------------------------------------------------------- plumbing

    def _read(
        self, statement: Select[Any], params: Mapping[str, Any] | None = None
    ) -> tuple[Record, ...]:
        with self.reading(alone=True) as connection:
            if connection is None:
                return ()
            rows = connection.execute(statement, params).all()
        return tuple(map(self.record, rows))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise files.explain(error, self.name) from None

    def _open_reader(self) -> Engine | None:
        """An engine for looking things up; None if there is no file or no table yet."""
        if self.path is not None and not files.exists(self.path):
            return None
        engine = engines.engine(self._url, write=False)
        try:
            with self._explained(), engine.begin() as connection:
                if schema.is_current(connection, self.name):
                    return engine
                version = schema.version_of(connection)
        except LogError:
            engine.dispose()
            raise
        engine.dispose()
        if version == 0:
            return None
        if self._read_only:
            raise files.outdated(self.name, version)
        self._engine = None
        self.claim()
        return self._engine


def executor(connection: Connection) -> Execute:
    """Statements as text with named parameters, on this connection."""

    def execute(statement: str, params: Mapping[str, Any]) -> Iterable[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = connection.execute(text(statement), params).all()
        return rows

    return execute


def record_rows() -> Select[Any]:
    """Rows of records with what `TuningLog.record` needs of their task and target."""
    return _RECORD


_RECORD = (
    select(RECORDS, TASKS.c.json.label("task_json"), TASKS.c.flops)
    .add_columns(TARGETS.c.json.label("target_json"))
    .join(TASKS, RECORDS.c.task_key == TASKS.c.key)
    .join(TARGETS, RECORDS.c.target == TARGETS.c.digest)
)


def _statement_of_fastest() -> Select[Any]:
    """Built once. The ids come from the covering index alone; only their rows are read from the
    table. The count is part of the text: a plan for any count is one for many rows."""
    ids = (
        select(RECORDS.c.id)
        .where(
            RECORDS.c.task_key == bindparam("task"),
            RECORDS.c.target_key == bindparam("target"),
            RECORDS.c.status == "OK",
            RECORDS.c.mark == bindparam("mark"),
        )
        .order_by(RECORDS.c.median_s, RECORDS.c.id)
        .limit(bindparam("count", type_=Integer, literal_execute=True))
    )
    return _RECORD.where(RECORDS.c.id.in_(ids)).order_by(RECORDS.c.median_s, RECORDS.c.id)


_FASTEST = _statement_of_fastest()


def _fastest(
    task_key: str, target_key: str, count: int, mark: Mark = Mark.OWN
) -> tuple[Select[Any], dict[str, Any]]:
    """The statement, and its parameters."""
    params = {"task": task_key, "target": target_key, "count": count, "mark": int(mark)}
    return _FASTEST, params


def _insert_new(connection: Connection, table: Any, rows: Sequence[codec.Values]) -> None:
    """Insert the rows whose primary key is not there yet, in one order for all writers."""
    if rows:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        key = next(iter(table.primary_key)).name
        ordered = sorted(rows, key=lambda row: str(row[key]))
        connection.execute(dialect.insert(table).on_conflict_do_nothing(), ordered)
