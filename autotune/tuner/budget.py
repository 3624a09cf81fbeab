"""Which task gets the next trials. In: what is known of every task. Out: shares, or why to end.

Pure: no clock, no randomness, no state. Every task gets one valid record first. Then trials go
where weight * time is expected to fall fastest per trial: how fast it fell lately, what the cost
model expects of the next candidates, and how far the task is from what is achievable. The reasons
are text, for people.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

NEAR = 1.03
"""A task within this factor of what is achievable gets no more trials."""
HOPELESS_TRIALS = 24
"""Failures without one success after which a task is given up."""
_WINDOW = 16
"""Trials over which recent improvement is taken."""
_CHUNK = 4
"""Trials given at a time: a strategy spreads a batch better than single configs."""
_OPTIMISM = 0.25
"""Share of the distance to what is achievable that the next trials of a fresh task may cover."""
_HORIZON = 64
"""Trials over which the expected gain must be worth going on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """What the budget knows of one task. Seconds per call."""

    weight: int
    """Calls per run of the model."""
    trials: int = 0
    best_s: float | None = None
    """Fastest valid record so far."""
    history: tuple[float, ...] = ()
    """Best time after each trial; infinity before the first success."""
    achievable_s: float = 0.0
    """Roofline, or what the analytical model predicts of the best config if that is less."""
    expected_s: float | None = None
    """What the strategy expects of the best config not tried; None without an opinion."""
    exhausted: bool = False
    """The strategy has nothing left to propose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to end. `min_gain`: relative end-to-end gain that is worth the next trials."""

    trials: int | None = None
    time_s: float | None = None
    min_gain: float = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Trials for one task of the next batch, and why."""

    task: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next batch; with no shares, the run ends for `reason`."""

    shares: tuple[Share, ...] = ()
    reason: str = ""


def total_s(states: tuple[TaskState, ...]) -> float:
    """Estimated seconds of one run of the model: kernels only, tasks without a time left out."""
    return sum(s.weight * s.best_s for s in states if s.best_s is not None)


def closed(state: TaskState) -> str:
    """Why a task gets no more trials; empty where it may."""
    if state.exhausted:
        return "nothing left that promises a gain"
    if state.best_s is None:
        hopeless = state.trials >= HOPELESS_TRIALS
        return f"no success in {state.trials} trials" if hopeless else ""
    if state.best_s <= state.achievable_s * NEAR:
        return f"within {NEAR - 1:.0%} of what is achievable"
    return ""


def gain_per_trial(state: TaskState) -> float:
    """Seconds of one run of the model that the next trial is expected to save."""
    if state.best_s is None:
        return 0.0
    lately = [h for h in state.history[-_WINDOW - 1 :] if h != float("inf")]
    fell = (lately[0] - lately[-1]) / max(len(lately) - 1, 1) if lately else 0.0
    distance = max(state.best_s - state.achievable_s, 0.0)
    hope = _OPTIMISM * distance / (state.trials + _CHUNK)
    if state.expected_s is not None:
        promised = max(state.best_s - max(state.expected_s, state.achievable_s), 0.0)
        hope = (hope + promised / (state.trials + _CHUNK)) / 2
    # What fell lately falls slower from now on, and never below what is achievable.
    return state.weight * min(0.5 * fell + hope, distance)


def plan(
    states: tuple[TaskState, ...], limits: Limits, *, batch: int, elapsed_s: float = 0.0
) -> Plan:
    """The next up to `batch` trials, or why the run ends."""
    used = sum(s.trials for s in states)
    if limits.time_s is not None and elapsed_s >= limits.time_s:
        return Plan(reason=f"time is up ({limits.time_s:.0f} s)")
    room = batch if limits.trials is None else min(batch, limits.trials - used)
    if limits.trials == 0:
        return Plan(reason="no trials were asked for")
    if room <= 0:
        return Plan(reason=f"all {limits.trials} trials are used")
    untimed = [n for n, s in enumerate(states) if s.best_s is None and not closed(s)]
    if untimed:
        # In rounds: a task whose first config failed does not hold up those not yet measured.
        untimed.sort(key=lambda n: (states[n].trials, n))
        first = tuple(Share(task=n, count=1, reason="no valid record yet") for n in untimed[:room])
        return Plan(shares=first)
    open_tasks = [n for n, s in enumerate(states) if not closed(s)]
    if not open_tasks:
        return Plan(reason="every task is near its limit or searched through")
    gains = [gain_per_trial(states[n]) for n in open_tasks]
    promised = max(gains) * _HORIZON
    if promised < limits.min_gain * total_s(states):
        return Plan(reason=f"expected gain is below {limits.min_gain:.1%} end to end")
    return Plan(shares=_divide(states, open_tasks, room))


def _divide(states: tuple[TaskState, ...], open_tasks: list[int], room: int) -> tuple[Share, ...]:
    """Chunk by chunk to the task that gains most, as if its earlier chunks had gained nothing."""
    given = dict.fromkeys(open_tasks, 0)
    while room > 0:
        chunk = min(_CHUNK, room)
        task = max(open_tasks, key=lambda n: (_after(states[n], given[n]), -n))
        given[task] += chunk
        room -= chunk
    return tuple(
        Share(task=n, count=count, reason=explain(states[n]))
        for n, count in given.items()
        if count
    )


def _after(state: TaskState, more: int) -> float:
    if not more:
        return gain_per_trial(state)
    last = state.history[-1] if state.history else float("inf")
    return gain_per_trial(
        dataclasses.replace(
            state, trials=state.trials + more, history=(*state.history, *(last,) * more)
        )
    )


def explain(state: TaskState) -> str:
    """Why the task gets trials, or why not, in one line."""
    why = closed(state)
    if why or state.best_s is None:
        return why or "no valid record yet"
    return (
        f"{state.weight} x {state.best_s * 1e3:.3f} ms, {state.achievable_s * 1e3:.3f} ms "
        f"achievable, expected to fall {gain_per_trial(state) * 1e6:.2f} us a trial"
    )
