"""The cost of a trial, and the share of tasks' gains that a whole model keeps. In: the tasks of a
run, the log, where candidates are measured. Out: seconds a trial of each task; a share.

The constants are of tuning resnet18, mobilenetv2, minilm and resnet50 with an empty log, one core
that builds and one that times. What a log knows counts more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from autotune.db.latencies import kept
from autotune.db.store import TuningLog
from autotune.db.types import LogStore, Record
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import Runner, Status
from autotune.target import Target
from autotune.tuner.task_run import TaskRun

_BUILD_S = 0.045
"""Building a candidate (measured: 9 to 55 ms)."""
_CHECK_S = 0.013
"""Checking a candidate's results, and what timing takes however fast the kernel is."""
_TIMING = 1.67
"""Timing a kernel of t seconds takes about this times sqrt(t): slow ones get fewer calls."""
_BETWEEN_S = 0.01
"""Learning and choosing, by trial (measured: 25 ms with what measuring the fastest again at the
end takes, which is some 100 trials for 600)."""
_SIMILAR = 4
"""Fastest records of the nearest tasks by which a task without records is judged."""
_SURVIVING = 0.4
"""Share of what the sum of kernels gains that the model gains: a kernel's best time is its
luckiest too. Where sums gained 5.1, 5.8, 2.9 and 5.3 %, models gained 2.9, 4.7, 0 and 0.5 %."""
_SURE = 0.15
"""Gains of sums that count as much as that constant."""


def trial_costs_s(runs: Sequence[TaskRun], store: LogStore, runner: Runner) -> tuple[float, ...]:
    """Seconds that a trial of each task takes, with its part of what is done between trials."""
    return tuple(_trial_s(run, _similar(run, store), runner) for run in runs)


def surviving(store: LogStore, target: Target) -> float:
    """The part of the gain of the kernels' sum that shows in the model's latency, as measured at
    the end of earlier runs, whatever their models."""
    found = kept(store, None, target.key) if isinstance(store, TuningLog) else []
    models, sums = _SURVIVING * _SURE, _SURE
    for latency in found:
        if latency.kernels_before_s and latency.kernels_after_s and not latency.origin:
            models += 1 - min(latency.after) / min(latency.before)
            sums += max(0.0, 1 - latency.kernels_after_s / latency.kernels_before_s)
    return min(1.0, max(0.0, models / sums))


def _similar(run: TaskRun, store: LogStore) -> Sequence[Record]:
    """Records of this task, or else of tasks like it, that this device measured."""
    found = run.worked or store.nearest(run.task, run.target, _SIMILAR)
    device = run.subject.profile.device
    worked = [r for r in found if r.result.status is Status.OK]
    return [r for r in worked if r.result.device == device and r.target == run.target]


def _trial_s(run: TaskRun, known: Sequence[Record], runner: Runner) -> float:
    build_s, off = _BUILD_S, 1.0
    if known:
        build_s = statistics.median(r.result.build_s for r in known)
        off = statistics.median(r.result.run_s / _run_s(r.result.median_s) for r in known)
    run_s = off * _run_s(run.guess_s if run.best_s is None else run.best_s)
    return _together_s(build_s, run_s, runner) + _BETWEEN_S


def _run_s(kernel_s: float) -> float:
    return _CHECK_S + _TIMING * math.sqrt(kernel_s)


def _together_s(build_s: float, run_s: float, runner: Runner) -> float:
    """Building goes on while candidates are timed, unless it would be on the same cores."""
    if isinstance(runner, LocalRunner) and set(runner.spare_cores) & set(runner.timing_cores):
        return build_s / len(runner.spare_cores) + run_s
    return max(build_s, run_s)
