"""Recovery of a damaged log. In: a log. Out: its intact rows in another file, and a list of the
others.

Rows are read through the database, and where that ends in an error, from the file's own pages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.db import codec, files, pages, seals
from autotune.db.damage import Damage
from autotune.db.fresh import make_log
from autotune.db.schema import METADATA
from autotune.db.types import Mark
from autotune.exactness import ACCURACIES
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import Status
from autotune.target import Target, load_target
from autotune.tasks.flops import task_flops
from autotune.types import Task

Row = codec.Values
_JSON = {"records": ("config", "schedule", "times", "versions"), "profiles": ("json",),
         "latencies": ("before", "after")}  # fmt: skip
_FIRST_VERSION_COLUMNS = 20
"""Columns that records began with; later releases added some at the end."""
_BATCH = 500
"""Rows that are read by one statement."""
_ORPHANS = "FROM records r LEFT JOIN {table} o ON o.{key} = r.{column} WHERE o.{key} IS NULL"
_FILE = "file"
"""The table that what is wrong with the database itself is listed under."""


def salvage(path: Path, fresh: Path, damage: Damage) -> int:
    """Write the rows that are whole into a new log; how many records they are."""
    make_log(fresh)
    with contextlib.closing(files.connect(fresh, write=True)) as connection:
        connection.execute("BEGIN")
        for table, row in sound_rows(file_rows(path, damage), damage):
            _insert(connection, table, row)
        _find_targets(connection)
        _drop_orphans(connection, damage)
        count = connection.execute("SELECT COUNT(*), MAX(id) FROM records").fetchone()
        connection.execute("UPDATE schema SET records = ?, last = ?", (count[0], count[1] or 0))
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return int(count[0])


def sound_rows(
    rows: Iterable[tuple[str, Row]], damage: Damage, *, mend: bool = True
) -> Iterator[tuple[str, Row]]:
    """Rows that can be used; the others are added to the damage. `mend`: tasks and targets whose
    descriptions are whole are written anew."""
    for table, row in rows:
        mended = _mended(table, row) if mend else None
        why = "" if mended is not None else complaint(table, row)
        if why:
            damage.add(table, row.get(seals.KEYS.get(table, "id")), why)
        else:
            yield table, codec.sealed(table, mended or row)


def complaint(table: str, row: Mapping[str, Any]) -> str:
    """Why a row cannot be used; empty where it can."""
    try:
        if not seals.is_whole(table, row):
            return "its checksum does not fit"
        for name in _JSON.get(table, ()):
            json.loads(row[name])
        if table == "records":
            Status(row["status"])
            Mark(row["mark"])
        elif table == "tasks":
            key = Task.from_json(json.loads(row["json"])).key
            return "" if key == row["key"] else f"it is the task {key}"
        elif table == "targets":
            Target.from_json(json.loads(row["json"]))
        seals.seal_of(table, row)
    except codec.UNREADABLE as error:
        return codec.complaint(error)
    return ""


def _mended(table: str, row: Row) -> Row | None:
    """A damaged task or target as its own description, which its key is a digest of, tells."""
    try:
        if table == "tasks" and not seals.is_whole(table, row):
            task = Task.from_json(json.loads(row["json"]))
            if task.key == row["key"]:
                return codec.row_of_task(task, task_flops(task))
        if table == "targets" and not seals.is_whole(table, row):
            digest = hashlib.sha256(row["json"].encode()).hexdigest()[:16]
            if digest == row["digest"]:
                own = codec.target_row(Target.from_json(json.loads(row["json"])))
                return own if own["digest"] == digest else None
    except codec.UNREADABLE:
        pass
    return None


# ---------------------------------------------------------------------------------- reading a file


def file_rows(path: Path, damage: Damage) -> Iterator[tuple[str, Row]]:
    """Every row of a log's file, as (table, row), some more than once; what is wrong with the file
    itself is added to the damage."""
    trouble = files.trouble(path, most=None)
    for text in trouble:
        damage.add(_FILE, "", text)
    try:
        with contextlib.closing(files.connect(path, write=False)) as connection:
            for table in seals.COLUMNS:
                yield from ((table, row) for row in _read(connection, table))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        trouble = [str(error)]
        damage.add(_FILE, "", str(error))
    if trouble:
        for number, values in pages.rows(path):
            found = _named(number, values)
            if found is not None:
                yield found


def _read(connection: sqlite3.Connection, table: str) -> Iterator[Row]:
    """The rows in the order of their numbers."""
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if there is None:
        return
    statement = f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT ?"
    last = -(2**63)
    while True:
        cursor = connection.execute(statement, (last, _BATCH))
        names = [column[0] for column in cursor.description][1:]
        rows = cursor.fetchall()
        for row in rows:
            yield _filled(table, dict(zip(names, row[1:], strict=True)))
        if len(rows) < _BATCH or rows[-1][0] <= last:
            return
        last = rows[-1][0]


def _filled(table: str, row: Row) -> Row:
    """With what a release that did not have all of the columns left unsaid."""
    if table == "records":
        row = {"origin": "", "mark": 0, "conditions": "", **row}
    return {"seal": None, **row}


def _named(number: int, values: list[Any]) -> tuple[str, Row] | None:
    """A row of pages by the table that it is of: one whose seal fits is. Of older releases only
    what compiling needs is told apart."""
    for table, columns in seals.COLUMNS.items():
        numbered = table not in seals.KEYS
        names = list(METADATA.tables[table].c.keys())
        if len(values) == len(names) and isinstance(values[-1], int):
            row = _typed(table, dict(zip(names, values, strict=True)))
            if numbered:
                row["id"] = number
            if seals.is_whole(table, row):
                return table, row
        elif table in ("tasks", "targets", "records") and not numbered | (
            len(values) != len(columns)
        ):
            row = _filled(table, dict(zip(columns, values, strict=True)))
            if not complaint(table, row):
                return table, row
    if _FIRST_VERSION_COLUMNS <= len(values) < len(METADATA.tables["records"].c):
        names = list(METADATA.tables["records"].c.keys())
        row = _filled("records", dict(zip(names, values, strict=False)) | {"id": number})
        if not complaint("records", _typed("records", row)):
            return "records", row
    return None


def _typed(table: str, row: Row) -> Row:
    """The file keeps a whole number as one, whatever its column's type."""
    for name in seals.FLOATS.get(table, ()):
        if isinstance(row[name], int):
            row[name] = float(row[name])
    return row


# ------------------------------------------------------------------------------- writing a new one


def _insert(connection: sqlite3.Connection, table: str, row: Row) -> None:
    names = [c.name for c in METADATA.tables[table].columns if c.name in row]
    places = ", ".join("?" * len(names))
    quoted = ", ".join(f'"{name}"' for name in names)
    statement = f"INSERT OR IGNORE INTO {table} ({quoted}) VALUES ({places})"
    connection.execute(statement, [row[name] for name in names])


def _find_targets(connection: sqlite3.Connection) -> None:
    """Records of a lost target are kept where it is known from elsewhere: from what a device said
    of itself, or as this machine."""
    orphans = _ORPHANS.format(table="targets", key="digest", column="target")
    lost = {digest for (digest,) in connection.execute(f"SELECT DISTINCT r.target {orphans}")}
    if not lost:
        return
    for target in _known_targets(connection):
        if codec.target_digest(target) in lost:
            _insert(connection, "targets", codec.target_row(target))


def _known_targets(connection: sqlite3.Connection) -> Iterator[Target]:
    here = load_target("cpu")
    known = [here, *(load_target("cpu", n + 1) for n in range(here.cores))]
    for (text,) in connection.execute("SELECT json FROM profiles").fetchall():
        with contextlib.suppress(*codec.UNREADABLE):
            known.append(DeviceProfile.from_json(json.loads(text)).target)
    for target in known:
        for accuracy in ACCURACIES:
            for precision in ("float32", "bfloat16", "int8"):
                with contextlib.suppress(*codec.UNREADABLE):
                    yield dataclasses.replace(target, accuracy=accuracy, precision=precision)


def _drop_orphans(connection: sqlite3.Connection, damage: Damage) -> None:
    """Records whose task or target is lost say nothing any more."""
    for table, column in (("tasks", "task_key"), ("targets", "target")):
        orphans = _ORPHANS.format(table=table, key=seals.KEYS[table], column=column)
        rows = connection.execute(f"SELECT r.id, r.{column} {orphans}").fetchall()
        for number, key in rows:
            damage.add("records", number, f"its {table[:-1]} {key} is lost")
        connection.executemany("DELETE FROM records WHERE id = ?", [(n,) for n, _ in rows])
