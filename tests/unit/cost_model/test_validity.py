from __future__ import annotations

import numpy as np

from autotune.tuner.learner import Learner
from autotune.tuner.strategies import STRATEGIES, Outcome, Setting
from cost_model.features import Features
from cost_model.models import COST_MODELS
from cost_model.models.base import Dataset
from cost_model.validity import UNLIKELY, Validity
from search_spaces.base import Column
from tests.unit.tuner.synthetic import subject, true_seconds

OF = subject()
ROWS = OF.space.rows(10**6, np.random.default_rng(0))
ALL = OF.describe(ROWS)
TRUE = true_seconds(OF, ROWS)
HELD = ALL.values[:, ALL.names.index("accumulators")]
FAILS = np.asarray(np.median(HELD) < HELD)
"""A limit that no constraint of the space knows."""


def measured(chosen: np.ndarray[tuple[int], np.dtype[np.intp]], time_s: Column) -> Dataset:
    part = ALL.take(chosen)
    return Dataset(
        names=part.names,
        values=part.values,
        prior_s=part.prior_s,
        time_s=time_s[chosen],
        group=np.zeros(len(chosen), np.int64),
    )


def fitted(count: int, seed: int = 0) -> Validity:
    model = Validity(seed)
    chosen = np.random.default_rng(1).permutation(len(ROWS))[:count]
    model.fit(measured(chosen, np.where(FAILS, np.inf, TRUE)), ALL)
    return model


def test_has_no_opinion_where_nothing_failed() -> None:
    model = Validity(0)
    model.fit(measured(np.arange(50), TRUE), ALL)
    np.testing.assert_array_equal(model.chance(ALL), np.ones(len(ROWS)))


def test_learns_before_anything_worked() -> None:
    model = Validity(0)
    chosen = np.flatnonzero(FAILS)[::20]
    model.fit(measured(chosen, np.full(len(ROWS), np.inf)), ALL)
    chance = model.chance(ALL)
    assert chance[~FAILS].mean() > 1.5 * chance[FAILS].mean()


def test_learns_a_limit_that_no_constraint_knows() -> None:
    chance = fitted(40).chance(ALL)
    assert (chance[FAILS] < 0.5).mean() > 0.9
    assert (chance[~FAILS] > 0.5).mean() > 0.9


def test_rules_nothing_out() -> None:
    assert fitted(200).chance(ALL).min() >= UNLIKELY


def test_is_the_same_again() -> None:
    np.testing.assert_array_equal(fitted(60, 3).chance(ALL), fitted(60, 3).chance(ALL))


def test_a_search_learns_to_avoid_failures() -> None:
    learner = Learner(COST_MODELS.get("xgb"), 0)
    strategy = STRATEGIES.get("model")(
        Setting(subject=OF, seeds=(), learner=learner, group=0, seed=0)
    )
    failed = []
    for _ in range(8):
        configs = strategy.propose(8)
        rows = OF.rows(configs)
        described: Features = OF.describe(rows)
        held = described.values[:, described.names.index("accumulators")]
        times = np.where(held > np.median(HELD), np.inf, true_seconds(OF, rows))
        failed.append(int(np.isinf(times).sum()))
        pairs = zip(configs, times.tolist(), strict=True)
        strategy.tell([Outcome(config=c, time_s=t) for c, t in pairs])
    assert sum(failed[:2]) > 3
    assert sum(failed[4:]) <= sum(failed[:2])
    assert learner.chance(ALL)[FAILS].mean() < 0.3
