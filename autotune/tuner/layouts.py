"""Times of tasks in the layouts that their values could have. In: a layout problem, a runner, a
log. Out: records of default schedules, from which layouts are chosen before the tuning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from autotune.db.types import LogStore, Record
from autotune.machine import Machine
from autotune.measure.types import MeasureRequest, MeasureResult, Runner, Status
from autotune.placement.layout_problem import LayoutProblem
from autotune.placement.types import Partition
from autotune.tasks.flops import task_flops
from autotune.tuner.budget import Limits
from autotune.tuner.options import TuneOptions
from autotune.types import Task
from cost_model import default_of

_SHARE = 4
"""One part in so many of a run's trials or time may go to layouts."""
_TRIAL_S = 0.5
"""Seconds of a trial, as far as the limits of a run count it."""


def measure_layouts(
    problem: LayoutProblem, runner: Runner, store: LogStore, options: TuneOptions
) -> int:
    """Measure and log the default schedule of every task of the problem without a record, if all
    of them are a small part of the run: times of some say little. Returns how many there were."""
    return measure_defaults(problem.tasks(), runner, store, options)


def measure_defaults(
    tasks: Iterable[Task], runner: Runner, store: LogStore, options: TuneOptions
) -> int:
    """The same of any tasks."""
    if options.dry_run:
        return 0
    target = options.target
    fresh = [t for t in tasks if not store.records(t.key, target)]
    if not fresh or len(fresh) > _affordable(options.limits):
        return 0
    machine = Machine.of(target, dataclasses.replace(runner.profile(), target=target))
    defaults = [default_of(task, machine) for task in fresh]
    requests = tuple(
        MeasureRequest(
            task=task,
            schedule=made.schedule,
            target=target,
            timing=options.timing,
            seed=options.seed,
        )
        for task, (_, _, made) in zip(fresh, defaults, strict=True)
    )

    def on_result(place: int, result: MeasureResult) -> None:
        if result.status is not Status.DEVICE_LOST:
            request, (rule, config, _) = requests[place], defaults[place]
            record = Record(
                task=request.task,
                target=target,
                rule=rule.name,
                config=config,
                schedule=request.schedule,
                result=result,
                seed=options.seed,
                flops=task_flops(request.task),
                model=options.model,
                versions=options.versions,
            )
            store.append([record])

    runner.measure(requests, on_result)
    return len(requests)


def after_layouts(
    problem: LayoutProblem,
    partition: Partition,
    store: LogStore,
    options: TuneOptions,
    used_s: float,
) -> TuneOptions:
    """The options of the run that is left for the partition's tasks, after layouts took `used_s`
    seconds. What the log has of layouts that were not chosen counts as trials of this model."""
    others = {t.key for t in problem.tasks()} - {t.key for t in partition.weights()}
    used = sum(len(store.records(key, options.target)) for key in sorted(others))
    limits = dataclasses.replace(options.limits.without(used_s), used=used)
    return dataclasses.replace(options, limits=limits)


def _affordable(limits: Limits) -> float:
    """Trials that layouts may take."""
    some = [float("inf")]
    if limits.trials is not None:
        some.append(limits.trials / _SHARE)
    if limits.time_s is not None:
        some.append(limits.time_s / _TRIAL_S / _SHARE)
    return min(some)
