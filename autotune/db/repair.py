"""Damaged logs, listed and mended. In: a log. Out: what is wrong with it; or a log of the rest in
its place, the damaged one beside it.

A file is written anew from what can be read of it. A server's rows that are damaged are moved to
tables of their own (`damaged_records` and so on).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, delete, select, text

from autotune.db import codec, files, seals
from autotune.db.clock import utc_now
from autotune.db.damage import Damage
from autotune.db.lock import WriterLock
from autotune.db.place import wal_of
from autotune.db.rescue import remove
from autotune.db.salvage import complaint, file_rows, salvage, sound_rows
from autotune.db.schema import METADATA
from autotune.db.store import TuningLog
from autotune.errors import LogError

_TOGETHER = 1000
"""Rows of a server read or moved at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """`records` are in the log now; the damaged one is at `backup`."""

    records: int
    damage: Damage
    backup: str


def check(path_or_url: str) -> tuple[int, Damage]:
    """How many records of a log are whole, and what is not. Raises LogError where it is none."""
    name, path = files.shown(path_or_url), files.file_of(path_or_url)
    damage = Damage(name)
    if path is not None:
        _check_there(path)
        rows = _once(file_rows(path, damage))
        whole = sum(table == "records" for table, _ in sound_rows(rows, damage, mend=False))
        if whole or not len(damage):
            _check_ours(path, name, damage)
        return whole, damage
    with TuningLog(path_or_url, read_only=True) as log, log.reading() as connection:
        assert connection is not None
        whole = sum(table == "records" for table, _ in _server_rows(connection, damage))
    return whole, damage


def repair(path_or_url: str) -> Repaired | None:
    """Keep what is whole; None where everything is. Raises LogError where nothing can be kept, or
    another process writes."""
    _, damage = check(path_or_url)
    if not len(damage):
        return None
    path = files.file_of(path_or_url)
    if path is None:
        return _repair_server(path_or_url, damage)
    files.check_writable(path)
    lock = WriterLock(path, utc_now())
    try:
        return _repair_file(path)
    finally:
        lock.release()


def _repair_file(path: Path) -> Repaired:
    damage = Damage(str(path))
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
    try:
        kept = salvage(path, draft, damage)
        if not kept:
            raise LogError(f"tuning log {path}: nothing of it can be read; restore a copy")
        wal_of(draft).unlink(missing_ok=True)
        _flush(draft)
        backup = _beside(path)
        os.link(path, backup)
        wal = wal_of(path)
        if wal.exists():
            wal.rename(wal_of(backup))
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        draft.replace(path)
    except OSError as error:
        raise LogError(f"tuning log {path}: cannot be replaced: {error.strerror}") from None
    finally:
        remove(draft)
    return Repaired(records=kept, damage=damage, backup=str(backup))


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _beside(path: Path) -> Path:
    name, number = f"{path.name}.damaged", 1
    while os.path.lexists(path.with_name(name)):
        number += 1
        name = f"{path.name}.damaged-{number}"
    return path.with_name(name)


def _check_there(path: Path) -> None:
    if not files.exists(path):
        raise files.missing(str(path))
    if path.is_dir() or files.is_text(path) or not os.access(path, os.R_OK):
        files.check_header(path)


def _check_ours(path: Path, name: str, damage: Damage) -> None:
    """Raise LogError for a sound database that is no log, or of a newer release; note what a log
    has lost."""
    if any(row.table == "file" for row in damage.rows()):
        return
    with contextlib.closing(TuningLog(path, read_only=True, missing_ok=True)) as log:
        for text_ in log.damage.take_notes():
            damage.add("file", "", text_)
    del name


def _once(rows: Iterator[tuple[str, codec.Values]]) -> Iterator[tuple[str, codec.Values]]:
    """Each row once, though both ways of reading find it."""
    seen = set[tuple[str, object]]()
    for table, row in rows:
        identity = table, row.get(seals.KEYS.get(table, "id"))
        if identity not in seen:
            seen.add(identity)
            yield table, row


# ------------------------------------------------------------------------------------- of a server


def _server_rows(connection: Connection, damage: Damage) -> Iterator[tuple[str, codec.Values]]:
    """The rows that are whole; the others are added to the damage."""
    for table in METADATA.sorted_tables:
        if table.name not in seals.COLUMNS:
            continue
        rows = connection.execution_options(yield_per=_TOGETHER).execute(select(table))
        for row in rows:
            values = dict(row._mapping)
            why = complaint(table.name, values)
            if why:
                damage.add(table.name, values[seals.KEYS.get(table.name, "id")], why)
            else:
                yield table.name, values


def _repair_server(url: str, damage: Damage) -> Repaired:
    """In one transaction; records go before the tasks and targets that they name."""
    with TuningLog(url) as log, log.writing() as connection:
        for name in reversed([t.name for t in METADATA.sorted_tables if t.name in seals.COLUMNS]):
            keys = [row.key for row in damage.rows() if row.table == name]
            if keys:
                _move(connection, name, keys, damage)
        count = connection.execute(text("SELECT COUNT(*) FROM records")).scalar() or 0
    return Repaired(records=int(count), damage=damage, backup="tables damaged_*")


def _move(connection: Connection, name: str, keys: list[str], damage: Damage) -> None:
    table = METADATA.tables[name]
    key = table.c[seals.KEYS.get(name, "id")]
    wanted = key.in_([k if name in seals.KEYS else int(k) for k in keys])
    if name in seals.KEYS:
        records = METADATA.tables["records"]
        column = records.c["task_key" if name == "tasks" else "target"]
        lost = connection.execute(select(records.c.id).where(column.in_(keys))).scalars().all()
        for number in lost:
            damage.add("records", number, f"its {name[:-1]} is damaged")
        if lost:
            _move(connection, "records", [str(n) for n in lost], damage)
    connection.execute(text(f"CREATE TABLE IF NOT EXISTS damaged_{name} (LIKE {name})"))
    columns = ", ".join(f'"{c.name}"' for c in table.c)
    rows = connection.execute(select(table).where(wanted)).all()
    places = ", ".join(f":{c.name}" for c in table.c)
    insert = text(f"INSERT INTO damaged_{name} ({columns}) VALUES ({places})")
    connection.execute(insert, [dict(row._mapping) for row in rows])
    connection.execute(delete(table).where(wanted))
