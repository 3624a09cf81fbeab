"""Guided search over several algorithms: each that may win is tried before any is refined."""

from __future__ import annotations

import dataclasses

import numpy as np

import cost_model
from autotune.machine import Machine
from autotune.tuner.learner import Learner
from autotune.tuner.strategies import STRATEGIES, Outcome, Setting, Strategy
from cost_model.models import COST_MODELS
from search_spaces.params import Config
from tests.unit.tuner.synthetic import TARGET, subject
from tests.unit.tuner.test_floors import TwoAlgorithms

MILLISECOND = 1e-3


def strategy() -> Strategy:
    rule, plain = TwoAlgorithms(1.0), subject()
    of = dataclasses.replace(plain, rule=rule, space=rule.space(plain.task, TARGET))
    learner = Learner(COST_MODELS.get("xgb"), 0)
    seeds = (cost_model.default(plain.task, Machine.of(TARGET), rule),)
    return STRATEGIES.get("model")(
        Setting(subject=of, seeds=seeds, learner=learner, group=0, seed=0)
    )


def step(searching: Strategy, count: int, times_s: dict[str, float]) -> list[str]:
    """Algorithms of the next configs, which take what their algorithm takes."""
    configs = searching.propose(count)
    names = [str(c["algorithm"]) for c in configs]
    outcomes = zip(configs, names, strict=True)
    searching.tell([Outcome(config=c, time_s=times_s[name]) for c, name in outcomes])
    return names


def test_an_algorithm_that_may_win_is_tried_right_after_the_default() -> None:
    searching = strategy()
    assert step(searching, 1, {"direct": MILLISECOND}) == ["direct"]
    assert step(searching, 1, {"fewer": MILLISECOND}) == ["fewer"]


def test_an_algorithm_whose_first_config_disappoints_gets_a_second() -> None:
    searching = strategy()
    slow = {"direct": MILLISECOND, "fewer": np.inf}
    assert [*step(searching, 1, slow), *step(searching, 1, slow)] == ["direct", "fewer"]
    assert step(searching, 1, slow) == ["fewer"]


def test_predictions_follow_what_was_measured_of_each_algorithm() -> None:
    searching = strategy()
    times = {"direct": MILLISECOND, "fewer": 0.2 * MILLISECOND}
    tried = [name for _ in range(4) for name in step(searching, 4, times)]
    assert tried.count("fewer") > tried.count("direct")


def test_no_config_is_proposed_twice() -> None:
    searching = strategy()
    seen: list[Config] = []
    for _ in range(6):
        configs = searching.propose(4)
        searching.tell([Outcome(config=c, time_s=MILLISECOND) for c in configs])
        seen += configs
    assert len(set(seen)) == len(seen)
