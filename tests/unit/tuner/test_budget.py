from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.tuner.budget import (
    HOPELESS_TRIALS,
    Limits,
    TaskState,
    achievable_s,
    closed,
    expected_gain_s,
    explain,
    gain_per_trial,
    plan,
)

SECONDS = st.floats(1e-6, 1.0)


def timed(
    weight: int = 1,
    best_s: float = 1e-3,
    floor_s: float = 1e-4,
    trials: int = 4,
    expected_s: float | None = None,
) -> TaskState:
    return TaskState(
        weight=weight,
        trials=trials,
        best_s=best_s,
        history=(best_s,) * trials,
        floor_s=floor_s,
        expected_s=expected_s,
    )


@st.composite
def task_states(draw: st.DrawFn) -> TaskState:
    history = draw(st.lists(SECONDS, max_size=20).map(lambda h: tuple(sorted(h, reverse=True))))
    failures = draw(st.integers(0, 30))
    return TaskState(
        weight=draw(st.integers(1, 50)),
        trials=len(history) + failures,
        best_s=history[-1] if history else None,
        history=(math.inf,) * failures + history,
        floor_s=draw(st.floats(0.0, 1e-3)),
        expected_s=draw(st.none() | SECONDS),
        exhausted=draw(st.booleans()),
    )


STATES = st.lists(task_states(), min_size=1, max_size=8).map(tuple)


@settings(max_examples=200)
@given(STATES, st.integers(1, 20), st.none() | st.integers(0, 300))
def test_a_plan_stays_within_the_batch_and_the_trials(
    states: tuple[TaskState, ...], batch: int, trials: int | None
) -> None:
    decision = plan(states, Limits(trials=trials), batch=batch)
    given_out = sum(s.count for s in decision.shares)
    assert given_out <= batch
    if trials is not None:
        assert given_out <= max(0, trials - sum(s.trials for s in states))


@settings(max_examples=200)
@given(STATES, st.integers(1, 20))
def test_shares_are_for_open_tasks_once_each_and_say_why(
    states: tuple[TaskState, ...], batch: int
) -> None:
    decision = plan(states, Limits(), batch=batch)
    tasks = [s.task for s in decision.shares]
    assert len(set(tasks)) == len(tasks)
    assert all(not closed(states[n]) for n in tasks)
    assert all(s.reason and s.count > 0 for s in decision.shares)
    assert bool(decision.reason) != bool(decision.shares)


@settings(max_examples=100)
@given(STATES, st.integers(1, 20))
def test_tasks_without_a_record_come_before_all_others(
    states: tuple[TaskState, ...], batch: int
) -> None:
    waiting = {n for n, s in enumerate(states) if s.best_s is None and not closed(s)}
    decision = plan(states, Limits(), batch=batch)
    if waiting:
        assert {s.task for s in decision.shares} <= waiting
        assert len(decision.shares) == min(batch, len(waiting))


@settings(max_examples=100)
@given(task_states())
def test_expected_gain_is_finite_and_never_more_than_the_distance(state: TaskState) -> None:
    gain = gain_per_trial(state)
    limit = state.weight * max((state.best_s or 0.0) - state.floor_s, 0.0)
    assert 0.0 <= gain <= limit * (1 + 1e-9)


def test_heavier_tasks_get_more() -> None:
    decision = plan((timed(weight=1), timed(weight=30)), Limits(), batch=12)
    counts = {s.task: s.count for s in decision.shares}
    assert counts.get(1, 0) > counts.get(0, 0)


def test_a_task_that_falls_gets_more_than_one_that_rests() -> None:
    falling = dataclasses.replace(timed(trials=8), history=(8e-3, 6e-3, 4e-3, 3e-3, 2e-3, 1e-3))
    decision = plan((timed(trials=8), falling), Limits(), batch=4)
    assert [s.task for s in decision.shares] == [1]


def test_equal_tasks_share_a_batch() -> None:
    decision = plan((timed(), timed()), Limits(), batch=8)
    assert [s.count for s in decision.shares] == [4, 4]


def test_a_task_near_its_limit_is_closed() -> None:
    near = timed(best_s=1.015e-4, floor_s=1e-4)
    assert "achievable" in closed(near)
    assert "achievable" in explain(near)
    assert plan((near,), Limits(), batch=8).reason


@pytest.mark.parametrize(
    ("best_s", "words"),
    [(1.234e-8, "3 x 0.012 us, "), (1.06e-6, "3 x 1.1 us, "), (0.012345, "3 x 12,345 us, ")],
)
def test_times_of_all_sizes_can_be_read(best_s: float, words: str) -> None:
    why = explain(timed(best_s=best_s, floor_s=best_s / 2, weight=3, trials=1))
    assert why.startswith(words)
    assert "achievable, expected to fall" in why


def test_a_task_that_never_works_is_given_up() -> None:
    assert closed(TaskState(weight=1, trials=HOPELESS_TRIALS)).startswith("no success")


def test_a_run_ends_when_the_gain_is_too_small() -> None:
    open_but_light = timed(best_s=1e-3, floor_s=0.0, trials=20)
    heavy_but_done = timed(weight=1000, floor_s=0.999e-3)
    assert not closed(open_but_light)
    decision = plan((open_but_light, heavy_but_done), Limits(), batch=8)
    assert "expected gain" in decision.reason


def test_a_higher_wanted_gain_ends_a_run_earlier() -> None:
    state = timed(best_s=1e-3, floor_s=0.0, trials=16)
    assert plan((state,), Limits(min_gain=0.01), batch=8).shares
    assert not plan((state,), Limits(min_gain=0.1), batch=8).shares


@settings(max_examples=100)
@given(task_states())
def test_what_is_achievable_is_never_above_the_best(state: TaskState) -> None:
    if state.best_s is not None:
        assert 0.0 <= achievable_s(state) <= state.best_s


def test_a_fresh_task_far_above_its_floor_is_open() -> None:
    assert not closed(timed(trials=1, best_s=1e-3, floor_s=0.5e-3))


def test_a_promise_is_believed_less_the_longer_nothing_comes_of_it() -> None:
    fresh, stale = (timed(trials=n, floor_s=0.0, expected_s=5e-4) for n in (4, 60))
    assert achievable_s(fresh) < achievable_s(stale) < 1e-3


def test_without_a_promise_a_task_closes_after_many_trials_without_gain() -> None:
    trials = [n for n in range(1, 200) if not closed(timed(trials=n, floor_s=0.0))]
    assert 16 < max(trials) < 100


def test_the_expected_gain_grows_with_the_trials_up_to_what_is_achievable() -> None:
    states = (timed(floor_s=0.0), timed(weight=3, floor_s=0.0))
    few, many = (expected_gain_s(states, n) for n in (8, 4000))
    assert 0 < few < many
    most = sum(s.weight * (1e-3 - achievable_s(s)) for s in states)
    assert many <= most * (1 + 1e-9)


def test_a_run_ends_when_time_is_up() -> None:
    decision = plan((timed(),), Limits(time_s=10.0), batch=8, elapsed_s=10.0)
    assert decision.reason == "time is up (10 s)"


def test_time_that_was_set_aside_counts_as_asked_for() -> None:
    limits = Limits(time_s=10.0).without(3.0)
    assert limits.time_s == 7.0
    assert plan((timed(),), limits, batch=8, elapsed_s=7.0).reason == "time is up (10 s)"
    assert limits.without(8.0).time_s == 0.0
    assert limits.without(8.0).asked_s == 10.0
    assert Limits().without(3.0) == Limits()


def test_a_fresh_task_gets_a_part_of_a_batch_only() -> None:
    (share,) = plan((timed(trials=1),), Limits(), batch=16).shares
    assert share.count == 4
    (share,) = plan((timed(trials=8),), Limits(), batch=16).shares
    assert share.count == 16


def test_how_near_its_limit_a_task_is_left_can_be_said() -> None:
    near = timed(best_s=1.015e-4, floor_s=1e-4)
    assert plan((near,), Limits(near=0.0, min_gain=0.0), batch=4).shares
