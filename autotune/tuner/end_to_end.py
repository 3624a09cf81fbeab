"""End-to-end latency. In: a run's model, device and log. Out: what the run gained, measured.

The model is compiled twice, with default schedules and with the best ones, mostly of kernels that
the run has built, and both are run in turns. Where that would take too much of a run, or goes
wrong, there is a reason instead: the run's results do not depend on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autotune.compiler.driver import compile_prepared
from autotune.db.latencies import keep, kept, model_key
from autotune.db.store import TuningLog
from autotune.db.types import Latency, LogStore
from autotune.errors import AutotuneError
from autotune.graph.ir import Graph
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import Built, MeasureRequest, Runner
from autotune.placement.types import Partition
from autotune.runtime.image import ModelImage
from autotune.runtime.latency import TURN_S, TURNS, Latencies, latencies
from autotune.schedule.base import Schedule
from autotune.tuner.forecast import Forecast
from autotune.tuner.options import TuneOptions
from autotune.tuner.report import TuneReport
from autotune.types import Task

SHARE = 0.025
"""Share of a run's time limit that timing the whole model may take."""
FEW_TRIALS = 32
"""Trials since the model was timed last: fewer than these are over in seconds."""
_START_S = 0.7
"""Seconds until the process that runs the models does so."""
_LOADED_BYTES_PER_S = 50e6
"""Bytes per second of weights that are packed, handed over and read."""
_BUILD_S = 0.1
"""Seconds to build a kernel that the run will not have built."""

Timer = Callable[[Iterable[ModelImage], Sequence[int]], Latencies]
"""Images and cores to seconds of whole runs of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd:
    """A run's model, `graph` prepared; what its runs take is in the log once they are timed."""

    graph: Graph
    tasks: tuple[Task, ...]
    runner: Runner
    store: LogStore
    options: TuneOptions
    cost_s: float
    """About what timing it takes."""

    def left(self) -> TuneOptions:
        """The options of the run that is left before it."""
        if self._refused():
            return self.options
        limits = self.options.limits.without(self.cost_s)
        return dataclasses.replace(self.options, limits=limits)

    def timed(self, report: TuneReport, timer: Timer = latencies) -> TuneReport:
        """The report with the latencies, or with why there are none."""
        if report.forecast is not None:
            return self._foreseen(report, report.forecast)
        why_not = self._refused() or self._refused_after(report.measured, report.after_s)
        if why_not:
            return dataclasses.replace(report, no_latency=why_not)
        assert isinstance(self.runner, LocalRunner)
        try:
            before, after = self._times(self.runner, timer)
        except AutotuneError as error:
            return dataclasses.replace(report, no_latency=str(error))
        latency = Latency(
            model_key=model_key(self.graph),
            model=self.options.model,
            target_key=self.options.target.key,
            device=self.runner.profile().device,
            before=before,
            after=after,
            kernels_before_s=report.before_s,
            kernels_after_s=report.after_s,
        )
        if isinstance(self.store, TuningLog):
            keep(self.store, latency)
        return dataclasses.replace(report, latency=latency)

    def _foreseen(self, report: TuneReport, forecast: Forecast) -> TuneReport:
        """The report of a dry run, with what timing the model would take."""
        trials = sum(forecast.trials) + self._untimed()
        if not (self._refused() or self._refused_after(trials, forecast.after_s)):
            time_s = forecast.time_s + self.cost_s
            forecast = dataclasses.replace(forecast, time_s=time_s)
        return dataclasses.replace(
            report, forecast=forecast, no_latency="dry run, nothing is measured"
        )

    def _refused(self) -> str:
        """Why it is not timed, as far as that is known before the run; empty where it is."""
        limit_s = self.options.limits.asked_s
        if not isinstance(self.runner, LocalRunner):
            return "boards run kernels, not whole models"
        if limit_s is not None and self.cost_s > SHARE * limit_s:
            return f"that takes about {self.cost_s:.1f} s, much of a run of {limit_s:.0f} s"
        return ""

    def _refused_after(self, trials: int, after_s: float | None) -> str:
        few = trials < FEW_TRIALS and self._untimed() < FEW_TRIALS
        if self.options.limits.time_s is None and few:
            return f"fewer than {FEW_TRIALS} trials since it was run last"
        return "" if after_s else "there are tasks without a record"

    def _untimed(self) -> int:
        """Trials that the log has since the model was timed here: a run that is killed before it
        has timed the model leaves that to the next one."""
        if not isinstance(self.store, TuningLog):
            return 0
        key, target = model_key(self.graph), self.options.target
        device = self.runner.profile().device
        own = [k for k in kept(self.store, key, target.key) if k.device == device and not k.origin]
        last = max((k.created for k in own), default="")
        records = (r for t in self.tasks for r in self.store.records(t.key, target))
        return sum(r.created > last and r.result.device == device for r in records)

    def built(self, task: Task, schedule: Schedule) -> Built | None:
        """A kernel that the run has built."""
        target, seed = self.options.target, self.options.seed
        assert isinstance(self.runner, LocalRunner)
        return self.runner.built(
            MeasureRequest(task=task, schedule=schedule, target=target, seed=seed)
        )

    def _times(self, runner: LocalRunner, timer: Timer) -> Latencies:
        """Seconds of runs with default schedules, and with the best ones."""
        target, known = self.options.target, self.built
        logs = (None, self.store)
        here = dataclasses.replace(runner.profile(), target=target)
        images = (
            compile_prepared(self.graph, target, log, known=known, profile=here)[0] for log in logs
        )
        return timer(images, runner.timing_cores)


def end_to_end(
    graph: Graph, partition: Partition, runner: Runner, store: LogStore, options: TuneOptions
) -> EndToEnd:
    """The model of a run that is about to begin, cut as `partition`."""
    weights = sum(v.type.nbytes for c in partition.calls for v in c.task.by_role("constant"))
    unbuilt = sum(bool(store.records(key.key, options.target)) for key in partition.weights())
    run_s = options.timing.apart_s
    cost_s = (
        _START_S
        + 2 * weights / _LOADED_BYTES_PER_S
        + 2 * unbuilt * _BUILD_S
        + 2 * TURNS * (TURN_S + 2 * run_s)
    )
    return EndToEnd(
        graph=graph,
        tasks=tuple(partition.weights()),
        runner=runner,
        store=store,
        options=options,
        cost_s=cost_s,
    )
