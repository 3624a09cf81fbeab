"""Candidates: schedules to try for a task. In: a task, a target and a tuning log. Out: candidates,
best first: the best record of exactly this task, records of similar tasks, the rule's default, the
plain default, which asks nothing of where a graph's values begin, and what the rules behind this
one say; the last of these takes the loops as they are.

A rule that raises gives no candidate, but a warning (see `autotune.defects`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cost_model
from autotune.db.types import LogStore, Record
from autotune.defects import NO_DEFECT, raised
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.program.ir import Program
from autotune.runtime.image import Source
from autotune.schedule.base import Schedule, Scheduled
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import Rule, rules_for
from search_spaces.sound import where

NEIGHBOURS = 8
"""Records of similar tasks looked at before the default is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schedule worth building. source: record, nearest, default or plain. `program`: what it
    makes of the task; None for a record's, which was not applied yet. `measured_s`: what a record
    says that it takes. `said`: what went wrong on the way to it."""

    schedule: Schedule
    source: Source
    program: Program | None = None
    config: Config | None = None
    measured_s: float | None = None
    said: tuple[str, ...] = ()


def candidates(
    task: Task,
    target: Target,
    log: LogStore | None,
    profile: DeviceProfile | None = None,
    preferred: Config | None = None,
) -> Iterator[Candidate]:
    """Lazily: similar tasks are looked up only where the exact record is missing or stale.
    `profile`: of the machine that defaults are for, if it is known. `preferred`: the first rule's
    default, where the whole model has decided it."""
    rules = tuple(rules_for(task, target))
    said: list[str] = []
    if log is not None:
        yield from recorded(task, target, log, said)
    for rule in rules:
        for place in dict.fromkeys((target, target.plain)):
            first = rule is rules[0] and place == target
            source: Source = "default" if first else "plain"
            wanted = preferred if first else None
            made = _default(rule, task, Machine.of(place, profile), said, wanted)
            if made is not None:
                yield _candidate(*made, source, said)
                said.clear()


def recorded(task: Task, target: Target, log: LogStore, said: list[str]) -> Iterator[Candidate]:
    """The best record of exactly this task, then those of similar ones. `said`: what went wrong
    since the last one; it is empty after each."""
    best = log.best(task.key, target)
    if best is not None:
        yield Candidate(
            schedule=best.schedule,
            source="record",
            config=best.config,
            measured_s=best.result.median_s,
        )
    for candidate in _nearest(next(rules_for(task, target)), task, target, log, said):
        yield candidate
        said.clear()


def _candidate(config: Config, made: Scheduled, source: Source, said: list[str]) -> Candidate:
    return Candidate(
        schedule=made.schedule,
        source=source,
        program=made.program,
        config=config,
        said=tuple(said),
    )


def _default(
    rule: Rule, task: Task, machine: Machine, said: list[str], config: Config | None = None
) -> tuple[Config, Scheduled] | None:
    """A rule's default config, if none is given, and its schedule; None where it raises, which is
    told."""
    try:
        config = config or cost_model.default(task, machine, rule)
        return config, rule.write(task, machine.target, config)
    except NO_DEFECT:
        raise
    except Exception as error:  # a defect of the rule: the next candidate is taken
        said.append(raised(where(task, rule, config), error, "another schedule is taken"))
        return None


def _nearest(
    rule: Rule, task: Task, target: Target, log: LogStore, said: list[str]
) -> Iterator[Candidate]:
    """Configs of similar tasks that are in this task's space, as schedules by its rule."""
    found = [r for r in log.nearest(task, target, NEIGHBOURS) if r.rule == rule.name]
    for config in _known(rule, task, target, found, said) if found else ():
        try:
            made = rule.write(task, target, config)
        except ScheduleError:
            continue
        except NO_DEFECT:
            raise
        except Exception as error:  # a defect of the rule: the next candidate is taken
            said.append(raised(where(task, rule, config), error, "another schedule is taken"))
            continue
        yield _candidate(config, made, "nearest", said)


def _known(
    rule: Rule, task: Task, target: Target, found: list[Record], said: list[str]
) -> tuple[Config, ...]:
    """The records' configs that the task's space has."""
    try:
        space = rule.space(task, target)
        today = (space.as_of_today(r.config) for r in found)
        return tuple(dict.fromkeys(c for c in today if c is not None))
    except NO_DEFECT:
        raise
    except Exception as error:  # a defect of the rule: the next candidate is taken
        said.append(raised(where(task, rule), error, "another schedule is taken"))
        return ()
