"""The record: one trial, as it is kept in the tuning log; and what every log can do."""

from __future__ import annotations

import enum
import os
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autotune import arguments
from autotune.db.selection import ALL, Selection
from autotune.errors import LogError
from autotune.measure.types import MeasureResult
from autotune.schedule.base import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config


class Mark(enum.IntEnum):
    """Whether a record counts. Only OWN ones are ever best. Cost models learn from all but the
    REPEATED ones, each as what its own device measured."""

    OWN = 0
    IMPORTED = 1
    """Measured elsewhere and not yet here."""
    VERIFIED = 2
    """Measured elsewhere; another record is its measurement here."""
    REPEATED = 3
    """Measured again more carefully: the later record of its schedule counts instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measured candidate. The schedule is the truth, the config its provenance."""

    task: Task
    target: Target
    rule: str
    config: Config
    schedule: Schedule
    result: MeasureResult
    seed: int = 0
    flops: int = 0
    model: str = ""
    """Name of the model whose tuning made the record."""
    versions: tuple[tuple[str, str], ...] = ()
    """(component, version) pairs: autotune, llvm, ..."""
    created: str = ""
    """ISO 8601 UTC time stamp; the store fills it in when empty."""
    origin: str = ""
    """The log or file that it, or the record it verifies, was first imported from."""
    mark: Mark = Mark.OWN
    id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Whole runs of a model on a device: at the end of a tuning run, or, where there are none
    `before`, of `bench` on a board. Seconds."""

    model_key: str
    model: str
    target_key: str
    device: str
    before: tuple[float, ...]
    """Seconds of runs with default schedules; none where a board ran one program."""
    after: tuple[float, ...]
    """Seconds of runs with the best schedules."""
    kernels_before_s: float | None
    """The sum of the kernels' times, each measured by itself."""
    kernels_after_s: float | None
    created: str = ""
    origin: str = ""
    """The log or file that it was first imported from."""

    @property
    def before_s(self) -> float | None:
        return statistics.median(self.before) if self.before else None

    @property
    def after_s(self) -> float:
        return statistics.median(self.after)


class LogStore(Protocol):
    """A tuning log. Append-only; safe for one writer and many readers. `TuningLog` is the one
    users open: a path or an SQLAlchemy URL."""

    def append(self, records: Iterable[Record]) -> None: ...

    def repeat(self, records: Iterable[Record]) -> None:
        """Append records that count instead of the earlier ones of their schedules."""
        ...

    def best(self, task_key: str, target: Target) -> Record | None:
        """Fastest OK record of the task on exactly this target key (threads included)."""
        ...

    def top(self, task_key: str, target: Target, count: int) -> Sequence[Record]: ...

    def nearest(
        self, task: Task, target: Target, count: int, *, imported: bool = False, each: int = 1
    ) -> Sequence[Record]:
        """Best OK records of tasks of the same op on targets of the same family, most similar
        shapes first: the `each` fastest of `count` pairs of a task and a target. `imported`: those
        not verified here too, for who measures them himself."""
        ...

    def records(self, task_key: str, target: Target) -> Sequence[Record]:
        """Every record of a task on a target key, failures too, oldest first."""
        ...

    def query(
        self, selection: Selection = ALL, *, top: int = 1, history: bool = False
    ) -> list[dict[str, Any]]:
        """Best `top` records of every matching task as plain dicts (see `autotune query`);
        `history`: all that were the best of their task when they were measured."""
        ...

    def close(self) -> None: ...


def check_log(log: object, methods: Collection[str]) -> None:
    """Raise LogError for what is neither a path, nor a URL, nor a log with these methods."""
    what = "a path, an SQLAlchemy URL or an open log"
    if isinstance(log, str | os.PathLike):
        arguments.place("log", log, what, LogError)
    else:
        arguments.offers("log", log, methods, what, LogError)
