"""Statements about records that the whole room shares. In: values. Out: SQLAlchemy's statements.

A record's row comes with those of its task and target; one that is missing is all None, so that a
damaged log shows what it lacks instead of leaving records out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Integer, Select, bindparam, or_, select, text
from sqlalchemy.dialects import postgresql, sqlite

from autotune.db import codec, seals
from autotune.db.codec import Values
from autotune.db.schema import RECORDS, TARGETS, TASKS
from autotune.db.selection import Execute
from autotune.db.types import Mark, Record


def executor(connection: Connection) -> Execute:
    """Statements as text with named parameters, on this connection."""

    def execute(statement: str, params: Mapping[str, Any]) -> Iterable[Sequence[Any]]:
        result = connection.execute(text(statement), params)
        rows: Sequence[Sequence[Any]] = result.all() if result.returns_rows else ()
        return rows

    return execute


def record_rows() -> Select[Any]:
    """Rows of records with what `TuningLog.record` needs of their task and target."""
    return _RECORD


def fastest(
    task_key: str, target_key: str, count: int, mark: Mark = Mark.OWN
) -> tuple[Select[Any], dict[str, Any]]:
    """The statement, and its parameters: as `record_rows`, each with the number that the index
    has for it (`found`)."""
    params = {"task": task_key, "target": target_key, "count": count, "mark": int(mark)}
    return _FASTEST, params


def remarked(before: Mark, after: Mark) -> dict[str, Any]:
    """What records get whose mark changes: it, and the seal that goes with it."""
    return {"mark": int(after), "seal": RECORDS.c.seal + seals.remarked(before, after)}


def _parts() -> list[Any]:
    """The columns of a record's task and target, named after their tables."""
    tables = (TASKS, TARGETS)
    return [column.label(f"{table.name}_{column.name}") for table in tables for column in table.c]


_RECORD = (
    select(RECORDS, *_parts())
    .join(TASKS, RECORDS.c.task_key == TASKS.c.key, isouter=True)
    .join(TARGETS, RECORDS.c.target == TARGETS.c.digest, isouter=True)
)


def _statement_of_fastest() -> Select[Any]:
    """Built once. The ids come from the covering index alone; only their rows are read from the
    table. The count is part of the text: a plan for any count is one for many rows."""
    found = (
        select(RECORDS.c.id.label("found"), RECORDS.c.median_s)
        .where(
            RECORDS.c.task_key == bindparam("task"),
            RECORDS.c.target_key == bindparam("target"),
            RECORDS.c.status == "OK",
            RECORDS.c.mark == bindparam("mark"),
        )
        .order_by(RECORDS.c.median_s, RECORDS.c.id)
        .limit(bindparam("count", type_=Integer, literal_execute=True))
        .subquery("fast")
    )
    rows = (
        found.join(RECORDS, RECORDS.c.id == found.c.found, isouter=True)
        .join(TASKS, RECORDS.c.task_key == TASKS.c.key, isouter=True)
        .join(TARGETS, RECORDS.c.target == TARGETS.c.digest, isouter=True)
    )
    return (
        select(found.c.found, RECORDS, *_parts())
        .select_from(rows)
        .order_by(found.c.median_s, found.c.found)
    )


_FASTEST = _statement_of_fastest()


def insert_records(
    connection: Connection, batch: Sequence[Record], now: str, filed: Collection[str] = ()
) -> set[str]:
    """Add records, and what they name unless it was `filed`; the keys of their tasks and the
    digests of their targets."""
    tasks = {r.task.key: r for r in batch}
    targets = {codec.target_digest(t): t for t in {r.target for r in batch}}
    new_tasks = [codec.task_row(r) for key, r in tasks.items() if key not in filed]
    new_targets = [codec.target_row(t) for d, t in targets.items() if d not in filed]
    insert_new(connection, TASKS, new_tasks)
    insert_new(connection, TARGETS, new_targets)
    if batch:
        connection.execute(RECORDS.insert(), [codec.record_row(r, now) for r in batch])
    return {*tasks, *targets}


def insert_new(connection: Connection, table: Any, rows: Sequence[Values]) -> None:
    """Insert the rows whose primary key is not there yet, in one order for all writers; one that
    is there and differs is damaged, or of a release that described it otherwise, and replaced."""
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    key = next(iter(table.primary_key)).name
    ordered = sorted(rows, key=lambda row: str(row[key]))
    insert = dialect.insert(table)
    others = [c for c in table.c if c.name != key]
    differs = or_(*(c.is_distinct_from(insert.excluded[c.name]) for c in others))
    replaced = {c.name: insert.excluded[c.name] for c in others}
    connection.execute(
        insert.on_conflict_do_update(index_elements=[key], set_=replaced, where=differs), ordered
    )
