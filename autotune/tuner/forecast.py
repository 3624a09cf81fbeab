"""Forecast of a run. In: what is known of every task, the limits. Out: trials, time and gain.

Plays the budget with tasks that gain as it expects, a round at a time. Nothing is measured.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.tuner.budget import Limits, TaskState, gain_per_trial, plan, total_s
from autotune.tuner.rerank import NEGLIGIBLE_SHARE, RERANK_SHARE, TOP_CANDIDATES, TURNS

MOST_TRIALS = 20_000
"""A forecast ends here."""
_PROMISED = 0.08
"""Share of a fresh task's time that the model will promise once it is asked. With this and the
next, 806, 899, 264 and 1024 trials are forecast for resnet18, mobilenetv2, minilm and resnet50 on
one core, and sums of kernels that fall by 6.0, 5.5, 6.6 and 5.8 %; it took 582, 903, 296 and 1024
trials, and sums fell by 5.1, 5.8, 2.9 and 5.3 %."""
_COMES_TRUE = 0.3
"""The budget's hope is for the good case: so much of it comes true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """`trials`: more trials of each task. Seconds of one run of the model before and after."""

    trials: tuple[int, ...]
    time_s: float
    before_s: float
    after_s: float
    reason: str
    """Why the run would end."""

    @property
    def gain(self) -> float:
        """Share of the model's time that is expected to go."""
        return 1 - self.after_s / self.before_s if self.before_s else 0.0


def forecast(
    states: Sequence[TaskState],
    asked: Sequence[TaskState],
    guesses_s: Sequence[float],
    limits: Limits,
    *,
    batch: int,
    costs_s: Sequence[float],
    surviving: float = 1.0,
) -> Forecast:
    """`asked`: the states when strategies were asked what is left, which a run knows of tasks that
    had a turn. `guesses_s`: predicted times of default schedules, for tasks never measured.
    `costs_s`: what a trial of each takes. `surviving`: share of what tasks gain that the model
    gains."""
    known = [
        s if s.best_s is not None else dataclasses.replace(s, best_s=g)
        for s, g in zip(states, guesses_s, strict=True)
    ]
    before_s = total_s(tuple(known))
    now, given = list(states), [0] * len(states)
    while True:
        spent_s = _spent_s(given, costs_s)
        if limits.time_s is not None:
            spent_s += _again_s(now, given, costs_s, limits)
        decision = plan(tuple(now), limits, batch=batch, elapsed_s=spent_s)
        if not decision.shares or sum(given) >= MOST_TRIALS:
            break
        for share in decision.shares:
            n, count = share.task, share.count
            given[n] += count
            now[n] = _later(now[n], asked[n], count, guesses_s[n])
    reached = [s if s.best_s is not None else k for s, k in zip(now, known, strict=True)]
    return Forecast(
        trials=tuple(given),
        time_s=_spent_s(given, costs_s) + _again_s(reached, given, costs_s, limits),
        before_s=before_s,
        after_s=before_s - surviving * (before_s - total_s(tuple(reached))),
        reason=decision.reason,
    )


def _again_s(
    states: Sequence[TaskState], given: Sequence[int], costs_s: Sequence[float], limits: Limits
) -> float:
    """Seconds for timing the fastest of a task once more at the end: of every task that got trials
    and weighs something, within a run's share for it."""
    least_s = NEGLIGIBLE_SHARE * total_s(tuple(states))
    again = [
        TURNS * min(TOP_CANDIDATES, s.trials)
        if n and s.best_s is not None and s.weight * s.best_s >= least_s
        else 0
        for s, n in zip(states, given, strict=True)
    ]
    limit_s = math.inf if limits.time_s is None else RERANK_SHARE * limits.time_s
    return min(_spent_s(again, costs_s), limit_s)


def _spent_s(trials: Sequence[int], costs_s: Sequence[float]) -> float:
    return math.fsum(n * cost_s for n, cost_s in zip(trials, costs_s, strict=True))


def _later(state: TaskState, asked: TaskState, trials: int, guess_s: float) -> TaskState:
    """The task after trials that went as expected."""
    expected_s = (1 - _PROMISED) * guess_s if state.best_s is None else state.expected_s
    if state.best_s is None:
        best_s = guess_s
    else:
        best_s = state.best_s - _COMES_TRUE * trials * gain_per_trial(state) / state.weight
        # What is promised moves along: it is relative to what was measured.
        expected_s = asked.expected_s if expected_s is None else expected_s
    return dataclasses.replace(
        state,
        trials=state.trials + trials,
        best_s=best_s,
        history=(*state.history, *(best_s,) * trials)[-64:],
        expected_s=None if expected_s is None else min(expected_s, best_s),
        exhausted=state.exhausted or asked.exhausted,
    )
