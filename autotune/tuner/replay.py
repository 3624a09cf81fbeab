"""Searching recorded spaces: how many trials a strategy needs, without measuring anything.

In: surveys of tasks, a way to search, seeds. Out: best-so-far curves, the same every time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.measure.runners.replay import Survey
from autotune.tuner.learner import Learner
from autotune.tuner.strategies import STRATEGIES, Outcome, Setting
from cost_model.features import Features
from cost_model.models import COST_MODELS
from cost_model.subject import Subject
from search_spaces.base import RULES, Column
from search_spaces.params import Config
from search_spaces.space import Rows

BATCH = 4
"""Candidates between two looks at the model, as the budget hands them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Subject):
    """A subject whose space is what a survey measured: times are looked up, features too."""

    survey: Survey
    keys: npt.NDArray[np.int64]
    """Sorted; `order` is the place of each in the survey."""
    order: npt.NDArray[np.intp]
    described: Features

    @staticmethod
    def from_survey(survey: Survey) -> Recorded:
        """Described by today's rule. Raises ConfigError where that is not installed."""
        profile, space = survey.profile, survey.space()
        subject = Subject(
            task=survey.task,
            target=profile.target,
            profile=profile,
            rule=RULES.get(survey.rule),
            space=space,
        )
        keys = space.keys(survey.rows)
        order = np.argsort(keys)
        return Recorded(
            **{f.name: getattr(subject, f.name) for f in dataclasses.fields(Subject)},
            survey=survey,
            keys=keys[order],
            order=order,
            described=subject.describe(survey.rows),
        )

    def places(self, rows: Rows) -> npt.NDArray[np.intp]:
        """Where the survey has these rows."""
        found: npt.NDArray[np.intp] = self.order[np.searchsorted(self.keys, self.space.keys(rows))]
        return found

    def describe(self, rows: Rows) -> Features:
        return self.described.take(self.places(rows))

    def seconds(self, rows: Rows) -> Column:
        found: Column = self.survey.seconds[self.places(rows)]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """A way to search. `informed`: it starts with the rule's default config."""

    label: str
    strategy: str
    cost_model: str = "prior"
    informed: bool = True
    transfer: bool = False
    """Whether it has records of the other tasks."""


SEARCHERS = (
    Searcher(label="random", strategy="random", informed=False),
    Searcher(label="evolutionary", strategy="evolutionary", informed=False),
    Searcher(label="XGBoost alone", strategy="model", cost_model="xgb-only", informed=False),
    Searcher(label="prior alone", strategy="model", cost_model="prior"),
    Searcher(label="all together", strategy="model", cost_model="xgb"),
    Searcher(label="with transfer", strategy="model", cost_model="xgb", transfer=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was known of one task: its records, oldest first."""

    subject: Recorded
    outcomes: tuple[Outcome, ...]

    def best(self) -> Config:
        return min(self.outcomes, key=lambda o: o.time_s).config


def search(
    subject: Recorded,
    searcher: Searcher,
    seed: int,
    trials: int,
    history: Sequence[Trial] = (),
    *,
    enough_s: float = 0.0,
) -> tuple[Outcome, ...]:
    """Up to `trials` outcomes in order; ends early where one is at most `enough_s`."""
    learner = Learner(COST_MODELS.get(searcher.cost_model), seed)
    seeds = [subject.rule.default(subject.task, subject.target)] if searcher.informed else []
    for group, known in enumerate(history, start=1):
        rows = known.subject.rows([o.config for o in known.outcomes])
        times = np.array([o.time_s for o in known.outcomes])
        learner.add(group, known.subject.describe(rows), times)
        near = subject.space.closest(known.best())
        seeds += [near] if near is not None else []
    kept = tuple(c for c in dict.fromkeys(seeds) if subject.space.contains(c))
    strategy = STRATEGIES.get(searcher.strategy)(
        Setting(subject=subject, seeds=kept, learner=learner, group=0, seed=seed)
    )
    done: list[Outcome] = []
    while len(done) < trials:
        configs = strategy.propose(min(BATCH, trials - len(done)))
        times = subject.seconds(subject.rows(configs)) if configs else np.empty(0)
        told = [Outcome(config=c, time_s=float(t)) for c, t in zip(configs, times, strict=True)]
        done += told
        if not told or min(o.time_s for o in told) <= enough_s:
            break
        strategy.tell(told)
    return tuple(done)


def history_of(subjects: Mapping[str, Recorded], trials: int, seed: int = 0) -> dict[str, Trial]:
    """What a log of each task would hold after a guided search."""
    guided = next(s for s in SEARCHERS if s.label == "all together")
    return {
        name: Trial(subject=subject, outcomes=search(subject, guided, seed, trials))
        for name, subject in subjects.items()
    }


def others(history: Mapping[str, Trial], name: str) -> tuple[Trial, ...]:
    """The history of the tasks of the same rule, without the task itself."""
    rule = history[name].subject.rule.name
    return tuple(t for n, t in history.items() if n != name and t.subject.rule.name == rule)


def curve(outcomes: Sequence[Outcome], trials: int) -> Column:
    """Best time after each of `trials` trials; the last one holds after an early end."""
    best = np.full(trials, np.inf)
    best[: len(outcomes)] = [o.time_s for o in outcomes]
    return np.asarray(np.minimum.accumulate(best), np.float64)


def trials_to(curve_s: Column, limit_s: float) -> float:
    """Trials until the curve is at most `limit_s`; infinity where it never is."""
    reached = np.flatnonzero(curve_s <= limit_s)
    return float(reached[0]) + 1 if len(reached) else float("inf")
