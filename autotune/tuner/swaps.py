"""Candidates swapped in the whole model. In: a run's model, device and log. Out: the log, whose
fastest records of heavy tasks are those with which whole runs are fastest.

A task is timed under the conditions of its model as far as these are known; what its candidates
leave of the caches to other tasks, only the model shows. So the model is compiled with the best
candidates, and again with the second ones of its heaviest tasks; both are run in turns, kernel by
kernel. Of tasks that gained, the second ones are taken if whole runs are then faster; the same
with the third ones. Each step leaves a log that is no worse: it may end after any.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from autotune.compiler.driver import compile_prepared
from autotune.db.types import LogStore, Record
from autotune.errors import AutotuneError
from autotune.measure.runners.local import LocalRunner
from autotune.placement.types import Partition
from autotune.runtime.image import ModelImage
from autotune.runtime.latency import Latencies, kernel_times, latencies
from autotune.target import Target
from autotune.tuner.end_to_end import FEW_TRIALS, EndToEnd
from autotune.tuner.report import TuneReport
from autotune.types import Task

CANDIDATES = 3
"""The fastest of a task that are tried in the model, at most (chosen, as all constants here)."""
HEAVIEST = 10
"""Tasks whose candidates are tried."""
CLOSE = 1.2
"""Time of a candidate over that of the fastest, up to which the model may decide otherwise."""
GAIN = 0.98
"""Time of a kernel in the model over that of the one it replaces, from which that is tried."""
SHARE = 0.1
"""Share of a run's time limit that swapping may take."""
UNLIMITED_S = 60.0
"""Seconds that it may take where there is no limit."""

Timer = Callable[[Iterable[ModelImage], Sequence[int]], Latencies]
"""Images and cores to seconds: of whole runs of each, or of its kernels."""
Choice = Mapping[str, Record]
"""Task keys to records that are taken instead of the log's best ones."""


@dataclass(frozen=True, slots=True)
class SwappedLog:
    """A log some of whose tasks have another best record; to compile with."""

    store: LogStore
    taken: Choice

    def best(self, task_key: str, target: Target) -> Record | None:
        return self.taken.get(task_key) or self.store.best(task_key, target)

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


def allowed_s(whole: EndToEnd) -> float:
    """Seconds that are set aside for swaps; 0 where not even one fits, or no model can be run."""
    limit_s = whole.options.limits.asked_s
    allowed = UNLIMITED_S if limit_s is None else SHARE * limit_s
    able = isinstance(whole.runner, LocalRunner) and not whole.options.dry_run
    return allowed if able and allowed >= 2 * whole.cost_s else 0.0


def swap(
    whole: EndToEnd, partition: Partition, report: TuneReport, *,
    kernels: Timer = kernel_times, runs: Timer = latencies,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Task, ...]:  # fmt: skip
    """Try the candidates; gives the tasks whose best record is another one now. `report`: of the
    run until here."""
    if not allowed_s(whole) or report.measured < FEW_TRIALS or report.after_s is None:
        return ()
    ends_s = clock() + allowed_s(whole) - 2 * whole.cost_s
    found = _candidates(whole, partition)
    swaps = _Swaps(whole=whole, partition=partition, kernels=kernels, runs=runs)
    for place in range(1, CANDIDATES):
        trial = {key: records[place] for key, records in found.items() if place < len(records)}
        if not trial or clock() > ends_s:
            break
        try:
            swaps.attempt(trial)
        except AutotuneError:  # what cannot be run as a whole is not judged
            break
    return swaps.keep()


def _candidates(whole: EndToEnd, partition: Partition) -> dict[str, Sequence[Record]]:
    """By task key, the fastest records of the heaviest tasks, where there are several."""
    store, target = whole.store, whole.options.target
    found = {}
    for task, weight in partition.weights().items():
        top = store.top(task.key, target, CANDIDATES)
        if len(top) > 1:
            limit_s = CLOSE * top[0].result.median_s
            near = [r for r in top if r.result.median_s <= limit_s]
            found[task.key] = (weight * top[0].result.median_s, near)
    heaviest = sorted(found, key=lambda key: -found[key][0])[:HEAVIEST]
    return {key: found[key][1] for key in heaviest}


@dataclass(slots=True, kw_only=True)
class _Swaps:
    """The swaps until now: records taken instead of the best, and what was judged on the way."""

    whole: EndToEnd
    partition: Partition
    kernels: Timer
    runs: Timer
    taken: dict[str, Record] = dataclasses.field(default_factory=dict)
    judged: dict[str, dict[str, tuple[Record, float]]] = dataclasses.field(default_factory=dict)
    """By task key and schedule, records and their seconds in the model."""

    def attempt(self, trial: Choice) -> None:
        """Take those of a trial with which the model is faster."""
        cores = self._cores()
        now, then = self.kernels(self._images({}, trial), cores)
        now_s, then_s = self._by_task(now), self._by_task(then)
        better = {k: r for k, r in trial.items() if then_s[k] < GAIN * now_s[k]}
        if not better:
            return
        before, after = self.runs(self._images({}, better), cores)
        if statistics.median(after) >= statistics.median(before):
            return
        for key, record in better.items():
            former = self.taken.get(key) or self.whole.store.best(key, record.target)
            for one, seconds in ((former, now_s[key]), (record, then_s[key])):
                if one is not None:
                    self.judged.setdefault(key, {})[str(one.schedule)] = (one, seconds)
        self.taken |= better

    def keep(self) -> tuple[Task, ...]:
        """Let the log say of the records that were judged what they take in the model."""
        again = [
            dataclasses.replace(
                record, result=dataclasses.replace(record.result, times_s=(seconds,)),
                created="", id=None,
            )
            for records in self.judged.values()
            for record, seconds in records.values()
        ]  # fmt: skip
        self.whole.store.repeat(again)
        return tuple(t for t in self.partition.weights() if t.key in self.taken)

    def _cores(self) -> Sequence[int]:
        assert isinstance(self.whole.runner, LocalRunner)
        return self.whole.runner.timing_cores

    def _images(self, *changes: Choice) -> Iterable[ModelImage]:
        """The model with what is taken until now and each of these changes."""
        target = self.whole.options.target
        here = dataclasses.replace(self.whole.runner.profile(), target=target)
        for change in changes:
            log = cast(LogStore, SwappedLog(self.whole.store, {**self.taken, **change}))
            known = self.whole.built
            yield compile_prepared(self.whole.graph, target, log, known=known, profile=here)[0]

    def _by_task(self, kernels: Sequence[float]) -> dict[str, float]:
        """Mean seconds of a task's calls. Raises AutotuneError where other kernels were run."""
        calls = self.partition.calls
        if len(kernels) != len(calls):
            raise AutotuneError("other layouts make other kernels")
        found: dict[str, list[float]] = {}
        for call, seconds in zip(calls, kernels, strict=True):
            found.setdefault(call.task.key, []).append(seconds)
        return {key: statistics.fmean(times) for key, times in found.items()}
