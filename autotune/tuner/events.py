"""Events of a tuning run for its listener: frozen values, enough to draw any display from.

Order of events: Started, then per batch a Round and a TrialDone for each result, then Finished.
Seconds unless said; `before_s` and `now_s` estimate one run of the model (kernels only).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.db.types import Record
from autotune.tuner.budget import Share
from autotune.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """One unique task of the model, and what is known of it before the run."""

    task: Task
    name: str
    """The model's own node names of the first call."""
    weight: int
    flops: int
    rule: str
    peak_flops: float
    """FLOP/s of all threads at their peak."""
    achievable_s: float
    trials: int
    """Trials already in the log."""
    failures: int
    best_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The whole run's figures."""

    trials: int
    """Trials of all tasks, those found in the log included."""
    planned: int | None
    failures: int
    before_s: float | None
    """With default schedules; None until every task has one measured."""
    now_s: float | None
    elapsed_s: float
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    tasks: tuple[TaskInfo, ...]
    device: str
    target: str
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A batch is about to be measured."""

    number: int
    shares: tuple[Share, ...]
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDone:
    """One candidate was measured and logged. Task figures include it."""

    task: int
    """Place in `Started.tasks`."""
    record: Record
    trials: int
    failures: int
    best_s: float | None
    gflops: float
    """GFLOP/s of the best; 0 without one."""
    of_peak: float
    """Direct arithmetic of the best over the device's multiply-add peak; 0 without a best. More
    than 1 where an algorithm does with less arithmetic: an effective rate."""
    achievable_s: float
    """What more trials may reach, as far as is known now."""
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRanking:
    """Quality of the ranking of a task's candidates before this run measured them."""

    task: int
    samples: int
    rank_correlation: float
    top_recall: float
    """Share of the fastest quarter that is in the quarter predicted to be fastest."""
    regret: float
    """How much slower the candidate predicted to be fastest is than the fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A batch was measured: how good the predictions of its tasks have been so far."""

    number: int
    """The round's number."""
    tasks: tuple[TaskRanking, ...]
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    reason: str
    progress: Progress


Event = Started | Round | TrialDone | Ranked | Finished
OnEvent = Callable[[Event], None]
