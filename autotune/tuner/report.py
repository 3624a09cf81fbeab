"""The outcome of a tuning run, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.db.types import Latency
from autotune.tuner.forecast import Forecast
from autotune.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The outcome of one task."""

    task: Task
    weight: int
    trials: int
    failures: int
    default_s: float | None
    best_s: float | None
    why: str
    """What the budget thought of it at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    """The outcome of a run. Seconds of one run of the model, kernels only."""

    before_s: float | None
    after_s: float | None
    trials: int
    measured: int
    """Trials of this run: without those found in the log."""
    elapsed_s: float
    reason: str
    tasks: tuple[TaskReport, ...] = field(repr=False)
    forecast: Forecast | None = None
    """What a dry run expects; its trials are in the order of `tasks`."""
    layouts: tuple[str, ...] = ()
    """Lines about values that are not dense."""
    latency: Latency | None = None
    """The whole model, measured before and after."""
    no_latency: str = ""
    """Why there is none."""
