"""Budget: trials go to the tasks that gain most. In: what is known of every task. Out: shares, or
why to end.

Pure: no clock, no randomness, no state. Every task gets one valid record first. Then trials go
where weight * time is expected to fall fastest per trial: what the models expect of the next
candidates, how fast it fell lately, and how little was tried. The reasons are text, for people.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

NEAR = 0.02
"""A task that may only gain this share of its time gets no more trials."""
HOPELESS_TRIALS = 24
"""Failures without one success after which a task is given up."""
HORIZON = 64
"""Trials over which the expected gain must be worth going on."""
_WINDOW = 16
"""Trials over which recent improvement is taken."""
_CHUNK = 4
"""Trials given at a time: a strategy spreads a batch better than single configs."""
_AT_ONCE = 4
"""A task of few trials gets one part in so many of a batch, or twice as many as it had: what its
first trials teach is worth more than a full batch."""
_UNKNOWN = 0.15
"""Share of a fresh task's time that no model foresees and that trials may still find. Replayed on
surveys, guided searches still found 2 % after the first trial (90th percentile: 6 %), 1 % after
four (2.5 %), 0.5 % after eight: this is twice the 90th percentile."""
_LEARNT = 4
"""Trials after which half of that is ruled out."""
_DOUBT = 16
"""Trials without improvement after which half of what a model promises is believed."""
_REACH = 16
"""Trials that find about half of what there is to gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One task as the budget sees it. Seconds per call."""

    weight: int
    """Calls per run of the model."""
    trials: int = 0
    best_s: float | None = None
    """Fastest valid record so far."""
    history: tuple[float, ...] = ()
    """Best time after each trial; infinity before the first success."""
    floor_s: float = 0.0
    """No config of the space can be faster: its least arithmetic at the device's peak."""
    expected_s: float | None = None
    """What the models expect of the best config not tried; None without an opinion."""
    exhausted: bool = False
    """The strategy has nothing left to propose."""
    near: float = NEAR
    """Share of its time that the task must be able to gain, to get trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Conditions that end a run. `min_gain`: relative end-to-end gain that is worth the next
    trials; `near`: of a single task."""

    trials: int | None = None
    time_s: float | None = None
    min_gain: float = 0.005
    near: float = NEAR
    used: int = 0
    """Trials that count, though no task of the model had them: of layouts not chosen."""
    set_aside_s: float = 0.0
    """Seconds of the time asked for that layouts took, and that timing the whole model takes."""

    @property
    def asked_s(self) -> float | None:
        """The time that was asked for."""
        return None if self.time_s is None else self.time_s + self.set_aside_s

    def without(self, seconds: float) -> Limits:
        """What is left when these are set aside."""
        if self.time_s is None:
            return self
        left_s = max(self.time_s - seconds, 0.0)
        aside_s = self.set_aside_s + self.time_s - left_s
        return dataclasses.replace(self, time_s=left_s, set_aside_s=aside_s)


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


def achievable_s(state: TaskState) -> float:
    """Seconds that more trials may reach: never above the best, never below the floor.

    What the models promise is believed less the longer nothing came of it. What they do not
    foresee is the larger the less was tried, and what was found lately makes more of it likely.
    """
    if state.best_s is None:
        return max(state.floor_s, state.expected_s or 0.0)
    best_s = state.best_s
    stale = trials_since_gain(state)
    promised = 0.0
    if state.expected_s is not None:
        promised = max(1 - state.expected_s / best_s, 0.0) * _DOUBT / (_DOUBT + stale)
    unknown = _UNKNOWN * _LEARNT / (_LEARNT + state.trials)
    gain = 1 - (1 - promised) * (1 - unknown) * (1 - 0.5 * _fell_lately(state))
    return min(best_s, max(best_s * (1 - gain), state.floor_s))


def trials_since_gain(state: TaskState) -> int:
    """Trials since the best time last fell by more than measurements scatter."""
    return sum(1 for time_s in state.history if time_s <= 1.01 * (state.best_s or 0.0))


def _fell_lately(state: TaskState) -> float:
    """Share of the time that the last trials took off. The first success is not a gain."""
    lately = [h for h in state.history[-_WINDOW - 1 :] if h != float("inf")]
    return 1 - lately[-1] / lately[0] if lately else 0.0


def closed(state: TaskState) -> str:
    """Why a task gets no more trials; empty where it may."""
    if state.exhausted:
        return "nothing left that promises a gain"
    if state.best_s is None:
        hopeless = state.trials >= HOPELESS_TRIALS
        return f"no success in {state.trials} trials" if hopeless else ""
    if state.best_s <= achievable_s(state) / (1 - state.near):
        return f"within {state.near:.0%} of what is achievable"
    return ""


def gain_per_trial(state: TaskState) -> float:
    """Seconds of one run of the model that the next trial is expected to save."""
    if state.best_s is None:
        return 0.0
    return state.weight * (state.best_s - achievable_s(state)) / _REACH


def plan(
    states: tuple[TaskState, ...], limits: Limits, *, batch: int, elapsed_s: float = 0.0
) -> Plan:
    """The next up to `batch` trials, or why the run ends."""
    states = tuple(dataclasses.replace(s, near=limits.near) for s in states)
    used = limits.used + sum(s.trials for s in states)
    if limits.time_s is not None and elapsed_s >= limits.time_s:
        return Plan(reason=f"time is up ({limits.asked_s:.0f} s)")
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
    promised = expected_gain_s(states, HORIZON)
    if promised < limits.min_gain * total_s(states):
        return Plan(reason=f"expected gain is below {limits.min_gain:.1%} end to end")
    most = {n: max(_CHUNK, room // _AT_ONCE, 2 * states[n].trials) for n in open_tasks}
    given = _divide(states, most, room)[0]
    return Plan(
        shares=tuple(
            Share(task=n, count=count, reason=explain(states[n]))
            for n, count in given.items()
            if count
        )
    )


def expected_gain_s(states: tuple[TaskState, ...], trials: int) -> float:
    """Seconds of one run of the model that this many trials are expected to save."""
    open_tasks = [n for n, s in enumerate(states) if s.best_s is not None and not closed(s)]
    return _divide(states, dict.fromkeys(open_tasks, trials), trials)[1]


def _divide(
    states: tuple[TaskState, ...], most: dict[int, int], room: int
) -> tuple[dict[int, int], float]:
    """Chunk by chunk to the task that gains most, as if its earlier chunks had gained nothing, but
    never more than it has to gain, nor more trials than its `most`. (trials per task, seconds they
    are expected to save)"""
    given = dict.fromkeys(most, 0)
    left_s = {n: gain_per_trial(states[n]) * _REACH for n in most}
    next_s = {n: gain_per_trial(states[n]) for n in most}
    saved_s = 0.0
    while room > 0 and (left := [n for n in most if given[n] < most[n]]):
        task = max(left, key=lambda n: (next_s[n], -n))
        chunk = min(_CHUNK, room, most[task] - given[task])
        saved = min(chunk * next_s[task], left_s[task])
        given[task] += chunk
        left_s[task] -= saved
        saved_s += saved
        room -= chunk
        next_s[task] = min(_after(states[task], given[task]), left_s[task])
    return given, saved_s


def _after(state: TaskState, more: int) -> float:
    """Gain per trial after `more` trials that found nothing."""
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
        f"{state.weight} x {_us(state.best_s)}, {_us(achievable_s(state))} achievable, expected "
        f"to fall {_us(gain_per_trial(state))} a trial"
    )


def _us(time_s: float) -> str:
    """Microseconds with two digits or more: kernels take nanoseconds to seconds."""
    time_us = time_s * 1e6
    return f"{time_us:,.0f} us" if time_us >= 10 else f"{time_us:.2g} us"
