"""What users ask of a log. In: filters. Out: the best records of every task, as plain dicts.

The statement is text that SQLite and PostgreSQL both take, and nothing here imports more than the
standard library: `autotune query` on a file answers in milliseconds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.db import files
from autotune.errors import LogError

Row = Sequence[Any]
Execute = Callable[[str, Mapping[str, Any]], Iterable[Row]]

_COLUMNS = (
    "r.id, r.task_key, t.op, t.flops, t.json, r.target_key, r.device, r.rule, r.config, "
    "r.median_s, r.status, r.model, r.created"
)


def best_records(
    execute: Execute,
    *,
    task_keys: Sequence[str] | None = None,
    op: str | None = None,
    target: str | None = None,
    top: int = 1,
) -> list[dict[str, Any]]:
    """Fastest `top` OK records of every matching task on every matching target.

    `target` is a target's name, key or family. `execute` runs a statement with named parameters.
    Ordered by task: the one whose best record takes longest comes first.
    """
    if top < 1:
        raise LogError(f"the number of records per task must be at least 1, got {top}")
    params: dict[str, Any] = {"top": top}
    where = ["1 = 1"]
    if op is not None:
        where.append("t.op = :op")
        params["op"] = op
    if task_keys is not None:
        names = [f"key{i}" for i in range(len(task_keys))]
        where.append(f"t.key IN ({', '.join(':' + n for n in names) or 'NULL'})")
        params.update(zip(names, task_keys, strict=True))
    targets = "SELECT DISTINCT key FROM targets"
    if target is not None:
        targets += " WHERE name = :target OR key = :target OR family = :target"
        params["target"] = target
    statement = (
        f"SELECT {_COLUMNS} FROM tasks t CROSS JOIN ({targets}) g JOIN records r ON r.id IN ("
        "SELECT b.id FROM records b WHERE b.task_key = t.key AND b.target_key = g.key "
        "AND b.status = 'OK' ORDER BY b.median_s, b.id LIMIT :top) "
        f"WHERE {' AND '.join(where)} ORDER BY r.task_key, r.target_key, r.median_s, r.id"
    )
    found = [_as_dict(row) for row in execute(statement, params)]
    slowest: dict[str, float] = {}
    for record in found:
        slowest.setdefault(record["task_key"], record["median_s"])
    return sorted(found, key=lambda r: (-slowest[r["task_key"]], r["task_key"], r["target"]))


def query_file(path: Path, **filters: Any) -> list[dict[str, Any]]:
    """`best_records` of a log file; a missing or empty file has none. Raises LogError."""
    if not files.exists(path):
        return []
    files.check_header(path)
    try:
        connection = files.connect(path, write=False)
        try:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
            version = 0
            if "schema" in tables:
                own = connection.execute("SELECT version FROM schema").fetchone()
                pragma = connection.execute("PRAGMA user_version").fetchone()
                version = max(own[0] if own else 0, pragma[0])
            files.check_version(version, tables, str(path), files.SCHEMA_VERSION)
            return best_records(connection.execute, **filters) if tables else []
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise files.explain(error, str(path)) from None


def _as_dict(row: Row) -> dict[str, Any]:
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
