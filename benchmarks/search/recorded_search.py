"""Searching recorded spaces: how many trials a strategy needs, without measuring anything.

In: surveys of tasks, a way to search, seeds. Out: best-so-far curves, the same every time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import cost_model
from autotune.db.codec import distance
from autotune.tuner.learner import Learner
from autotune.tuner.strategies import STRATEGIES, Outcome, Setting
from benchmarks.search.recorded_spaces import Survey
from cost_model.features import Features
from cost_model.models import COST_MODELS, Dataset
from cost_model.pretrained import Pretrained, pretrain
from cost_model.subject import Subject
from cost_model.train import join
from search_spaces.base import Column
from search_spaces.params import Config, Param
from search_spaces.rules import RULES
from search_spaces.space import Rows, Space

NEAREST = 1
"""Tasks whose best config is tried early, as in a run: the rest is known to the model anyway."""
BATCHES = (1, 4)
"""Candidates between two looks at the model, the first time and later, as the budget hands them
out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Subject):
    """A subject whose space is what a survey measured: times are looked up, features too."""

    survey: Survey
    keys: npt.NDArray[np.int64]
    """Sorted; `order` is the place of each in the survey."""
    order: npt.NDArray[np.intp]
    described: Features
    default: Config | None
    """Of the rule; None where it was not measured."""

    @staticmethod
    def from_survey(survey: Survey) -> Recorded:
        """Described by today's rule. Raises ConfigError where that is not installed."""
        profile, rule = survey.profile, RULES.get(survey.rule)
        survey = as_of_today(survey, rule.space(survey.task, profile.target))
        space = survey.space()
        subject = Subject(
            task=survey.task, target=profile.target, profile=profile, rule=rule, space=space
        )
        keys = space.keys(survey.rows)
        order = np.argsort(keys)
        default = cost_model.default(survey.task, subject.machine, rule)
        return Recorded(
            **{f.name: getattr(subject, f.name) for f in dataclasses.fields(Subject)},
            survey=survey,
            keys=keys[order],
            order=order,
            described=subject.describe(survey.rows),
            default=default if space.contains(default) else None,
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


REWRITTEN = ("prefetch", "panel")
"""A param's choice for which code is another since the surveys: prefetches went elsewhere."""


def as_of_today(survey: Survey, space: Space) -> Survey:
    """The survey without configs that mean other code now, and with the params that the rule got
    since: their first choice is what was done before there was one."""
    configs = survey.space().configs(survey.rows)
    if REWRITTEN[0] in configs:
        kept = configs[REWRITTEN[0]] != REWRITTEN[1]
        drawn = None if survey.drawn is None else survey.drawn[kept]
        survey = dataclasses.replace(
            survey, rows=survey.rows[kept], seconds=survey.seconds[kept],
            schedules=survey.schedules[kept], drawn=drawn,
        )  # fmt: skip
    known = {p.name for p in survey.params}
    later = tuple(
        Param(name=p.name, choices=p.choices[:1]) for p in space.params if p.name not in known
    )
    nothing = np.zeros((len(survey.rows), len(later)), survey.rows.dtype)
    return dataclasses.replace(
        survey,
        params=(*survey.params, *later),
        rows=np.concatenate([survey.rows, nothing], axis=1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """A way to search. `informed`: it starts with the rule's default config. `drawn`: it searches
    configs that were drawn evenly from the space, without those that a survey took for what they
    promised."""

    label: str
    strategy: str
    cost_model: str = "prior"
    informed: bool = True
    drawn: bool = False
    transfer: bool = False
    """Whether it has records of the other tasks."""


SEARCHERS = (
    Searcher(label="random", strategy="random", informed=False, drawn=True),
    Searcher(label="evolutionary", strategy="evolutionary", informed=False),
    Searcher(label="XGBoost alone", strategy="model", cost_model="xgb-only", informed=False),
    Searcher(label="prior alone", strategy="model", cost_model="prior"),
    Searcher(label="all together", strategy="model", cost_model="xgb"),
    Searcher(label="with transfer", strategy="model", cost_model="xgb", transfer=True),
    Searcher(label="Bayesian", strategy="bayesian"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What a log of other tasks brings to a search."""

    pretrained: Pretrained
    configs: tuple[Config, ...]
    """The best of other tasks of the op, the most similar task first."""

    def taught(self, subject: Recorded) -> Recorded:
        """The subject with what was learnt in place of its prior: what a learner would ask the
        trained models for at every look is the same in every search of the subject."""
        described = self.pretrained.improve(subject.described)
        return dataclasses.replace(subject, described=described)


def search(
    subject: Recorded,
    searcher: Searcher,
    seed: int,
    trials: int,
    known: Knowledge | None = None,
    *,
    enough_s: float = 0.0,
) -> tuple[Outcome, ...]:
    """Up to `trials` outcomes in order; ends early where one is at most `enough_s`. With what is
    `known`, the subject is one that was `taught`."""
    if searcher.drawn:
        subject = dataclasses.replace(subject, space=subject.survey.space(drawn=True))
    seeds = (subject.default,) if searcher.informed and subject.default else ()
    near = () if known is None else map(subject.space.closest, known.configs)
    setting = Setting(
        subject=subject,
        seeds=seeds,
        hints=tuple(config for config in near if config is not None),
        learner=Learner(COST_MODELS.get(searcher.cost_model), seed),
        group=0,
        seed=seed,
    )
    strategy = STRATEGIES.get(searcher.strategy)(setting)
    done: list[Outcome] = []
    while len(done) < trials:
        configs = strategy.propose(min(BATCHES[bool(done)], trials - len(done)))
        times = subject.seconds(subject.rows(configs)) if configs else np.empty(0)
        told = [Outcome(config=c, time_s=float(t)) for c, t in zip(configs, times, strict=True)]
        done += told
        if not told or min(o.time_s for o in told) <= enough_s:
            break
        strategy.tell(told)
    return tuple(done)


def histories(
    subjects: Mapping[str, Recorded], trials: int, seed: int = 0
) -> dict[str, tuple[Outcome, ...]]:
    """What a log of each task would hold after a guided search."""
    guided = next(s for s in SEARCHERS if s.label == "all together")
    return {name: search(of, guided, seed, trials) for name, of in subjects.items()}


def knowledge(
    subjects: Mapping[str, Recorded], history: Mapping[str, Sequence[Outcome]], name: str
) -> Knowledge:
    """What the history of the other tasks teaches about task `name`, which is left out."""
    wanted = subjects[name]
    others = [n for n, s in subjects.items() if n != name and s.rule.name == wanted.rule.name]
    others.sort(key=lambda n: (distance(wanted.task, subjects[n].task), n))
    parts: dict[tuple[str, ...], list[Dataset]] = {}
    for group, other in enumerate(others):
        of, told = subjects[other], history[other]
        described = of.describe(of.rows([o.config for o in told]))
        data = Dataset(
            names=described.names,
            values=described.values,
            prior_s=described.prior_s,
            time_s=np.array([o.time_s for o in told]),
            group=np.full(len(told), group),
        )
        parts.setdefault(data.names, []).append(data)
    alike = [n for n in others if subjects[n].task.op == wanted.task.op]
    best = (min(history[n], key=lambda o: o.time_s).config for n in alike[:NEAREST])
    return Knowledge(pretrained=pretrain([join(p) for p in parts.values()], 0), configs=(*best,))


def curve(outcomes: Sequence[Outcome], trials: int) -> Column:
    """Best time after each of `trials` trials; the last one holds after an early end."""
    best = np.full(trials, np.inf)
    best[: len(outcomes)] = [o.time_s for o in outcomes]
    return np.asarray(np.minimum.accumulate(best), np.float64)


def trials_to(curve_s: Column, limit_s: float) -> float:
    """Trials until the curve is at most `limit_s`; infinity where it never is."""
    reached = np.flatnonzero(curve_s <= limit_s)
    return float(reached[0]) + 1 if len(reached) else float("inf")
