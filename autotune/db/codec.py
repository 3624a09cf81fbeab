"""Records as rows and back. In: a Record. Out: one row each for tasks, targets and records."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from autotune.db import query, seals
from autotune.db.damage import Damage, shown
from autotune.db.types import Mark, Record
from autotune.errors import AutotuneError, LogError, ScheduleError
from autotune.measure.types import MeasureResult, Status
from autotune.op_names import logged_op
from autotune.schedule.base import Schedule, schedule_from_json, schedule_to_json, spellings
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config

Values = dict[str, Any]
_Parsed = TypeVar("_Parsed", Task, Target)


_COMPACT = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def _encoder() -> Callable[[Any], str]:
    """What `_COMPACT.encode` makes anew for every value, made once: half of the time of a short
    one. An interpreter without it does without."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _COMPACT.encode
    escaped = json.encoder.encode_basestring_ascii
    chunks = make(None, _COMPACT.default, escaped, None, ":", ",", False, False, True)
    return lambda value: "".join(chunks(value, 0))


_encode = _encoder()


def to_text(value: Any) -> str:
    """Compact JSON, keys in the order given: the order of a config's params matters."""
    return _encode(value)


@functools.lru_cache(maxsize=64)
def _text_of_versions(versions: tuple[tuple[str, str], ...]) -> str:
    return to_text(dict(versions))


@functools.lru_cache(maxsize=64)
def target_digest(target: Target) -> str:
    """Names the exact description; targets of one key may differ in name, cores and caches."""
    return hashlib.sha256(to_text(target.to_json()).encode()).hexdigest()[:16]


UNREADABLE = (AutotuneError, ValueError, KeyError, TypeError, AttributeError, OverflowError,
              IndexError, RecursionError)  # fmt: skip
"""What values raise that are no task, target or record, whichever of their parts is none."""


def sealed(table: str, row: Values) -> Values:
    """The row with its seal."""
    row["seal"] = seals.seal_of(table, row)
    return row


def row_of(table: str, value: object, **given: Any) -> Values:
    """The sealed row of a value whose fields are the table's columns, but for those given; numbers
    are of the types that the database gives back."""
    floats, row = seals.FLOATS.get(table, ()), dict[str, Any](given)
    for name in seals.COLUMNS[table]:
        if name not in given:
            found = getattr(value, name)
            plain = found is None or isinstance(found, str)
            row[name] = found if plain else float(found) if name in floats else int(found)
    return sealed(table, row)


def task_row(record: Record) -> Values:
    return row_of_task(record.task, record.flops)


def row_of_task(task: Task, flops: int) -> Values:
    data = task.to_json()
    row = {
        "key": task.key,
        "op": logged_op(task.op),
        "flops": int(flops),
        "description": query.describe(data),
        "json": to_text(data),
    }
    return sealed("tasks", row)


def target_row(target: Target) -> Values:
    row = {
        "digest": target_digest(target),
        "key": target.key,
        "family": target.family,
        "name": target.name,
        "json": to_text(target.to_json()),
    }
    return sealed("targets", row)


def record_row(record: Record, now: str) -> Values:
    """The record's own row; `now` is its time stamp if it has none."""
    result = record.result
    median = result.median_s
    row = {
        "task_key": record.task.key,
        "target_key": record.target.key,
        "target": target_digest(record.target),
        "device": result.device,
        "rule": record.rule,
        "config": to_text(record.config.to_json()),
        "schedule": to_text(schedule_to_json(record.schedule)),
        "status": str(result.status),
        "times": to_text(result.times_s),
        "median_s": float(median) if math.isfinite(median) else None,
        "calibration_s": float(result.calibration_s),
        "build_s": float(result.build_s),
        "run_s": float(result.run_s),
        "max_error": float(result.max_error) if math.isfinite(result.max_error) else None,
        "error": result.error,
        "seed": int(record.seed),
        "model": record.model,
        "versions": _text_of_versions(record.versions),
        "created": record.created or now,
        "origin": record.origin,
        "mark": int(record.mark),
        "conditions": result.conditions,
    }
    return sealed("records", row)


def schedule_texts(schedule: Schedule) -> list[str]:
    """Texts of `records.schedule` that are this schedule: today's and earlier releases'."""
    return [to_text(spelled) for spelled in spellings(schedule)]


class Parsed:
    """Tasks and targets of rows, each parsed and checked once: thousands of records share them.

    One that is damaged is told to `damage`, and is None."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self._tasks: dict[tuple[Any, ...], Task | None] = {}
        self._targets: dict[tuple[Any, ...], Target | None] = {}

    def task(self, row: Values) -> Task | None:
        """The task of a row of `tasks`; None for a damaged one."""
        identity = tuple(row.values())
        if identity not in self._tasks:
            self._tasks[identity] = self._new("tasks", row, Task.from_json)
        return self._tasks[identity]

    def target(self, row: Values) -> Target | None:
        """The target of a row of `targets`; None for a damaged one."""
        identity = tuple(row.values())
        if identity not in self._targets:
            self._targets[identity] = self._new("targets", row, Target.from_json)
        return self._targets[identity]

    def _new(self, table: str, row: Values, parse: Callable[[Any], _Parsed]) -> _Parsed | None:
        key = row[seals.KEYS[table]]
        try:
            found = parse(json.loads(row["json"]))
            if found.key == row["key"] and seals.is_whole(table, row):
                return found
            why = "its checksum does not fit"
        except UNREADABLE as error:
            why = complaint(error)
        self.damage.add(table, key, why if row["json"] is not None else "it is missing")
        return None


def complaint(error: Exception) -> str:
    """Why a row cannot be read, in a few words for one line."""
    return shown(f"unreadable ({type(error).__name__}: {error})")


def record_from_row(row: Any, log: str, parsed: Parsed) -> Record | None:
    """The Record of a row of `store.record_rows`, or None where that, its task or its target is
    damaged, which `parsed` is told.

    Raises LogError where a schedule uses a step that this release does not have."""
    values = row._mapping
    if values["id"] is None or not seals.is_whole("records", values):
        why = "it is missing" if values["id"] is None else "its checksum does not fit"
        parsed.damage.add("records", values.get("found", values["id"]), why)
        return None
    task = parsed.task(part(values, "tasks"))
    target = parsed.target(part(values, "targets"))
    if task is None or target is None:
        return None
    try:
        return _record(row, task, target)
    except ScheduleError as error:
        raise LogError(
            f"tuning log {log}: record {row.id}: {error}; it was written by another release: "
            "upgrade autotune or give another --log"
        ) from None
    except UNREADABLE as error:
        parsed.damage.add("records", row.id, complaint(error))
        return None


def part(values: Mapping[str, Any], table: str) -> Values:
    """The task's or target's own columns in a row of `store.record_rows`."""
    return {name: values[f"{table}_{name}"] for name in (*seals.COLUMNS[table], "seal")}


def _record(row: Any, task: Task, target: Target) -> Record:
    result = MeasureResult(
        status=Status(row.status),
        times_s=tuple(json.loads(row.times)),
        error=row.error,
        build_s=row.build_s,
        run_s=row.run_s,
        calibration_s=row.calibration_s,
        device=row.device,
        conditions=row.conditions,
        max_error=math.inf if row.max_error is None else row.max_error,
    )
    return Record(
        task=task,
        target=target,
        rule=row.rule,
        config=Config.from_json(json.loads(row.config)),
        schedule=schedule_from_json(json.loads(row.schedule)),
        result=result,
        seed=row.seed,
        flops=row.tasks_flops,
        model=row.model,
        versions=tuple(sorted(json.loads(row.versions).items())),
        created=row.created,
        origin=row.origin,
        mark=Mark(row.mark),
        id=row.id,
    )


def distance(a: Task, b: Task) -> float:
    """How unlike two tasks of one op are: the sum of |log2 ratio| of matching extents of the
    heaviest node's tensors, plus one for every attribute that differs, plus a little for every
    fused node more or less; infinity where ranks differ."""
    first, second = a.nodes[a.anchor], b.nodes[b.anchor]
    total = float(len(set(first.attrs) ^ set(second.attrs))) / 2
    total += abs(len(a.nodes) - len(b.nodes)) / 8
    names = zip(first.inputs + first.outputs, second.inputs + second.outputs, strict=False)
    for left, right in names:
        shapes = a.value(left).type.shape, b.value(right).type.shape
        if len(shapes[0]) != len(shapes[1]):
            return math.inf
        for m, n in zip(*shapes, strict=True):
            total += abs(math.log2(max(m, 1)) - math.log2(max(n, 1)))
    return total
