"""Schedules: tuples of small frozen steps, each a Program -> Program function.

A step checks its own legality and raises ScheduleError. As JSON a step is
{"step": NAME, field: value, ...}; a schedule is the list of its steps.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from autotune.errors import ScheduleError
from autotune.program.ir import Program
from autotune.registry import Registry
from autotune.schedule.aliases import FORMER, RENAMED
from autotune.types import tuples


class Step(Protocol):
    """A frozen dataclass with a `step` name; fields are ints, strings and tuples of those."""

    step: ClassVar[str]

    def apply(self, program: Program) -> Program:
        """The rewritten program. Raises ScheduleError where the step is not legal."""
        ...


Schedule = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule with the program that it makes of its task, so that who builds it need not apply
    the steps again."""

    schedule: Schedule
    program: Program


STEPS: Registry[type[Step]] = Registry("step")
S = TypeVar("S")


def register(cls: type[S]) -> type[S]:
    """Class decorator: make a step known under its `step` name."""
    STEPS.add(cls.step, cls)  # type: ignore[attr-defined, arg-type]
    return cls


def apply_schedule(program: Program, schedule: Schedule) -> Program:
    """Apply every step in order; an error names the step."""
    for number, step in enumerate(schedule):
        try:
            program = step.apply(program)
        except ScheduleError as error:
            raise ScheduleError(f"step {number} {step}: {error}") from None
    return program


def schedule_to_json(schedule: Schedule) -> list[dict[str, Any]]:
    return [{"step": s.step, **_fields(s)} for s in schedule]


def _fields(step: Step) -> dict[str, Any]:
    """Fields are plain values: nothing has to be copied, as `asdict` would at several times the
    cost."""
    return {name: getattr(step, name) for name in _names(type(step))}


@functools.cache
def _names(kind: type[Step]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]


def spellings(schedule: Schedule) -> list[list[dict[str, Any]]]:
    """The schedule as JSON under every name that logs may hold it by: first as it is written now,
    then as earlier releases wrote it, where that differs."""
    now = schedule_to_json(schedule)
    former = [s | {"step": FORMER.get(s["step"], s["step"])} for s in now]
    return [now] if former == now else [now, former]


def schedule_from_json(data: Sequence[Mapping[str, Any]]) -> Schedule:
    """Inverse of `schedule_to_json`, of former names of steps too; an unknown step or field is a
    ScheduleError."""
    out: list[Step] = []
    for item in data:
        fields = {k: tuples(v) for k, v in item.items() if k != "step"}
        name = RENAMED.get(item.get("step", ""), item.get("step", ""))
        if name not in STEPS:
            raise ScheduleError(f"unknown step {name!r}; known: {', '.join(STEPS)}")
        try:
            out.append(STEPS.get(name)(**fields))
        except TypeError as error:
            raise ScheduleError(f"step {name}: {error}") from None
    return tuple(out)
