"""Times of tasks in the layouts that their values could have. In: a layout problem, a runner, a
log. Out: records of default schedules, from which layouts are chosen before the tuning.
"""

from __future__ import annotations

from autotune.db.types import Record, Store
from autotune.graph.plan import task_flops
from autotune.layouts.choose import Choice, choose
from autotune.layouts.problem import LayoutProblem
from autotune.measure.types import MeasureRequest, Runner, Status
from autotune.tuner.budget import Limits
from autotune.tuner.options import TuneOptions
from search_spaces.rules import rule_for

_SHARE = 4
"""Of a run's trials or time, one part in so many may go to layouts."""
_TRIAL_S = 0.5


def measured_choice(
    problem: LayoutProblem, runner: Runner, store: Store, options: TuneOptions
) -> Choice:
    """The problem's layouts, by times where the run is long enough to measure them."""
    if not options.dry_run:
        measure_layouts(problem, runner, store, options)
    return choose(problem, options.target, store)


def measure_layouts(
    problem: LayoutProblem, runner: Runner, store: Store, options: TuneOptions
) -> int:
    """Measure and log the default schedule of every task of the problem without a record, if all
    of them are a small part of the run: times of some say little. Returns how many there were."""
    target = options.target
    fresh = [t for t in problem.tasks() if not store.records(t.key, target)]
    if not fresh or len(fresh) > _affordable(options.limits):
        return 0
    rules = [rule_for(task, target) for task in fresh]
    configs = [rule.default(task, target) for rule, task in zip(rules, fresh, strict=True)]
    requests = tuple(
        MeasureRequest(
            task=task,
            schedule=rule.schedule(task, target, config),
            target=target,
            timing=options.timing,
            seed=options.seed,
        )
        for task, rule, config in zip(fresh, rules, configs, strict=True)
    )
    results = runner.measure(requests)
    store.append(
        Record(
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
        for request, rule, config, result in zip(requests, rules, configs, results, strict=True)
        if result.status is not Status.DEVICE_LOST
    )
    return len(requests)


def _affordable(limits: Limits) -> float:
    """Trials that layouts may take."""
    some = [float("inf")]
    if limits.trials is not None:
        some.append(limits.trials / _SHARE)
    if limits.time_s is not None:
        some.append(limits.time_s / _TRIAL_S / _SHARE)
    return min(some)
