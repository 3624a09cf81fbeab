"""One task during a run: what was measured, the strategy that searches it, and its figures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import numpy as np

import cost_model
from autotune.db.types import LogStore, Record
from autotune.defects import NO_DEFECT, raised
from autotune.errors import ScheduleError
from autotune.measure.types import Status
from autotune.schedule.base import Schedule, schedule_to_json
from autotune.tuner.budget import TaskState
from autotune.tuner.events import TaskRanking
from autotune.tuner.floors import Floors
from autotune.tuner.learner import Learner
from autotune.tuner.rerank import top_candidates
from autotune.tuner.strategies import Outcome, Setting, Strategy
from cost_model.metrics import rank_correlation, regret, top_k_recall
from cost_model.subject import Subject
from cost_model.train import measured_s
from search_spaces.params import Config
from search_spaces.sound import where

_REMEMBERED = 64
"""Trials whose times the budget looks at."""
_ASKS = 8
"""Times a strategy is asked again after configs whose schedule was measured already."""


class TaskRun:
    """State of one task. Its space is only looked at when it gets trials beyond the default."""

    def __init__(self, subject: Subject, weight: int, default: Config | None = None) -> None:
        """`default`: the config to begin with, if the subject's space has it; else the best by the
        analytical model is looked for."""
        self.subject = subject
        self.task = task = subject.task
        self.target = target = subject.target
        self.weight = weight
        if default is None or not subject.space.contains(default):
            default = cost_model.default(task, subject.machine, subject.rule)
        self.default = default
        row = self.subject.space.row(self.default)[None]
        configs = self.subject.space.configs(row)
        self.flops = self.subject.rule.structure(task, subject.machine, configs).flops
        self._floors = Floors(subject)
        self.peak_flops = subject.profile.peak_flops * target.threads
        self.guess_s = float(subject.describe(row).prior_s[0])
        """What the analytical model predicts of the default."""
        self.default_s: float | None = None
        self.first_s: float | None = None
        self.best_s: float | None = None
        self.history: list[float] = []
        self.failures = 0
        self.exhausted = False
        self._schedules: dict[Config, Schedule] = {}
        self._default_id = schedule_id(self.schedule(self.default))
        self._times: dict[str, float] = {}
        self._worked: dict[str, Record] = {}
        self._strategy: Strategy | None = None
        self._learner: Learner | None = None
        self._predicted_s: list[float] = []
        self._measured_s: list[float] = []

    def start(
        self,
        factory: Callable[[Setting], Strategy],
        learner: Learner,
        store: LogStore,
        *,
        group: int,
        seed: int,
        versions: tuple[tuple[str, str], ...] = (),
        elsewhere: Sequence[Config] = (),
    ) -> None:
        """Give the task its strategy, and both what the log already knows. What failed under other
        versions of the compiler may work under these: it is not held against a candidate.
        `elsewhere`: configs that did well there."""
        setting = Setting(
            subject=self.subject, seeds=(self.default,), hints=tuple(elsewhere), learner=learner,
            group=group, seed=seed,
        )  # fmt: skip
        self._strategy = factory(setting)
        logged = [
            record
            for record in store.records(self.task.key, self.target)
            if record.result.status is Status.OK or record.versions == versions
        ]
        for record in logged:
            self.count(record)
        self.tell(logged)
        self._learner = learner

    def count(self, record: Record) -> None:
        """Take a measured candidate, of this run or an earlier one, into the figures."""
        if record.result.status is Status.DEVICE_LOST:
            return  # says nothing about the candidate: it may be tried again
        time_s = measured_s(record)
        identity = schedule_id(record.schedule)
        self._times[identity] = time_s
        if math.isfinite(time_s):
            self._worked[identity] = record
            self.first_s = time_s if self.first_s is None else self.first_s
            self.best_s = time_s if self.best_s is None else min(self.best_s, time_s)
            self._floors.tell(record.config, time_s)
            if identity == self._default_id:
                self.default_s = time_s
        else:
            self.failures += 1
        self.history.append(math.inf if self.best_s is None else self.best_s)

    def top_candidates(self) -> tuple[Record, ...]:
        """Records whose order is not sure (see `rerank`), and the default's: what was gained is
        told from measurements of the same moment."""
        found = top_candidates(tuple(self._worked.values()))
        default = self._worked.get(self._default_id)
        if not found or default is None or any(r is default for r in found):
            return found
        return (*found, default)

    @property
    def worked(self) -> tuple[Record, ...]:
        """The records of what worked."""
        return tuple(self._worked.values())

    @property
    def cost_s(self) -> tuple[float, ...]:
        """What the trials that worked took, build included."""
        results = [record.result for record in self._worked.values()]
        return tuple(r.build_s + r.run_s for r in results)

    def recount(self, record: Record) -> None:
        """Take a repeated measurement into the figures, instead of the first one."""
        identity, time_s = schedule_id(record.schedule), measured_s(record)
        self._times[identity] = time_s
        self._worked.pop(identity, None)
        if math.isfinite(time_s):
            self._worked[identity] = record
        times = [measured_s(r) for r in self._worked.values()]
        self.best_s = min(times) if times else None
        if identity == self._default_id and math.isfinite(time_s):
            self.default_s = time_s
        if self.history:
            self.history[-1] = math.inf if self.best_s is None else self.best_s

    def tell(self, records: Sequence[Record]) -> None:
        """Let the strategy learn from counted records, a batch at a time."""
        judged = [r for r in records if r.result.status is not Status.DEVICE_LOST]
        known = self.subject.known([r.config for r in judged])
        told = [Outcome(config=c, time_s=measured_s(judged[n])) for n, c in known.items()]
        self._judge(told)
        self.strategy.tell(told)

    def _judge(self, outcomes: Sequence[Outcome]) -> None:
        """Keep what was predicted of outcomes that nothing has learnt from yet."""
        if self._learner is None or not outcomes:
            return
        described = self.subject.describe(self.subject.rows([o.config for o in outcomes]))
        self._predicted_s += self._learner.predict(described).tolist()
        self._measured_s += [o.time_s for o in outcomes]

    def ranking(self, number: int) -> TaskRanking | None:
        """How good the predictions have been so far; None with less than two."""
        predicted, measured = np.array(self._predicted_s), np.array(self._measured_s)
        if len(measured) < 2 or not np.isfinite(measured).any():
            return None
        return TaskRanking(
            task=number,
            samples=len(measured),
            rank_correlation=rank_correlation(predicted, measured),
            top_recall=top_k_recall(predicted, measured, -(-len(measured) // 4)),
            regret=regret(predicted, measured),
        )

    @property
    def strategy(self) -> Strategy:
        if self._strategy is None:
            raise RuntimeError("start() gives a task its strategy")
        return self._strategy

    @property
    def trials(self) -> int:
        return len(self.history)

    def schedule(self, config: Config) -> Schedule:
        """The config's schedule, written once however often the config is proposed."""
        if config not in self._schedules:
            made = self.subject.rule.schedule(self.task, self.target, config)
            self._schedules[config] = made
        return self._schedules[config]

    def state(self) -> TaskState:
        return TaskState(
            weight=self.weight,
            trials=self.trials,
            best_s=self.best_s,
            history=tuple(self.history[-_REMEMBERED:]),
            floor_s=self._floors.seconds(),
            expected_s=None if self._strategy is None else self._strategy.expected_s(),
            exhausted=self.exhausted,
        )

    def candidates(self, count: int) -> list[tuple[Config, Schedule]]:
        """Up to `count` configs with schedules that were never measured for this task. Where the
        search itself raises, the task keeps what it has."""
        try:
            return self._candidates(count)
        except NO_DEFECT:
            raise
        except Exception as error:  # a defect of the rule ends the search of its task, no run
            raised(where(self.task, self.subject.rule), error, "its search ends here")
            self.exhausted = True
            return []

    def _candidates(self, count: int) -> list[tuple[Config, Schedule]]:
        out: list[tuple[Config, Schedule]] = []
        pending: set[str] = set()
        for _ in range(_ASKS):
            configs = self.strategy.propose(count - len(out))
            if not configs:
                self.exhausted = not out
                break
            known: list[Outcome] = []
            for config in configs:
                schedule = self._checked(config, known)
                if schedule is None:
                    continue
                identity = schedule_id(schedule)
                if identity in self._times:
                    known.append(Outcome(config=config, time_s=self._times[identity]))
                elif identity not in pending:
                    pending.add(identity)
                    out.append((config, schedule))
            self.strategy.tell(known)
            if len(out) >= count:
                break
        return out

    def _checked(self, config: Config, known: list[Outcome]) -> Schedule | None:
        """The config's schedule; a config that has none is a failure without a measurement."""
        try:
            return self.schedule(config)
        except ScheduleError:
            pass
        except NO_DEFECT:
            raise
        except Exception as error:  # a defect of the rule: the other configs go on
            raised(where(self.task, self.subject.rule, config), error, "the config is left out")
        known.append(Outcome(config=config, time_s=math.inf))
        return None


def schedule_id(schedule: Schedule) -> str:
    """Equal exactly for equal schedules."""
    return json.dumps(schedule_to_json(schedule), sort_keys=True, separators=(",", ":"))
