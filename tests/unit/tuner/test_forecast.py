"""What a dry run expects."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.tuner.budget import Limits, TaskState
from autotune.tuner.forecast import Forecast, forecast

FRESH = TaskState(weight=2)
KNOWN = TaskState(weight=1, trials=4, best_s=1e-3, history=(1e-3,) * 4)


def expect(
    *states: TaskState,
    asked: tuple[TaskState, ...] = (),
    limits: Limits | None = None,
    surviving: float = 1.0,
) -> Forecast:
    guesses_s, costs_s = [2e-3] * len(states), [0.5] * len(states)
    return forecast(
        states,
        asked or states,
        guesses_s,
        limits or Limits(),
        batch=8,
        costs_s=costs_s,
        surviving=surviving,
    )


def test_a_run_is_expected_to_end_and_to_gain() -> None:
    guess = expect(FRESH, KNOWN)
    assert guess.reason
    assert guess.before_s == 2 * 2e-3 + 1e-3
    assert 0 < guess.after_s < guess.before_s
    assert 0 < guess.gain < 1
    assert all(guess.trials)
    # Of each task the three fastest are timed twice more at the end.
    assert guess.time_s == (sum(guess.trials) + 2 * 6) * 0.5


def test_a_fresh_task_takes_more_trials_than_one_that_was_searched() -> None:
    searched = TaskState(weight=1, trials=64, best_s=2e-3, history=(2e-3,) * 64)
    guess = expect(TaskState(weight=1), searched)
    assert guess.trials[0] > guess.trials[1]


def test_limits_hold() -> None:
    assert sum(expect(FRESH, KNOWN, limits=Limits(trials=10)).trials) == 10 - KNOWN.trials
    assert expect(FRESH, KNOWN, limits=Limits(time_s=5.0)).time_s <= 5.0 + 8 * 0.5


def test_a_higher_wanted_gain_takes_fewer_trials() -> None:
    few, many = (expect(FRESH, KNOWN, limits=Limits(min_gain=g)) for g in (0.05, 0.005))
    assert sum(few.trials) < sum(many.trials)


def test_a_model_gains_a_part_of_what_its_tasks_gain() -> None:
    whole, half = expect(FRESH, KNOWN), expect(FRESH, KNOWN, surviving=0.5)
    assert half.gain == pytest.approx(whole.gain / 2)
    assert half.trials == whole.trials


def test_every_task_has_its_cost() -> None:
    guess = forecast(
        (FRESH, KNOWN), (FRESH, KNOWN), (2e-3, 2e-3), Limits(), batch=8, costs_s=(0.1, 2.0)
    )
    assert guess.time_s == pytest.approx(0.1 * (guess.trials[0] + 6) + 2.0 * (guess.trials[1] + 6))


def test_a_run_that_has_ended_is_not_expected_to_go_on() -> None:
    """Whatever strategies promise when they are asked: a run does not ask before it goes on."""
    ended = TaskState(weight=1, trials=64, best_s=2e-3, history=(2e-3,) * 64)
    asked = dataclasses.replace(ended, expected_s=1e-3)
    assert expect(ended, asked=(asked,)).trials == (0,)


def test_what_strategies_promise_counts_once_a_task_has_its_turn() -> None:
    promising = dataclasses.replace(KNOWN, expected_s=0.8 * 1e-3)
    few, many = expect(KNOWN), expect(KNOWN, asked=(promising,))
    assert 0 < sum(few.trials) < sum(many.trials)


def test_nothing_is_expected_of_a_task_that_is_searched_through() -> None:
    done = dataclasses.replace(KNOWN, exhausted=True)
    assert 0 < sum(expect(KNOWN, asked=(done,)).trials) <= 8


def test_a_task_at_its_floor_is_left_alone() -> None:
    done = TaskState(weight=1, trials=4, best_s=1e-3, history=(1e-3,) * 4, floor_s=1e-3)
    assert expect(done).trials == (0,)
