"""The tuning loop. In: a partition, a runner, a store. Out: records in the store, and a report.

    plan (budget) -> configs (strategies) -> measure (runner) -> log (store) -> tell (strategies)

Every result is logged as it arrives, so a killed run loses the candidates in flight at most. What
the log already holds for a task and target counts as trials, feeds the cost model and is never
measured again: running the same command again continues.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.db.types import LogStore, Record
from autotune.errors import DeviceError
from autotune.measure.types import MeasureRequest, MeasureResult, Runner, Status
from autotune.placement.types import Partition
from autotune.schedule.base import Schedule
from autotune.tuner.begin import begun
from autotune.tuner.budget import Limits, Share, achievable_s, explain, plan
from autotune.tuner.costs import surviving, trial_costs_s
from autotune.tuner.engine import Engine
from autotune.tuner.events import (
    Event,
    Finished,
    OnEvent,
    Progress,
    Ranked,
    Round,
    Started,
    TaskInfo,
    TrialDone,
)
from autotune.tuner.forecast import forecast
from autotune.tuner.options import TuneOptions
from autotune.tuner.report import TaskReport, TuneReport
from autotune.tuner.rerank import combined, interleaved, rerank_s, to_rerank
from autotune.tuner.task_run import TaskRun
from autotune.types import Task
from search_spaces.params import Config

RERANKED_TOGETHER = 4
"""Tasks per batch of the final re-ranking, so that building overlaps timing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    task: int
    config: Config
    schedule: Schedule


def tune_partition(
    partition: Partition,
    runner: Runner,
    store: LogStore,
    options: TuneOptions,
    on_event: OnEvent | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    engine: Engine | None = None,
) -> TuneReport:
    """Tune every task of the partition; `engine`: with features and cost models from there. Raises
    DeviceError where the device or the engine is lost; everything measured until then, or until an
    interrupt, is in the store."""
    names = {call.task: call.name for call in reversed(partition.calls)}
    return tune_tasks(
        partition.weights(), names, runner, store, options,
        on_event=on_event, clock=clock, engine=engine,
    )  # fmt: skip


def tune_tasks(
    weights: Mapping[Task, int],
    names: Mapping[Task, str],
    runner: Runner,
    store: LogStore,
    options: TuneOptions,
    *,
    on_event: OnEvent | None = None,
    clock: Callable[[], float] = time.monotonic,
    engine: Engine | None = None,
) -> TuneReport:
    """Tune tasks, each of which counts as often as its weight says. Otherwise as
    `tune_partition`."""
    profile = dataclasses.replace(runner.profile(), target=options.target)
    runs = begun(weights, store, options, profile, engine)
    session = _Session(
        runs=runs,
        names=names,
        device=profile.device,
        runner=runner,
        store=store,
        options=options,
        on_event=on_event or _ignore,
        clock=clock,
        started_s=clock(),
    )
    return session.run()


def _ignore(event: Event) -> None:
    del event


@dataclass(slots=True, kw_only=True)
class _Session:
    """State of one run."""

    runs: tuple[TaskRun, ...]
    names: Mapping[Task, str]
    device: str
    runner: Runner
    store: LogStore
    options: TuneOptions
    on_event: OnEvent
    clock: Callable[[], float]
    started_s: float
    measured: int = 0
    touched: set[int] = field(default_factory=set)
    """Tasks that got trials in this run."""

    def run(self) -> TuneReport:
        options = self.options
        self.on_event(
            Started(
                tasks=tuple(self._info(run) for run in self.runs),
                device=self.device,
                target=options.target.key,
                progress=self._progress(),
            )
        )
        if options.dry_run:
            return self._review()
        number = 0
        while True:
            states = tuple(run.state() for run in self.runs)
            elapsed_s = self.clock() - self.started_s + self._rerank_s()
            decision = plan(states, options.limits, batch=options.batch, elapsed_s=elapsed_s)
            if not decision.shares:
                self._rerank(number + 1)
                self.on_event(Finished(reason=decision.reason, progress=self._progress()))
                return self._report(decision.reason)
            candidates = self._candidates(decision.shares)
            if candidates:
                number += 1
                event = Round(number=number, shares=decision.shares, progress=self._progress())
                self.on_event(event)
                self._measure(candidates)
                self._rank(number, candidates)

    def _review(self) -> TuneReport:
        """What a run would do with what is known now. A run asks a strategy what is left in a task
        when the task has its turn: not all of them before it decides to go on."""
        states = tuple(run.state() for run in self.runs)
        for run in self.runs:
            if run.best_s is not None:
                run.candidates(1)
        guess = forecast(
            states,
            tuple(run.state() for run in self.runs),
            tuple(run.guess_s for run in self.runs),
            self.options.limits,
            batch=self.options.batch,
            costs_s=trial_costs_s(self.runs, self.store, self.runner),
            surviving=surviving(self.store, self.options.target),
        )
        reason = "dry run, nothing is measured"
        self.on_event(Finished(reason=reason, progress=self._progress()))
        return dataclasses.replace(self._report(reason), forecast=guess)

    # ------------------------------------------------------------------------------ one batch

    def _candidates(self, shares: tuple[Share, ...]) -> tuple[_Candidate, ...]:
        return tuple(
            _Candidate(task=share.task, config=config, schedule=schedule)
            for share in shares
            for config, schedule in self.runs[share.task].candidates(share.count)
        )

    def _measure(self, candidates: tuple[_Candidate, ...]) -> None:
        """Measure and log; what a lost device left is tried once more before the run ends."""
        records: list[Record] = []
        lost = self._attempt(candidates, records)
        if lost:
            again = self._attempt(lost, records)
            for candidate, result in again.items():
                self._keep(candidate, result, records)
            if len(again) == len(candidates):
                reason = next(iter(again.values())).error or "no reason given"
                raise DeviceError(
                    f"the device was lost twice during a batch of {len(again)} ({reason}); what "
                    "was measured is in the log: run the same command again to continue"
                )
        self._tell(records)

    def _attempt(
        self, candidates: Sequence[_Candidate] | dict[_Candidate, MeasureResult],
        records: list[Record],
    ) -> dict[_Candidate, MeasureResult]:  # fmt: skip
        """Measure once; keep what has a result, give back what the device was lost for."""
        asked = tuple(candidates)
        lost: dict[_Candidate, MeasureResult] = {}

        seen: set[int] = set()

        def on_result(place: int, result: MeasureResult) -> None:
            seen.add(place)
            if result.status is Status.DEVICE_LOST:
                lost[asked[place]] = result
            else:
                self._keep(asked[place], result, records)

        results = self.runner.measure(
            tuple(self._request(c.task, c.schedule) for c in asked), on_result
        )
        for place, result in enumerate(results):
            if place not in seen:
                on_result(place, result)
        return lost

    def _request(self, task: int, schedule: Schedule) -> MeasureRequest:
        run = self.runs[task]
        return MeasureRequest(
            task=run.task,
            schedule=schedule,
            target=self.options.target,
            timing=self.options.timing_of(run.task, run.best_s),
            seed=self.options.seed,
        )

    def _keep(self, candidate: _Candidate, result: MeasureResult, records: list[Record]) -> None:
        """Log a result at once, and show it."""
        run = self.runs[candidate.task]
        record = Record(
            task=run.task,
            target=self.options.target,
            rule=run.subject.rule.name,
            config=candidate.config,
            schedule=candidate.schedule,
            result=result,
            seed=self.options.seed,
            flops=run.flops,
            model=self.options.model,
            versions=self.options.versions,
        )
        self.store.append([record])
        self.measured += 1
        self.touched.add(candidate.task)
        records.append(record)
        run.count(record)
        self.on_event(self._trial(candidate.task, record))

    def _rerank_s(self) -> float:
        """Seconds kept for the final re-ranking, in a run that is limited in time."""
        limit_s = self.options.limits.time_s
        return 0.0 if limit_s is None else rerank_s(self.runs, self.touched, limit_s)

    def _rerank(self, number: int) -> None:
        """The final re-ranking: the heaviest tasks first, while there is time."""
        found = to_rerank(self.runs, self.touched)
        order = list(found)
        limit_s = self.options.limits.time_s
        for place in range(0, len(order), RERANKED_TOGETHER):
            late = limit_s is not None and self.clock() - self.started_s >= limit_s
            if late and place:
                return
            some = {n: found[n] for n in order[place : place + RERANKED_TOGETHER]}
            shares = tuple(
                Share(task=n, count=len(records), reason="the fastest, again in turns")
                for n, records in some.items()
            )
            self.on_event(Round(number=number, shares=shares, progress=self._progress()))
            self._measure_again(some)
            number += 1

    def _measure_again(self, some: dict[int, tuple[Record, ...]]) -> None:
        asked = [(n, r) for n, found in some.items() for r in interleaved(found)]
        known = {n: self.options.timing_of(self.runs[n].task, None) for n in some}
        requests = tuple(
            dataclasses.replace(self._request(n, r.schedule), timing=known[n]) for n, r in asked
        )
        results = self.runner.measure(requests)
        for n, found in some.items():
            for record in found:
                turns = [
                    result for (_, of), result in zip(asked, results, strict=True) if of is record
                ]
                again = combined(record, turns)
                if again is not None:
                    again = dataclasses.replace(again, versions=self.options.versions)
                    self.store.repeat([again])
                    self.runs[n].recount(again)

    def _rank(self, number: int, candidates: tuple[_Candidate, ...]) -> None:
        """Say how good the predictions were for the tasks of a batch."""
        tasks = sorted({c.task for c in candidates})
        found = tuple(r for n in tasks if (r := self.runs[n].ranking(n)) is not None)
        self.on_event(Ranked(number=number, tasks=found, progress=self._progress()))

    def _tell(self, records: Sequence[Record]) -> None:
        for run in self.runs:
            run.tell([r for r in records if r.task == run.task])

    # -------------------------------------------------------------------------------- figures

    def _progress(self) -> Progress:
        runs, limits = self.runs, self.options.limits
        elapsed_s = self.clock() - self.started_s
        trials = limits.used + sum(run.trials for run in runs)
        before = [run.default_s if run.default_s is not None else run.first_s for run in runs]
        return Progress(
            trials=trials,
            planned=limits.trials,
            failures=sum(run.failures for run in runs),
            before_s=_total(self.runs, before),
            now_s=_total(self.runs, [run.best_s for run in runs]),
            elapsed_s=elapsed_s,
            left_s=_left(limits, trials, self.measured, elapsed_s),
        )

    def _info(self, run: TaskRun) -> TaskInfo:
        return TaskInfo(
            task=run.task,
            name=self.names[run.task],
            weight=run.weight,
            flops=run.flops,
            rule=run.subject.rule.name,
            peak_flops=run.peak_flops,
            achievable_s=achievable_s(run.state()),
            trials=run.trials,
            failures=run.failures,
            best_s=run.best_s,
        )

    def _trial(self, task: int, record: Record) -> TrialDone:
        run = self.runs[task]
        best_s = run.best_s
        return TrialDone(
            task=task,
            record=record,
            trials=run.trials,
            failures=run.failures,
            best_s=best_s,
            gflops=run.flops / best_s / 1e9 if best_s else 0.0,
            of_peak=run.flops / best_s / run.peak_flops if best_s else 0.0,
            achievable_s=achievable_s(run.state()),
            progress=self._progress(),
        )

    def _report(self, reason: str) -> TuneReport:
        progress = self._progress()
        return TuneReport(
            before_s=progress.before_s,
            after_s=progress.now_s,
            trials=progress.trials,
            measured=self.measured,
            elapsed_s=progress.elapsed_s,
            reason=reason,
            tasks=tuple(
                TaskReport(
                    task=run.task,
                    weight=run.weight,
                    trials=run.trials,
                    failures=run.failures,
                    default_s=run.default_s,
                    best_s=run.best_s,
                    why=explain(run.state()),
                )
                for run in self.runs
            ),
        )


def _total(runs: Sequence[TaskRun], times_s: Sequence[float | None]) -> float | None:
    """Weighted sum; None until every task has a time."""
    known = [t for t in times_s if t is not None]
    if len(known) < len(runs):
        return None
    return math.fsum(run.weight * t for run, t in zip(runs, known, strict=True))


def _left(limits: Limits, trials: int, measured: int, elapsed_s: float) -> float | None:
    """Seconds until the first limit, at the pace so far."""
    ends = [] if limits.time_s is None else [limits.time_s - elapsed_s]
    if limits.trials is not None and measured:
        ends.append((limits.trials - trials) * elapsed_s / measured)
    return max(0.0, min(ends)) if ends else None
