"""Queries of a log. In: a Selection. Out: the best records of every task, as plain dicts.

The statements are text that SQLite and PostgreSQL take, and nothing here imports more than the
standard library: `autotune query` on a file answers in milliseconds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from autotune.db import files, seals, selection, state
from autotune.db.damage import Damage
from autotune.db.selection import ALL, Execute, Row, Selection
from autotune.db.wal import LeftBehind
from autotune.errors import LogError

_RECORD_NAMES = ("id", *seals.COLUMNS["records"], "mark", "seal")
_TASK_NAMES = (*seals.COLUMNS["tasks"], "seal")
_COLUMNS = ", ".join([f"r.{n}" for n in _RECORD_NAMES] + [f"t.{n}" for n in _TASK_NAMES])
_COUNTS = "b.status = 'OK' AND b.mark = 0"
"""What the index finds: measured here, and it worked."""

Found = list[dict[str, Any]]


def best_records(
    execute: Execute,
    wanted: Selection = ALL,
    *,
    top: int = 1,
    lateral: bool = False,
    damage: Damage | None = None,
) -> Found:
    """Fastest `top` OK records of every matching task on every matching target.

    Ordered by task: the one whose best record takes longest comes first. `lateral`: the database
    has LATERAL joins (PostgreSQL), and finds the way through the index by them only. Damaged rows
    are left out, and added to `damage`.
    """
    if top < 1:
        raise LogError(f"the number of records per task must be at least 1, got {top}")
    damage = _or_none(damage)
    wanted = selection.resolve(execute, wanted, damage.add)
    tasks, params = selection.task_conditions(wanted, "t")
    targets, names = selection.target_keys(wanted)
    records, more = selection.record_conditions(wanted, "b")

    def rows(without: str) -> Iterable[Row]:
        inner = (
            f"FROM records b WHERE b.task_key = t.key AND b.target_key = g.key AND {_COUNTS} "
            f"AND {records}{without} ORDER BY b.median_s, b.id LIMIT :top"
        )
        join = (
            f"CROSS JOIN LATERAL (SELECT b.* {inner}) r"
            if lateral
            else f"JOIN records r ON r.id IN (SELECT b.id {inner})"
        )
        statement = (
            f"SELECT {_COLUMNS} FROM tasks t CROSS JOIN ({targets}) g {join} "
            f"WHERE {tasks} ORDER BY r.task_key, r.target_key, r.median_s, r.id"
        )
        return execute(statement, {"top": top, **params, **names, **more})

    return slowest_first(_whole(rows, damage))


def history(execute: Execute, wanted: Selection = ALL, *, damage: Damage | None = None) -> Found:
    """Every OK record that was the fastest of its task and target when it was measured, the oldest
    first; the task whose best record takes longest comes first. `damage` as in `best_records`."""
    damage = _or_none(damage)
    wanted = selection.resolve(execute, wanted, damage.add)
    where, params = selection.conditions(wanted, "b")
    before = (
        "MIN(b.median_s) OVER (PARTITION BY b.task_key, b.target_key ORDER BY b.created, b.id "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )

    def rows(without: str) -> Iterable[Row]:
        statement = (
            f"SELECT {_COLUMNS} FROM (SELECT b.id, b.median_s, {before} AS earlier_s "
            f"FROM records b WHERE {_COUNTS} AND {where}{without}) h "
            "JOIN records r ON r.id = h.id JOIN tasks t ON t.key = r.task_key "
            "WHERE h.earlier_s IS NULL OR h.median_s < h.earlier_s "
            "ORDER BY r.task_key, r.target_key, r.created, r.id"
        )
        return execute(statement, params)

    return slowest_first(_whole(rows, damage))


def _or_none(damage: Damage | None) -> Damage:
    return Damage("") if damage is None else damage


def _whole(rows: Callable[[str], Iterable[Row]], damage: Damage) -> Found:
    """The rows as dicts; where records are damaged, those that come without them."""
    bad: set[int] = set()
    while True:
        listed = ", ".join(map(str, sorted(bad)))
        found, worse = [], set[int]()
        for row in rows(f" AND b.id NOT IN ({listed})" if bad else ""):
            record = as_record(row, damage)
            if record is not None:
                found.append(record)
            else:
                worse.add(int(row[0]))
        if worse <= bad:
            return found
        bad |= worse


def as_record(row: Row, damage: Damage) -> dict[str, Any] | None:
    """A row of `_COLUMNS` as a dict; None, and a note, where it is damaged."""
    record = dict(zip(_RECORD_NAMES, row, strict=False))
    task = dict(zip(_TASK_NAMES, row[len(_RECORD_NAMES) :], strict=True))
    for table, key, part in (("records", record["id"], record), ("tasks", task["key"], task)):
        if not damage.is_whole(table, key, part):
            return None
    try:
        return as_dict(record, task)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        damage.add("records", record["id"], f"unreadable ({type(error).__name__}: {error})")
        return None


def slowest_first(found: Found) -> Found:
    """Tasks by the time of their best record; the order within each is kept."""
    best: dict[str, float] = {}
    for record in found:
        key, median = record["task_key"], record["median_s"]
        best[key] = min(median, best.get(key, median))
    return sorted(found, key=lambda r: (-best[r["task_key"]], r["task_key"], r["target"]))


def query_file(
    path: Path,
    wanted: Selection = ALL,
    *,
    top: int = 1,
    over_time: bool = False,
    damage: Damage | None = None,
) -> Found:
    """`best_records`, or with `over_time` the `history`, of a log file; a missing or empty file
    has none. Raises LogError, for a file that only `salvage` can read too."""
    if not files.exists(path):
        return []
    files.check_header(path)
    left = LeftBehind.of(path)
    wrong = files.trouble(path)
    if wrong:
        raise files.damaged(str(path), wrong[0])
    damage = Damage(str(path)) if damage is None else damage
    try:
        connection = files.connect(path, write=False)
        try:
            if not _is_readable(connection, str(path)):
                return []
            small = path.stat().st_size <= files.SMALL_BYTES
            damage.note(state.missing(connection.execute, left, whole=small))
            if over_time:
                return history(connection.execute, wanted, damage=damage)
            return best_records(connection.execute, wanted, top=top, damage=damage)
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise files.explain(error, str(path)) from None


def _is_readable(connection: sqlite3.Connection, log: str) -> bool:
    """Whether there are tables; LogError unless they are of this release's version."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    version = 0
    if "schema" in tables:
        own = connection.execute("SELECT version FROM schema").fetchone()
        pragma = connection.execute("PRAGMA user_version").fetchone()
        version = max(files.number(own[0] if own else 0), files.number(pragma[0]))
    files.check_version(version, tables, log, files.SCHEMA_VERSION)
    if tables and version < files.SCHEMA_VERSION:
        raise files.outdated(log, version)
    return bool(tables)


def as_dict(record: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """A record and its task, rows by name, with what a person wants to see of them."""
    data = json.loads(task["json"])
    median = record["median_s"]
    return {
        "record": record["id"],
        "task_key": record["task_key"],
        "op": task["op"],
        "description": describe(data),
        "shapes": {v["name"]: v["shape"] for v in data["values"] if v["role"] != "local"},
        "target": record["target_key"],
        "device": record["device"],
        "rule": record["rule"],
        "config": json.loads(record["config"]),
        "median_s": median,
        "gflops": task["flops"] / median / 1e9 if median else None,
        "status": record["status"],
        "model": record["model"],
        "created": record["created"],
        "origin": record["origin"],
    }


def describe(task: Mapping[str, Any]) -> str:
    """A task's JSON in a few words: 'conv2d+add+relu 1x56x56x64, 3x3x64x64, 64 -> 1x56x56x64'."""
    ops = "+".join(n["op"] for n in task["nodes"])
    shapes = {
        role: ", ".join(
            "x".join(map(str, v["shape"])) or "1" for v in task["values"] if v["role"] in role
        )
        for role in (("input", "constant"), ("output",))
    }
    return f"{ops} {' -> '.join(shapes.values())}"
