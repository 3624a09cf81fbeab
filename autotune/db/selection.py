"""Selection of records. In: a Selection. Out: SQL conditions and their parameters.

The text is what SQLite and PostgreSQL both take; standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from autotune.errors import LogError
from autotune.op_names import logged_op
from autotune.parse_int import whole

Row = Sequence[Any]
Execute = Callable[[str, Mapping[str, Any]], Iterable[Row]]
"""Runs a statement with named parameters."""
OnDamaged = Callable[[str, Any, str], object]
"""Told the table and key of a row that cannot be read, and why."""


class Selection(NamedTuple):
    """Filters of records; all of them must hold, None holds always."""

    task_keys: Sequence[str] | None = None
    op: str | None = None
    shape: tuple[int | None, ...] | None = None
    """The shape of any input, constant or output of the task; None is any extent."""
    target: str | None = None
    """A target's name, key or family."""
    target_keys: Sequence[str] | None = None
    accuracy: str | None = None
    """The target's accuracy: normal or strict."""
    precision: str | None = None
    """The target's precision: float32, bfloat16 or int8."""
    device: str | None = None
    since: str | None = None
    """Measured at this moment or later; see `moment`."""
    until: str | None = None
    """Measured before this moment."""


ALL = Selection()


def moment(text: str, *, end: bool = False) -> str:
    """A date, or a date and time, in the form that records have: ISO 8601 in UTC, to the second.
    `end`: a date alone means its end. Raises LogError."""
    import datetime

    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise LogError(
            f"expected a date like 2026-01-31 or 2026-01-31T12:00, got {text!r}"
        ) from None
    if end and len(text) <= len("2026-01-31"):
        when += datetime.timedelta(days=1)
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return when.astimezone(datetime.UTC).isoformat(timespec="seconds")


def parse_shape(text: str) -> tuple[int | None, ...]:
    """'1x56x*x64' as (1, 56, None, 64). Raises LogError."""
    extents = text.lower().split("x")
    if not all(e == "*" or whole(e) is not None for e in extents):
        raise LogError(f"expected a shape like 1x56x56x64 or 1x*x*x64, got {text!r}")
    return tuple(whole(e) for e in extents)


def resolve(execute: Execute, selection: Selection, damaged: OnDamaged | None = None) -> Selection:
    """The same selection with its shape, accuracy and precision replaced by the keys of the tasks
    and targets that have them; `damaged` is told of those that cannot be
    read."""
    damaged = damaged or _ignore
    return _resolve_targets(execute, _resolve_shape(execute, selection, damaged), damaged)


def _ignore(table: str, key: Any, why: str) -> None:
    del table, key, why


def _resolve_targets(execute: Execute, selection: Selection, damaged: OnDamaged) -> Selection:
    if selection.accuracy is None and selection.precision is None:
        return selection
    rows = execute("SELECT key, json FROM targets", {})
    keys = _having(rows, "targets", damaged, lambda data: has_numerics(data, selection))
    if selection.target_keys is not None:
        keys &= set(selection.target_keys)
    return selection._replace(target_keys=sorted(keys), accuracy=None, precision=None)


def has_numerics(target: Mapping[str, Any], wanted: Selection) -> bool:
    """Whether a target's JSON is of the accuracy and the precision."""
    return wanted.accuracy in (None, target.get("accuracy", "normal")) and wanted.precision in (
        None,
        target.get("precision", "float32"),
    )


def _resolve_shape(execute: Execute, selection: Selection, damaged: OnDamaged) -> Selection:
    if selection.shape is None:
        return selection
    wanted = selection.shape
    params = {} if selection.op is None else {"op": logged_op(selection.op)}
    where = "" if selection.op is None else "WHERE op = :op"
    rows = execute(f"SELECT key, json FROM tasks {where}", params)
    keys = _having(rows, "tasks", damaged, lambda data: has_shape(data, wanted))
    if selection.task_keys is not None:
        keys &= set(selection.task_keys)
    return selection._replace(task_keys=sorted(keys), shape=None)


def _having(
    rows: Iterable[Row], table: str, damaged: OnDamaged, wanted: Callable[[Any], bool]
) -> set[str]:
    """Keys of the rows whose JSON is wanted."""
    keys = set()
    for key, text in rows:
        try:
            if wanted(json.loads(text)):
                keys.add(key)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            damaged(table, key, f"unreadable ({type(error).__name__}: {error})")
    return keys


def has_shape(task: Mapping[str, Any], wanted: tuple[int | None, ...]) -> bool:
    """Whether an input, constant or output of a task's JSON has this shape."""
    shapes = (v["shape"] for v in task["values"] if v["role"] != "local")
    return any(
        len(shape) == len(wanted)
        and all(w is None or w == extent for w, extent in zip(wanted, shape, strict=True))
        for shape in shapes
    )


def task_conditions(selection: Selection, alias: str) -> tuple[str, dict[str, Any]]:
    """Conditions on a row of tasks, joined by AND; `resolve` comes first."""
    where, params = ["1 = 1"], dict[str, Any]()
    if selection.op is not None:
        where.append(f"{alias}.op = :op")
        params["op"] = logged_op(selection.op)
    if selection.task_keys is not None:
        values, named = _listed("key", selection.task_keys)
        where.append(f"{alias}.key IN ({values})")
        params |= named
    return " AND ".join(where), params


def _listed(name: str, values: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The values as parameters, for IN."""
    named = {f"{name}{i}": value for i, value in enumerate(values)}
    return ", ".join(f":{n}" for n in named) or "NULL", named


def target_keys(selection: Selection) -> tuple[str, dict[str, Any]]:
    """A SELECT of the keys of the selected targets."""
    where, params = ["1 = 1"], dict[str, Any]()
    if selection.target is not None:
        where.append("(name = :target OR key = :target OR family = :target)")
        params["target"] = selection.target
    if selection.target_keys is not None:
        values, named = _listed("on", selection.target_keys)
        where.append(f"key IN ({values})")
        params |= named
    return f"SELECT DISTINCT key FROM targets WHERE {' AND '.join(where)}", params


def record_conditions(selection: Selection, alias: str) -> tuple[str, dict[str, Any]]:
    """Conditions on a row of records by itself: device and time."""
    columns = {"device": "device =", "since": "created >=", "until": "created <"}
    params = {n: v for n in columns if (v := getattr(selection, n)) is not None}
    return " AND ".join(["1 = 1", *(f"{alias}.{columns[n]} :{n}" for n in params)]), params


def conditions(selection: Selection, alias: str) -> tuple[str, dict[str, Any]]:
    """All conditions, on a row of records."""
    tasks, params = task_conditions(selection, "t")
    records, more = record_conditions(selection, alias)
    where = [records]
    if selection.op is not None or selection.task_keys is not None:
        where.append(f"{alias}.task_key IN (SELECT t.key FROM tasks t WHERE {tasks})")
    if selection.target is not None or selection.target_keys is not None:
        keys, names = target_keys(selection)
        where.append(f"{alias}.target_key IN ({keys})")
        more |= names
    return " AND ".join(where), params | more
