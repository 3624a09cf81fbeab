"""What users ask of a log. In: a Selection. Out: the best records of every task, as plain dicts.

The statements are text that SQLite and PostgreSQL take, and nothing here imports more than the
standard library: `autotune query` on a file answers in milliseconds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.db import files, selection
from autotune.db.selection import ALL, Execute, Row, Selection
from autotune.errors import LogError

_COLUMNS = (
    "r.id, r.task_key, t.op, t.flops, t.json, r.target_key, r.device, r.rule, r.config, "
    "r.median_s, r.status, r.model, r.created, r.origin"
)
_COUNTS = "b.status = 'OK' AND b.mark = 0"
"""What the index finds: measured here, and it worked."""

Found = list[dict[str, Any]]


def best_records(
    execute: Execute, wanted: Selection = ALL, *, top: int = 1, lateral: bool = False
) -> Found:
    """Fastest `top` OK records of every matching task on every matching target.

    Ordered by task: the one whose best record takes longest comes first. `lateral`: the database
    has LATERAL joins (PostgreSQL), and finds the way through the index by them only.
    """
    if top < 1:
        raise LogError(f"the number of records per task must be at least 1, got {top}")
    wanted = selection.resolve(execute, wanted)
    tasks, params = selection.task_conditions(wanted, "t")
    targets, names = selection.target_keys(wanted)
    records, more = selection.record_conditions(wanted, "b")
    inner = (
        f"FROM records b WHERE b.task_key = t.key AND b.target_key = g.key AND {_COUNTS} "
        f"AND {records} ORDER BY b.median_s, b.id LIMIT :top"
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
    rows = execute(statement, {"top": top, **params, **names, **more})
    return slowest_first([as_dict(row) for row in rows])


def history(execute: Execute, wanted: Selection = ALL) -> Found:
    """Every OK record that was the fastest of its task and target when it was measured, the oldest
    first; the task whose best record takes longest comes first."""
    wanted = selection.resolve(execute, wanted)
    where, params = selection.conditions(wanted, "b")
    before = (
        "MIN(b.median_s) OVER (PARTITION BY b.task_key, b.target_key ORDER BY b.created, b.id "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    statement = (
        f"SELECT {_COLUMNS} FROM (SELECT b.id, b.median_s, {before} AS earlier_s "
        f"FROM records b WHERE {_COUNTS} AND {where}) h "
        "JOIN records r ON r.id = h.id JOIN tasks t ON t.key = r.task_key "
        "WHERE h.earlier_s IS NULL OR h.median_s < h.earlier_s "
        "ORDER BY r.task_key, r.target_key, r.created, r.id"
    )
    return slowest_first([as_dict(row) for row in execute(statement, params)])


def slowest_first(found: Found) -> Found:
    """Tasks by the time of their best record; the order within each is kept."""
    best: dict[str, float] = {}
    for record in found:
        key, median = record["task_key"], record["median_s"]
        best[key] = min(median, best.get(key, median))
    return sorted(found, key=lambda r: (-best[r["task_key"]], r["task_key"], r["target"]))


def query_file(
    path: Path, wanted: Selection = ALL, *, top: int = 1, over_time: bool = False
) -> Found:
    """`best_records`, or with `over_time` the `history`, of a log file; a missing or empty file
    has none. Raises LogError."""
    if not files.exists(path):
        return []
    files.check_header(path)
    try:
        connection = files.connect(path, write=False)
        try:
            if not _is_readable(connection, str(path)):
                return []
            if over_time:
                return history(connection.execute, wanted)
            return best_records(connection.execute, wanted, top=top)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise files.explain(error, str(path)) from None


def _is_readable(connection: sqlite3.Connection, log: str) -> bool:
    """Whether there are tables; LogError unless they are of this release's version."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    version = 0
    if "schema" in tables:
        own = connection.execute("SELECT version FROM schema").fetchone()
        pragma = connection.execute("PRAGMA user_version").fetchone()
        version = max(own[0] if own else 0, pragma[0])
    files.check_version(version, tables, log, files.SCHEMA_VERSION)
    if tables and version < files.SCHEMA_VERSION:
        raise files.outdated(log, version)
    return bool(tables)


def as_dict(row: Row) -> dict[str, Any]:
    """A row of the columns above by name, with what a person wants to see of its task."""
    (
        number,
        key,
        op,
        flops,
        text,
        target,
        device,
        rule,
        config,
        median,
        status,
        model,
        created,
        origin,
    ) = row
    task = json.loads(text)
    return {
        "record": number,
        "task_key": key,
        "op": op,
        "description": describe(task),
        "shapes": {v["name"]: v["shape"] for v in task["values"] if v["role"] != "local"},
        "target": target,
        "device": device,
        "rule": rule,
        "config": json.loads(config),
        "median_s": median,
        "gflops": flops / median / 1e9 if median else None,
        "status": status,
        "model": model,
        "created": created,
        "origin": origin,
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
