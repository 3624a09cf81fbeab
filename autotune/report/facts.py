"""The facts of a report. In: a model's tasks, the log, the device's profile. Out: plain values."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import cost_model
from autotune.db.rankings import KeptRanking
from autotune.db.types import Latency, LogStore, Record
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.machine.roofline import roofline_s
from autotune.measure.types import Status
from autotune.placement.types import Partition
from autotune.report.earlier import Earlier
from autotune.report.importance import Importance, importances
from autotune.report.network import Call, calls_of
from autotune.target import Target
from autotune.tasks.describe import describe
from autotune.tasks.flops import task_flops
from autotune.types import Task
from cost_model.pretrained import LEAST, Quality, left_out, quality
from cost_model.train import by_origin, datasets, measured_s
from search_spaces.sound import asked


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """One task, and what the log knows of it. Seconds per call."""

    key: str
    what: str
    name: str
    """The model's own node names of the first call."""
    calls: int
    flops: int
    nbytes: int
    """Bytes of its inputs, constants and output, each once."""
    roofline_s: float
    default_s: float | None
    """Seconds with the default schedule, or with the first that worked."""
    best_s: float | None
    best_config: tuple[tuple[str, str], ...]
    """(parameter, choice) pairs of the fastest."""
    trials_s: tuple[float, ...]
    """Seconds of each trial in the order of the log; infinity where it failed."""
    earlier_s: float | None = None
    """Best of the run that this one is compared with."""

    @property
    def curve(self) -> tuple[float, ...]:
        """Best seconds after each trial; infinity before the first success."""
        return tuple(itertools.accumulate(self.trials_s, min))

    @property
    def trials(self) -> int:
        return len(self.trials_s)

    @property
    def failures(self) -> int:
        return sum(map(math.isinf, self.trials_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Quality of the ranking of candidates of a rule's tasks."""

    rule: str
    samples: int
    prior: Quality
    learnt: Quality | None
    """By models that saw no record of the task; None where there is one task only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """How well the candidates of a run were ranked before they were measured, up to a round: means
    over the tasks of that round."""

    created: str
    round: int
    tasks: int
    samples: int
    rank_correlation: float
    top_recall: float
    regret: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything in a report."""

    model: str
    log: str
    target: Target
    profile: DeviceProfile
    tasks: tuple[TaskFacts, ...]
    failures: tuple[tuple[str, int], ...]
    """(status and cause, count), most frequent first."""
    lost: int
    """Records of candidates whose device was lost, which says nothing about them: no trials."""
    rankings: tuple[Ranking, ...]
    rounds: tuple[RoundFacts, ...]
    environment: tuple[tuple[str, str], ...]
    latencies: tuple[Latency, ...] = ()
    """The whole model as measured, in the order of the log."""
    boards: tuple[Latency, ...] = ()
    """The whole model as `bench` measured it on boards, in the order of the log."""
    calls: tuple[Call, ...] = ()
    """The network's kernel calls in the order of execution."""
    importances: tuple[Importance, ...] = ()
    earlier: str = ""
    """What `earlier_s` of the tasks is of, in words; empty: there is nothing to compare with."""
    later_trials: int = 0
    """Trials that were added after the whole model was last measured."""

    @property
    def latency(self) -> Latency | None:
        """The latest of this device, or else of any."""
        here = [v for v in self.latencies if v.device == self.profile.device]
        return next(reversed(here or self.latencies), None)

    @property
    def before_s(self) -> float | None:
        return _total([(t.calls, t.default_s) for t in self.tasks])

    @property
    def after_s(self) -> float | None:
        return _total([(t.calls, t.best_s) for t in self.tasks])


def _total(parts: Sequence[tuple[int, float | None]]) -> float | None:
    """Weighted sum of seconds; None where one is not known."""
    known = [calls * seconds for calls, seconds in parts if seconds is not None]
    return math.fsum(known) if len(known) == len(parts) and known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a log holds of a model beside the records of its tasks."""

    rankings: Sequence[KeptRanking] = ()
    """How candidates of its tasks were ranked, round by round."""
    latencies: Sequence[Latency] = ()
    """The whole model as measured, in the order of the log."""
    boards: Sequence[Latency] = ()
    """The same on boards, of any target."""
    earlier: Earlier | None = None
    """The run to compare with; without it, what the log held when the whole model was measured for
    the last time but one."""


def collect(
    partition: Partition,
    store: LogStore,
    profile: DeviceProfile,
    log: str,
    history: History = History(),
    *,
    seed: int = 0,
) -> Facts:
    """Facts about the model on the profile's target, from the log of that name."""
    target, latencies = profile.target, history.latencies
    before = history.earlier or Earlier.of_previous(latencies, profile.device)
    names = {call.task: call.name for call in reversed(partition.calls)}
    every: list[Record] = []
    tasks = []
    for task, calls in partition.weights().items():
        records = store.records(task.key, target)
        every += records
        then_s = before.best_s(task.key, _judged(records)) if before else None
        found = _task(task, calls, names[task], _judged(records), profile)
        tasks.append(dataclasses.replace(found, earlier_s=then_s))
    judged = _judged(every)
    failures = Counter(
        f"{r.result.status}: {_cause(r.result.error)}"
        for r in judged
        if r.result.status is not Status.OK
    )
    return Facts(
        model=partition.graph.name,
        log=log,
        target=target,
        profile=profile,
        tasks=tuple(tasks),
        failures=tuple(failures.most_common()),
        lost=len(every) - len(judged),
        rankings=_rankings(every, profile, seed),
        rounds=rounds(history.rankings),
        environment=_environment(every),
        latencies=tuple(latencies),
        boards=tuple(history.boards),
        calls=calls_of(partition),
        importances=importances(judged),
        earlier=before.what if before else "",
        later_trials=_later(judged, latencies),
    )


def _later(records: Sequence[Record], latencies: Sequence[Latency]) -> int:
    """Records that are younger than the last measurement of the whole model."""
    last = max((v.created for v in latencies), default="")
    return sum(r.created > last for r in records) if last else 0


def _judged(records: Sequence[Record]) -> list[Record]:
    """Records that say something about their candidate."""
    return [r for r in records if r.result.status is not Status.DEVICE_LOST]


def _task(
    task: Task, calls: int, name: str, records: Sequence[Record], profile: DeviceProfile
) -> TaskFacts:
    machine = Machine.of(profile.target, profile)
    wanted = asked(lambda rule: cost_model.default(task, machine, rule), task, profile.target)
    worked = [r for r in records if r.result.status is Status.OK]
    default = next((r for r in worked if r.config == wanted), next(iter(worked), None))
    best = min(worked, key=measured_s, default=None)
    flops, nbytes = task_flops(task), sum(v.type.nbytes for v in task.params)
    return TaskFacts(
        key=task.key,
        what=describe(task),
        name=name,
        calls=calls,
        flops=flops,
        nbytes=nbytes,
        roofline_s=roofline_s(flops, nbytes, machine),
        default_s=measured_s(default) if default else None,
        best_s=measured_s(best) if best else None,
        best_config=tuple((k, str(v)) for k, v in best.config.items) if best else (),
        trials_s=tuple(measured_s(record) for record in records),
    )


def _cause(error: str) -> str:
    """The part of an error that others share: without what follows a number or a quote."""
    head = error.split("\n", maxsplit=1)[0]
    for end in ("'", '"', "(", ";"):
        head = head.split(end)[0]
    return head.strip()[:80] or "no reason given"


def _rankings(records: Sequence[Record], profile: DeviceProfile, seed: int) -> tuple[Ranking, ...]:
    found = []
    origins = tuple(by_origin(records))
    for data in datasets(records, profile):
        if len(data.time_s) < LEAST:
            continue
        several = len(set(data.group.tolist())) > 1
        found.append(
            Ranking(
                rule=origins[data.group[0]].rule,
                samples=len(data.time_s),
                prior=quality(data.prior_s, data),
                learnt=quality(left_out(data, data.group, seed), data) if several else None,
            )
        )
    return tuple(found)


def rounds(kept: Sequence[KeptRanking]) -> tuple[RoundFacts, ...]:
    """Rankings in the order of the log, by round."""
    found = []
    for (number, created), same in itertools.groupby(kept, lambda r: (r.round, r.created)):
        every = list(same)
        found.append(
            RoundFacts(
                created=created,
                round=number,
                tasks=len(every),
                samples=sum(r.samples for r in every),
                rank_correlation=statistics.fmean(r.rank_correlation for r in every),
                top_recall=statistics.fmean(r.top_recall for r in every),
                regret=statistics.fmean(r.regret for r in every),
            )
        )
    return tuple(found)


def _environment(records: Sequence[Record]) -> tuple[tuple[str, str], ...]:
    """What made the records: devices, versions, when."""
    facts: dict[str, list[str]] = {}
    for record in records:
        facts.setdefault("device", []).append(record.result.device)
        for component, version in record.versions:
            facts.setdefault(component, []).append(version)
    created = sorted(r.created for r in records if r.created)
    rows = [(name, ", ".join(sorted(set(values)))) for name, values in facts.items()]
    if created:
        rows.append(("measured", f"{created[0]} to {created[-1]}"))
    return tuple(rows)
