"""Bayesian search: its process against textbook formulas, and how few trials it needs on surveys
of a machine that its prior was not fitted to."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.tuner.learner import Learner
from autotune.tuner.strategies import Outcome, Setting
from autotune.tuner.strategies.bayesian import (
    BayesianStrategy,
    Covariance,
    _below,
    _improvement,
)
from benchmarks.search.recorded_search import SEARCHERS, Recorded, curve, search, trials_to
from benchmarks.search.recorded_spaces import load_survey
from cost_model.models import COST_MODELS
from tests.unit.tuner.synthetic import TARGET, subject, true_seconds
from tests.unit.tuner.test_floors import TwoAlgorithms

SUBJECT = subject()
SURVEYS = Path(__file__).parents[3] / "benchmarks" / "data" / "granite_rapids"


def strategy(pool: int = 50_000) -> BayesianStrategy:
    learner = Learner(COST_MODELS.get("prior"), 0)
    return BayesianStrategy(
        Setting(subject=SUBJECT, seeds=(), learner=learner, group=0, seed=0, pool=pool)
    )


def test_the_posterior_is_that_of_the_joint_normal_distribution() -> None:
    searching, rows = strategy(), SUBJECT.space.rows(60, np.random.default_rng(1))
    told, asked = rows[:12], rows[12:]
    times = true_seconds(SUBJECT, told)
    configs = [SUBJECT.space.config(row) for row in told]
    searching.tell(
        [Outcome(config=c, time_s=float(t)) for c, t in zip(configs, times, strict=True)]
    )
    prior = np.log(SUBJECT.describe(asked).prior_s)
    mean, spread, known = searching._posterior(asked, prior)

    joint = Covariance.of(SUBJECT.space).between(rows, rows)
    inverse = np.linalg.inv(joint[:12, :12] + 1e-4 * np.eye(12))
    off = np.log(times) - np.log(SUBJECT.describe(told).prior_s)
    np.testing.assert_allclose(mean, prior + joint[12:, :12] @ inverse @ off, rtol=1e-6)
    left = joint[12:, 12:] - joint[12:, :12] @ inverse @ joint[:12, 12:]
    np.testing.assert_allclose(spread, np.maximum(np.diag(left), 1e-4), rtol=1e-5)

    more = searching._told(asked, spread, known, 3)
    gained = left[:, 3] ** 2 / (left[3, 3] + 1e-4)
    np.testing.assert_allclose(more, np.maximum(np.diag(left) - gained, 1e-4), rtol=1e-4)
    assert more[3] < spread[3]


def test_covariances_of_any_configs_are_those_of_a_distribution() -> None:
    rows = SUBJECT.space.rows(200, np.random.default_rng(2))
    joint = Covariance.of(SUBJECT.space).between(rows, rows)
    np.testing.assert_allclose(np.diag(joint), Covariance.of(SUBJECT.space).variance)
    assert np.linalg.eigvalsh(joint).min() > -1e-9


def test_expected_improvement_is_the_integral() -> None:
    points = np.linspace(-6, 6, 49)
    wanted = [0.5 * (1 + math.erf(z / math.sqrt(2))) for z in points]
    np.testing.assert_allclose(_below(points), wanted, atol=2e-7)
    draws = np.random.default_rng(0).normal(0.1, 0.3, 400_000)
    got = _improvement(np.array([0.1]), np.array([0.3]))
    np.testing.assert_allclose(got, np.maximum(draws, 0).mean(), rtol=0.01)


def test_it_turns_to_the_algorithm_that_is_better_than_predicted() -> None:
    rule, plain = TwoAlgorithms(1.0), subject()
    of = dataclasses.replace(plain, rule=rule, space=rule.space(plain.task, TARGET))
    seeds = (cost_model.default(plain.task, Machine.of(TARGET), rule),)
    learner = Learner(COST_MODELS.get("prior"), 0)
    searching = BayesianStrategy(
        Setting(subject=of, seeds=seeds, learner=learner, group=0, seed=0)
    )
    times, names = {"direct": 1e-3, "fewer": 2e-4}, []
    for _ in range(4):
        configs = searching.propose(4)
        searching.tell([Outcome(config=c, time_s=times[str(c["algorithm"])]) for c in configs])
        names += [str(c["algorithm"]) for c in configs]
    assert names.count("fewer") > names.count("direct")


def test_what_fails_is_left_alone_and_ends() -> None:
    searching, tried = strategy(), 0
    while configs := searching.propose(8):
        searching.tell([Outcome(config=c, time_s=math.inf) for c in configs])
        tried += len(configs)
        assert tried < 200
    assert tried >= 24


@pytest.mark.parametrize("task", ["conv1x1_14x256", "conv3x3_7x256", "depthwise_28x96"])
def test_it_needs_less_than_half_the_trials_of_evolution_on_another_machine(task: str) -> None:
    survey = Recorded.from_survey(load_survey(SURVEYS / f"{task}.npz"))
    best_s = float(survey.survey.seconds.min())

    def trials(label: str) -> float:
        searcher = next(s for s in SEARCHERS if s.label == label)
        found = (search(survey, searcher, n, 100, enough_s=1.05 * best_s) for n in range(3))
        return sum(min(100.0, trials_to(curve(o, 100), 1.05 * best_s)) for o in found)

    assert trials("Bayesian") < trials("evolutionary") / 2
