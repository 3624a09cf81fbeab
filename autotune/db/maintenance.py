"""Looking after a log. In: a log and a selection. Out: figures of it, or fewer records in it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, text

from autotune.db import files, seals, state
from autotune.db.schema import METADATA, RECORDS, version_of
from autotune.db.selection import Selection, conditions, resolve
from autotune.db.statements import executor
from autotune.db.store import TuningLog
from autotune.db.types import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Figures of a log. Counts are of records unless said."""

    schema: int = 0
    size_bytes: int = 0
    """Bytes of the database with its index."""
    records: int = 0
    tasks: int = 0
    """Tasks that have records."""
    statuses: Mapping[str, int]
    ops: Mapping[str, int]
    targets: Mapping[str, int]
    devices: Mapping[str, int]
    origins: Mapping[str, int]
    """Imported ones, and those that verify them, by where they are from."""
    waiting: int = 0
    """Imported and not yet verified."""
    first: str = ""
    last: str = ""


def stats(log: TuningLog) -> Stats:
    """Figures of the whole log."""
    with log.reading() as connection:
        if connection is None:
            return Stats(statuses={}, ops={}, targets={}, devices={}, origins={})
        whole = connection.execute(
            text(
                "SELECT COUNT(*), COUNT(DISTINCT task_key), MIN(created), MAX(created) "
                "FROM records"
            )
        ).one()
        marks = _counts(connection, "mark", "records")
        origins = _counts(connection, "origin", "records")
        origins.pop("", None)
        return Stats(
            schema=version_of(connection),
            size_bytes=_size_bytes(connection),
            records=whole[0],
            tasks=whole[1],
            first=whole[2] or "",
            last=whole[3] or "",
            statuses=_counts(connection, "status", "records"),
            ops=_counts(connection, "op", "records r JOIN tasks t ON t.key = r.task_key"),
            targets=_counts(connection, "target_key", "records"),
            devices=_counts(connection, "device", "records"),
            origins=origins,
            waiting=marks.get(Mark.IMPORTED, 0),
        )


def _counts(connection: Connection, column: str, source: str) -> dict[Any, int]:
    """Value of the column -> rows with it, the most frequent first."""
    statement = f"SELECT {column}, COUNT(*) FROM {source} GROUP BY {column} ORDER BY 2 DESC, 1"
    return {row[0]: row[1] for row in connection.execute(text(statement))}


def _size_bytes(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        tables = ", ".join(f"('{name}')" for name in METADATA.tables)
        statement = f"SELECT SUM(pg_total_relation_size(n::regclass)) FROM (VALUES {tables}) v(n)"
        return int(connection.execute(text(statement)).scalar() or 0)
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    size = connection.exec_driver_sql("PRAGMA page_size").scalar()
    return int(pages or 0) * int(size or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Records to be deleted. The fastest one of a task on a target never is."""

    keep: int | None = None
    """OK records that stay of each task and target: the fastest. What was measured again goes."""
    failures: bool = False
    """Failures go: they may be tried again."""
    imported: bool = False
    """Imported records that were not verified go."""


def prune(log: TuningLog, selection: Selection, what: Pruning, *, dry_run: bool = False) -> int:
    """Delete what `what` says of the selected records; how many they are. Raises LogError for a
    damaged log: what cannot be read might be kept in the place of what can."""
    if not dry_run:
        _refuse_damaged(log)
    with log.reading() if dry_run else log.writing() as connection:
        if connection is None:
            return 0
        where, params = conditions(
            resolve(executor(connection), selection, log.damage.add), "records"
        )
        doomed = f"({where}) AND ({' OR '.join(_doomed(what)) or '1 = 0'})"
        params |= {"keep": what.keep} if what.keep is not None else {}
        action = "SELECT COUNT(*)" if dry_run else "DELETE"
        result = connection.execute(text(f"{action} FROM records WHERE {doomed}"), params)
        count = int(result.scalar() or 0) if dry_run else result.rowcount
        if count and not dry_run and log.path is not None:
            state.count_anew(executor(connection))
    if count and not dry_run:
        _shrink(log)
    return count


def _doomed(what: Pruning) -> Sequence[str]:
    """Conditions of which one is enough."""
    own = f"mark = {int(Mark.OWN)}"
    doomed = []
    if what.keep is not None:
        ranked = (
            "SELECT id, ROW_NUMBER() OVER (PARTITION BY task_key, target_key "
            f"ORDER BY median_s, id) AS place FROM records WHERE status = 'OK' AND {own}"
        )
        doomed.append(f"id IN (SELECT id FROM ({ranked}) ranked WHERE place > :keep)")
        doomed.append(f"mark = {int(Mark.REPEATED)}")
    if what.failures:
        doomed.append("status <> 'OK'")
    if what.imported:
        doomed.append(f"mark = {int(Mark.IMPORTED)}")
    return doomed


def _shrink(log: TuningLog) -> None:
    """Give the space back to the file system, unless a reader is in the way: then later records
    take it. A server does that by itself."""
    if log.path is None:
        return
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(files.connect(log.path, write=True)) as connection,
    ):
        connection.execute("VACUUM")
    log.checkpoint()


def _refuse_damaged(log: TuningLog) -> None:
    rows = select(RECORDS).execution_options(yield_per=1000)
    with log.reading() as connection:
        if connection is None:
            return
        for row in connection.execute(rows):
            if not seals.is_whole("records", row._mapping):
                raise files.damaged(log.name, f"record {row.id}")
