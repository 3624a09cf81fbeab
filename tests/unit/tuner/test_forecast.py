"""What a dry run expects."""

from __future__ import annotations

from autotune.tuner.budget import Limits, TaskState
from autotune.tuner.forecast import Forecast, forecast

FRESH = TaskState(weight=2)
KNOWN = TaskState(weight=1, trials=4, best_s=1e-3, history=(1e-3,) * 4)


def expect(*states: TaskState, limits: Limits | None = None) -> Forecast:
    return forecast(
        states, [2e-3] * len(states), limits or Limits(), batch=8, trial_s=0.5
    )  # fmt: skip


def test_a_run_is_expected_to_end_and_to_gain() -> None:
    guess = expect(FRESH, KNOWN)
    assert guess.reason
    assert guess.before_s == 2 * 2e-3 + 1e-3
    assert 0 < guess.after_s < guess.before_s
    assert 0 < guess.gain < 1
    assert all(guess.trials)
    assert guess.time_s == sum(guess.trials) * 0.5


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


def test_a_task_at_its_floor_is_left_alone() -> None:
    done = TaskState(weight=1, trials=4, best_s=1e-3, history=(1e-3,) * 4, floor_s=1e-3)
    assert expect(done).trials == (0,)
