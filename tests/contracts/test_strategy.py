"""What every strategy in the registry keeps to, on a space with a known optimum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import cost_model
from autotune.tuner.learner import Learner
from autotune.tuner.strategies import STRATEGIES, Outcome, Setting, Strategy
from cost_model.models import COST_MODELS
from search_spaces.params import Config
from tests.unit.tuner.synthetic import subject, true_seconds

NAMES = tuple(STRATEGIES)
SUBJECT = subject()


def make(name: str, seed: int = 0, pool: int = 50_000, hints: tuple[Config, ...] = ()) -> Strategy:
    seeds = (cost_model.default(SUBJECT.task, SUBJECT.machine, SUBJECT.rule),)
    learner = Learner(COST_MODELS.get("xgb"), seed)
    setting = Setting(
        subject=SUBJECT, seeds=seeds, hints=hints, learner=learner, group=0, seed=seed, pool=pool
    )
    return STRATEGIES.get(name)(setting)


def search(strategy: Strategy, trials: int, batch: int = 8) -> Iterator[tuple[Config, float]]:
    done = 0
    while done < trials:
        configs = strategy.propose(min(batch, trials - done))
        if not configs:
            return
        times = true_seconds(SUBJECT, SUBJECT.rows(configs)).tolist()
        yield from zip(configs, times, strict=True)
        done += len(configs)
        outcomes = zip(configs, times, strict=True)
        strategy.tell([Outcome(config=c, time_s=t) for c, t in outcomes])


@pytest.mark.parametrize("name", NAMES)
def test_proposes_valid_configs_without_repeats(name: str) -> None:
    configs = [c for c, _ in search(make(name), 120)]
    assert all(SUBJECT.space.contains(c) for c in configs)
    assert len(set(configs)) == len(configs)


@pytest.mark.parametrize("name", NAMES)
def test_starts_with_its_seeds(name: str) -> None:
    assert make(name).propose(1) == (
        cost_model.default(SUBJECT.task, SUBJECT.machine, SUBJECT.rule),
    )


@pytest.mark.parametrize("name", NAMES)
def test_hints_that_nothing_speaks_against_come_right_after_the_seeds(name: str) -> None:
    rows = SUBJECT.space.rows(10**6, np.random.default_rng(0))
    prior_s = SUBJECT.describe(rows).prior_s
    fast = SUBJECT.space.config(rows[np.argsort(prior_s)[3]])
    found = make(name, hints=(fast,)).propose(2)
    assert found == (cost_model.default(SUBJECT.task, SUBJECT.machine, SUBJECT.rule), fast)


def test_the_model_does_not_try_a_hint_that_it_predicts_to_be_slow() -> None:
    rows = SUBJECT.space.rows(10**6, np.random.default_rng(0))
    slow = SUBJECT.space.config(rows[np.argmax(SUBJECT.describe(rows).prior_s)])
    assert slow not in make("model", hints=(slow,)).propose(8)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_sequence(name: str) -> None:
    first, second = (list(search(make(name, seed=3), 40)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", NAMES)
def test_gives_no_more_than_asked(name: str) -> None:
    assert len(make(name).propose(5)) == 5


@pytest.mark.parametrize("name", NAMES)
def test_what_was_told_is_not_proposed(name: str) -> None:
    rows = SUBJECT.space.rows(10**6, np.random.default_rng(0))
    told = [SUBJECT.space.config(row) for row in rows[::2]]
    strategy = make(name)
    strategy.tell([Outcome(config=c, time_s=1e-3) for c in told])
    proposed = [c for _ in range(5) for c in strategy.propose(8)]
    assert not set(told) & set(proposed)


@pytest.mark.parametrize("name", NAMES)
def test_ends_with_an_empty_batch_when_all_is_tried(name: str) -> None:
    rows = SUBJECT.space.rows(10**6, np.random.default_rng(0))
    strategy = make(name)
    times = true_seconds(SUBJECT, rows[3:])
    strategy.tell(
        [
            Outcome(config=SUBJECT.space.config(row), time_s=float(t))
            for row, t in zip(rows[3:], times, strict=True)
        ]
    )
    assert len(strategy.propose(8)) <= 3
    assert strategy.propose(8) == ()


@pytest.mark.parametrize("name", NAMES)
def test_goes_on_after_failures(name: str) -> None:
    strategy = make(name)
    for _ in range(3):
        configs = strategy.propose(8)
        assert len(configs) == 8
        strategy.tell([Outcome(config=c, time_s=float("inf")) for c in configs])


@pytest.mark.parametrize("name", NAMES)
def test_searches_spaces_too_large_to_walk(name: str) -> None:
    configs = [c for c, _ in search(make(name, pool=200), 60)]
    assert len(set(configs)) == len(configs) >= 24


@pytest.mark.parametrize("name", ["model", "evolutionary"])
def test_beats_random_on_average(name: str) -> None:
    def mean_best(strategy: str) -> float:
        runs = (search(make(strategy, seed=s), 48) for s in range(6))
        return float(np.mean([min(t for _, t in run) for run in runs]))

    assert mean_best(name) < mean_best("random")


def test_the_model_finds_the_optimum_in_few_trials() -> None:
    rows = SUBJECT.space.rows(10**6, np.random.default_rng(0))
    best = true_seconds(SUBJECT, rows).min()
    for seed in range(4):
        assert min(t for _, t in search(make("model", seed=seed), 40)) <= best * 1.02


def test_the_model_stops_when_no_gain_is_expected() -> None:
    assert len(list(search(make("model"), 400))) < 150
