"""Records of tasks that nobody measured."""

from __future__ import annotations

from autotune.db.types import Record
from autotune.machine import Machine
from autotune.measure.types import MeasureResult, Status
from autotune.target import Target
from autotune.types import Task
from cost_model import default_of


def record_of(task: Task, target: Target, seconds: float = 1e-3) -> Record:
    """Of the task's default."""
    rule, config, made = default_of(task, Machine.of(target))
    result = MeasureResult(status=Status.OK, times_s=(seconds,))
    return Record(
        task=task,
        target=target,
        rule=rule.name,
        config=config,
        schedule=made.schedule,
        result=result,
    )
