"""Measuring spaces once, for replay. In: tasks, and this machine. Out: one survey per task.

Every config (or a random part of a large space) is measured briefly; the fastest tenth again, in
rounds, so that the best of the survey is not merely the luckiest. A config's time is the least
that was seen: what else runs on the machine only ever adds to it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from autotune.measure.runners.local import LocalRunner
from autotune.measure.runners.replay import Survey, load_survey, schedule_hash
from autotune.measure.types import MeasureRequest, Timing
from autotune.types import Task
from search_spaces.base import Column
from search_spaces.rules import rule_for
from search_spaces.space import Rows, Space

FOLDER = Path(__file__).parent / "data"
FRESH = FOLDER / "fresh"
"""Of tasks that no constant of the search or of the prior was chosen by."""
BRIEF = Timing(
    min_repeats=3, max_repeats=4, min_repeat_s=5e-4, budget_s=0.01, confidence=0.02,
    give_up_ratio=1.3,
)  # fmt: skip
CAREFUL = Timing(min_repeats=8, max_repeats=12, min_repeat_s=1e-3, budget_s=0.04)
_BATCH = 50
_ROUNDS = 2


def survey(name: str, task: Task, runner: LocalRunner, limit: int) -> Survey:
    """Measure up to `limit` configs of the task's space; equal schedules count once."""
    target = runner.target
    rule = rule_for(task, target)
    space = rule.space(task, target)
    rows = _rows(space, limit, space.row(rule.default(task, target)))
    schedules = [rule.schedule(task, target, space.config(row)) for row in rows]
    hashes = np.array([schedule_hash(s) for s in schedules], np.uint64)
    requests = [
        MeasureRequest(task=task, schedule=schedule, target=target, timing=BRIEF)
        for schedule in schedules
    ]
    seconds = np.full(len(rows), np.inf)
    _measure(runner, requests, np.arange(len(rows)), seconds)
    fastest = np.argsort(seconds)[: max(8, len(rows) // 10)]
    careful = [dataclasses.replace(r, timing=CAREFUL) for r in requests]
    for _ in range(_ROUNDS):
        _measure(runner, careful, fastest, seconds)
    return Survey(
        name=name,
        task=task,
        profile=runner.profile(),
        rule=rule.name,
        params=space.params,
        rows=rows,
        seconds=seconds,
        schedules=hashes,
    )


def _rows(space: Space, limit: int, default: Rows) -> Rows:
    """Random configs, the default among them."""
    rows = space.sample(np.random.default_rng(0), limit)
    rest = rows[(rows != default).any(axis=1)]
    return np.concatenate([default[None], rest[: limit - 1]])


def _measure(
    runner: LocalRunner, requests: list[MeasureRequest], places: Rows, seconds: Column
) -> None:
    """Lower `seconds` at `places` to what is measured now."""
    for start in range(0, len(places), _BATCH):
        chosen = places[start : start + _BATCH]
        best_s = float(seconds.min()) if np.isfinite(seconds).any() else None
        batch = tuple(
            dataclasses.replace(
                requests[p], timing=dataclasses.replace(requests[p].timing, best_s=best_s)
            )
            for p in chosen
        )
        for place, result in zip(chosen, runner.measure(batch), strict=True):
            seconds[place] = min(seconds[place], min(result.times_s, default=np.inf))


def surveys(folder: Path = FOLDER) -> dict[str, Survey]:
    """Every survey of a folder, by name."""
    found = (load_survey(path) for path in sorted(folder.glob("*.npz")))
    return {s.name: s for s in found}
