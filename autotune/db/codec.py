"""Records as rows and back. In: a Record. Out: one row each for tasks, targets and records."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from typing import Any

from autotune.db import query
from autotune.db.types import Mark, Record
from autotune.errors import LogError, ScheduleError
from autotune.measure.types import MeasureResult, Status
from autotune.schedule import schedule_from_json, schedule_to_json
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config

Values = dict[str, Any]


_COMPACT = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def to_text(value: Any) -> str:
    """Compact JSON, keys in the order given: the order of a config's params matters."""
    return _COMPACT.encode(value)


@functools.lru_cache(maxsize=64)
def target_digest(target: Target) -> str:
    """Names the exact description; targets of one key may differ in name, cores and caches."""
    return hashlib.sha256(to_text(target.to_json()).encode()).hexdigest()[:16]


def task_row(record: Record) -> Values:
    task = record.task.to_json()
    return {
        "key": record.task.key,
        "op": record.task.op,
        "flops": record.flops,
        "description": query.describe(task),
        "json": to_text(task),
    }


def target_row(target: Target) -> Values:
    return {
        "digest": target_digest(target),
        "key": target.key,
        "family": target.family,
        "name": target.name,
        "json": to_text(target.to_json()),
    }


def record_row(record: Record, now: str) -> Values:
    """The record's own row; `now` is its time stamp if it has none."""
    result = record.result
    median = result.median_s
    return {
        "task_key": record.task.key,
        "target_key": record.target.key,
        "target": target_digest(record.target),
        "device": result.device,
        "rule": record.rule,
        "config": to_text(record.config.to_json()),
        "schedule": to_text(schedule_to_json(record.schedule)),
        "status": str(result.status),
        "times": to_text(result.times_s),
        "median_s": median if math.isfinite(median) else None,
        "calibration_s": result.calibration_s,
        "build_s": result.build_s,
        "run_s": result.run_s,
        "max_error": result.max_error if math.isfinite(result.max_error) else None,
        "error": result.error,
        "seed": record.seed,
        "model": record.model,
        "versions": to_text(dict(record.versions)),
        "created": record.created or now,
        "origin": record.origin,
        "mark": int(record.mark),
        "conditions": result.conditions,
    }


class Parsed:
    """Tasks and targets by their JSON text, each parsed once: thousands of records share them."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._targets: dict[str, Target] = {}

    def task(self, text: str) -> Task:
        if text not in self._tasks:
            self._tasks[text] = Task.from_json(json.loads(text))
        return self._tasks[text]

    def target(self, text: str) -> Target:
        if text not in self._targets:
            self._targets[text] = Target.from_json(json.loads(text))
        return self._targets[text]


def record_from_row(row: Any, log: str, parsed: Parsed) -> Record:
    """The Record of a row of records joined with its task's and target's JSON and the flops.

    Raises LogError where a schedule uses a step that this release does not have."""
    try:
        schedule = schedule_from_json(json.loads(row.schedule))
    except ScheduleError as error:
        raise LogError(
            f"tuning log {log}: record {row.id}: {error}; it was written by another release: "
            "upgrade autotune or give another --log"
        ) from None
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
        task=parsed.task(row.task_json),
        target=parsed.target(row.target_json),
        rule=row.rule,
        config=Config.from_json(json.loads(row.config)),
        schedule=schedule,
        result=result,
        seed=row.seed,
        flops=row.flops,
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
