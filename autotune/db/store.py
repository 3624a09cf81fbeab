"""The tuning log. In: a path or an SQLAlchemy URL. Out: a Store in SQLite or PostgreSQL.

A file has one writer (see `lock`) and any number of readers, a PostgreSQL database any number of
both; a batch is one transaction, so a killed writer loses the batch in flight and nothing else.
The first write makes the file or the tables.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Select, select, update
from sqlalchemy.exc import SQLAlchemyError

from autotune import arguments
from autotune.db import codec, engines, files, query, rescue, schema, state
from autotune.db.clock import utc_now
from autotune.db.damage import Damage
from autotune.db.direct import ADD, DirectWriter
from autotune.db.guard import Guard, LostLogError
from autotune.db.lock import WriterLock
from autotune.db.reader import open_reader
from autotune.db.schema import RECORDS, TARGETS, TASKS
from autotune.db.selection import ALL, Selection
from autotune.db.statements import executor, fastest, insert_records, record_rows, remarked
from autotune.db.types import Mark, Record
from autotune.db.wal import LeftBehind
from autotune.errors import LogError
from autotune.op_names import logged_op
from autotune.target import Target, load_target
from autotune.types import Task


class TuningLog:
    """A tuning log by path or URL; implements `autotune.db.types.LogStore`.

    The right to write is taken by the first `append`, or earlier by `claim`, and kept until
    `close`: looking things up never disturbs a tuner at work. `missing_ok`: with `read_only`, a
    missing file is an empty log. Everything raises LogError, one line, for what cannot be done.
    Damaged rows are skipped: `damage` has them, and `close` warns of them in one line.
    """

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        read_only: bool = False,
        *,
        missing_ok: bool = False,
        now: Callable[[], str] = utc_now,
    ) -> None:
        what = "a path or an SQLAlchemy URL"
        path_or_url = arguments.place("log", path_or_url, what, LogError)
        self.name = files.shown(path_or_url)
        self.path = files.file_of(path_or_url)
        self._url = path_or_url
        self._read_only = read_only
        self._now = now
        self._lock: WriterLock | None = None
        self._claimed = False
        self.damage = Damage(self.name)
        self._parsed = codec.Parsed(self.damage)
        self._guard: Guard | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        trouble = self._close()
        if trouble is not None and (error is None or isinstance(trouble, LostLogError)):
            raise trouble

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
        lock, left = None, LeftBehind()
        if self.path is not None:
            files.check_writable(self.path)
            left = LeftBehind.of(self.path)
            lock = WriterLock(self.path, self._now())
        engine = engines.engine(self._url, write=True)
        try:
            with self._explained(), engines.transactions(engine).begin() as connection:
                schema.upgrade(connection, self.name)
            guard = None
            if self.path is not None and lock is not None:
                with self._explained(), engine.begin() as connection:
                    self.damage.note(state.settle(executor(connection), left))
                guard = Guard(self.path, engine, lock)
        except BaseException:  # of a Ctrl-C too, after which others may want to write
            engine.dispose()
            if lock is not None:
                lock.release()
            raise
        if self._engine is not None:
            self._engine.dispose()
        self._lock, self._engine, self._claimed, self._guard = lock, engine, True, guard

    def append(self, records: Iterable[Record]) -> None:
        """Add records, all or none: they are committed when this returns."""
        batch = list(records)
        self.claim()
        if not batch:
            return
        if len(batch) == 1:
            row = codec.record_row(batch[0], self._now())
            if row["task_key"] in self._filed and row["target"] in self._filed:
                try:
                    number = self._append_row(row)
                except LogError as error:
                    raise self._kept_elsewhere(batch, error) from None
                if self._guard is not None:
                    self._guard.wrote(number, row["seal"], batch)
                return
        self._add(batch)

    def _add(
        self, batch: Sequence[Record], first: Callable[[Connection], object] | None = None
    ) -> None:
        """Append in one transaction, in which something else may come first."""
        last = None
        try:
            with self._transaction() as connection:
                if first is not None:
                    first(connection)
                filed = self.insert(connection, batch)
                if self._guard is not None:
                    newest = select(RECORDS.c.id, RECORDS.c.seal).order_by(RECORDS.c.id.desc())
                    last = connection.execute(newest.limit(1)).one()
        except LogError as error:
            raise self._kept_elsewhere(batch, error) from None
        self._filed |= filed
        if self._guard is not None and last is not None:
            self._guard.wrote(last.id, last.seal, batch)

    def _kept_elsewhere(self, batch: Sequence[Record], error: LogError) -> LogError:
        """What was measured and cannot be written is saved in another file; what says so."""
        if self._guard is not None:
            self._guard.check(batch)
        return LogError(f"{error}; {rescue.save_records(self.path, batch)}")

    def checkpoint(self) -> None:
        """Bring everything that was written into a file's one main file, which is whole by itself
        then. Raises LogError, where the file is not there any more too."""
        if self._guard is not None:
            self._guard.checkpoint()

    def repeat(self, records: Iterable[Record]) -> None:
        """Append records that count instead of the earlier ones of their schedules."""
        batch = list(records)
        if not batch:
            return

        def mark(connection: Connection) -> None:
            for record in batch:
                earlier = (
                    RECORDS.c.task_key == record.task.key,
                    RECORDS.c.target_key == record.target.key,
                    RECORDS.c.mark == int(Mark.OWN),
                    RECORDS.c.schedule.in_(codec.schedule_texts(record.schedule)),
                )
                marked = remarked(Mark.OWN, Mark.REPEATED)
                connection.execute(update(RECORDS).where(*earlier).values(marked))

        self._add(batch, mark)

    def insert(self, connection: Connection, batch: Sequence[Record]) -> set[str]:
        """Add records inside the caller's transaction; the tasks and targets this filed."""
        return insert_records(connection, batch, self._now(), self._filed)

    def _append_row(self, row: codec.Values) -> int:
        """Add a record whose task and target are there; its number, 0 on a server."""
        if self._engine is None or not DirectWriter.serves(self._engine):
            with self._transaction(alone=True) as connection:
                connection.execute(ADD, row)
            return 0
        self._direct = self._direct or DirectWriter(self._engine)
        driver_error = self._engine.dialect.loaded_dbapi.Error
        try:
            return self._direct.add(row)
        except (driver_error, SQLAlchemyError) as error:
            raise files.explain(error, self.name) from None

    def close(self) -> None:
        """Give back the right to write and every connection; the log may be opened again. Raises
        LogError where what was written is not in its file any more."""
        trouble = self._close()
        if trouble is not None:
            raise trouble

    def _close(self) -> LogError | None:
        trouble, settled = None, True
        if self._guard is not None:
            try:
                self._guard.checkpoint(last=True)
            except LogError as error:
                trouble, settled = error, isinstance(error, LostLogError)
            self._guard.release()
            self._guard = None
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
        if self._lock is not None:
            self._lock.release(settled=settled)
            self._lock = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None
        self._claimed = False
        self.damage.tell()
        return trouble

    # ------------------------------------------------------------------------------------ reading

    def best(self, task_key: str, target: Target | str) -> Record | None:
        """Fastest OK record of the task on exactly this target key, or None. A target's name
        stands for that target with one thread."""
        wanted = load_target(target) if isinstance(target, str) else target
        return next(iter(self.top(task_key, wanted, 1)), None)

    def top(self, task_key: str, target: Target, count: int) -> Sequence[Record]:
        """The `count` fastest OK records of the task on this target key, fastest first."""
        return self._fastest(task_key, target.key, count)

    def records(self, task_key: str, target: Target) -> Sequence[Record]:
        """Every record of the task on this target key measured here, failures too, by age."""
        wanted = (RECORDS.c.task_key == task_key) & (RECORDS.c.target_key == target.key)
        own = RECORDS.c.mark == int(Mark.OWN)
        return self._read(record_rows().where(wanted & own).order_by(RECORDS.c.id))

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
            tasks = connection.execute(select(TASKS).where(TASKS.c.op == logged_op(task.op))).all()
            family = select(TARGETS.c.key).distinct().where(TARGETS.c.family == target.family)
            keys = sorted(connection.execute(family).scalars(), key=lambda k: (k != target.key, k))
            others = [t for row in tasks if (t := self._parsed.task(dict(row._mapping)))]
            near = sorted((codec.distance(task, o), o.key) for o in others)
            found: list[tuple[Record, ...]] = []
            for far, key in near:
                if len(found) >= count or far == float("inf"):
                    break
                for target_key, mark in itertools.product(keys, marks):
                    some = self._best_of(connection, key, target_key, each, mark)
                    found += [some] if some else []
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
                return query.history(execute, selection, damage=self.damage)
            lateral = connection.dialect.name == "postgresql"
            return query.best_records(
                execute, selection, top=top, lateral=lateral, damage=self.damage
            )

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
        with self._transaction(alone=alone) as connection:
            yield connection
        if self._guard is not None:
            self._guard.committed()

    @contextlib.contextmanager
    def _transaction(self, *, alone: bool = False) -> Iterator[Connection]:
        self.claim()
        if self._engine is None:
            raise LogError(f"tuning log {self.name}: it was closed; open it again")
        engine = self._engine if alone else engines.transactions(self._engine)
        with self._explained(), engine.begin() as connection:
            yield connection

    def record(self, row: Any) -> Record | None:
        """The Record of a row of `record_rows`; None for a damaged one, which is noted."""
        return codec.record_from_row(row, self.name, self._parsed)

    # ----------------------------------------------------------------------------------- plumbing

    def _read(
        self, statement: Select[Any], params: Mapping[str, Any] | None = None
    ) -> tuple[Record, ...]:
        with self.reading(alone=True) as connection:
            if connection is None:
                return ()
            rows = connection.execute(statement, params).all()
        return tuple(filter(None, map(self.record, rows)))

    def _fastest(self, task_key: str, target_key: str, count: int) -> tuple[Record, ...]:
        with self.reading(alone=True) as connection:
            if connection is None:
                return ()
            return self._best_of(connection, task_key, target_key, count, Mark.OWN)

    def _best_of(
        self, connection: Connection, task_key: str, target_key: str, count: int, mark: Mark
    ) -> tuple[Record, ...]:
        """The fastest of those that are not damaged."""
        asked = count
        while True:
            rows = connection.execute(*fastest(task_key, target_key, asked, mark)).all()
            found = tuple(filter(None, map(self.record, rows)))
            if len(found) >= count or len(rows) < asked:
                return found[:count]
            asked = count + len(rows) - len(found)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            raise files.explain(error, self.name) from None

    def _open_reader(self) -> Engine | None:
        """An engine for looking things up; None if there is no file or no table yet."""
        reader = open_reader(self._url, self.damage, salvage_ok=self._read_only)
        self._copy = reader.copy
        if reader.engine is not None or reader.version == 0:
            return reader.engine
        if self._read_only:
            raise files.outdated(self.name, reader.version)
        self._engine = None
        self.claim()
        return self._engine
