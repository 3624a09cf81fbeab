"""Which schedules to try for a task. In: a task, a target and a tuning log. Out: candidates, best
first: the best record of exactly this task, records of similar tasks, the rule's default, and the
plain default: it asks nothing of where a graph's values begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import search_spaces.rules  # noqa: F401 (registers the rules)
from autotune.db.types import Store
from autotune.errors import ScheduleError
from autotune.schedule.base import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import Rule, rule_for

NEIGHBOURS = 8
"""Records of similar tasks looked at before the default is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schedule worth building. source: record, nearest, default or plain."""

    schedule: Schedule
    source: str


def candidates(task: Task, target: Target, log: Store | None) -> Iterator[Candidate]:
    """Lazily: similar tasks are looked up only where the exact record is missing or stale."""
    rule = rule_for(task, target)
    if log is not None:
        best = log.best(task.key, target)
        if best is not None:
            yield Candidate(schedule=best.schedule, source="record")
        yield from _nearest(rule, task, target, log)
    config = rule.default(task, target)
    yield Candidate(schedule=rule.schedule(task, target, config), source="default")
    if target.plain != target:
        config = rule.default(task, target.plain)
        yield Candidate(schedule=rule.schedule(task, target.plain, config), source="plain")


def _nearest(rule: Rule, task: Task, target: Target, log: Store) -> Iterator[Candidate]:
    """Configs of similar tasks that are in this task's space, as schedules by its rule."""
    found = [r for r in log.nearest(task, target, NEIGHBOURS) if r.rule == rule.name]
    if not found:
        return
    space = rule.space(task, target)
    today = (space.as_of_today(r.config) for r in found)
    for config in dict.fromkeys(c for c in today if c is not None):
        try:
            schedule = rule.schedule(task, target, config)
        except ScheduleError:
            continue
        yield Candidate(schedule=schedule, source="nearest")
