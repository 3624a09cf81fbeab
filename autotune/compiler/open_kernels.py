"""Kernels that serve all sizes. In: a task of open sizes. Out: programs, each with what a call of
it is predicted to cost at any size.

A kernel is scheduled for small outputs, by the rules that schedule any task, and run in strips
(`autotune.tasks.strips`): several, of which the cheapest at a set of sizes is called. What is not
the same at every place takes the schedule of representative sizes, with its loops as long as a
call says.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import cost_model
from autotune.compiler.strip_lengths import strip_lengths
from autotune.defects import NO_DEFECT
from autotune.errors import AutotuneError
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.schedule.base import Schedule, apply_schedule
from autotune.sizes import ceil_div, surely_at_most
from autotune.tasks.at_sizes import task_at, task_symbols
from autotune.tasks.build import build_program
from autotune.tasks.samples import open_extents, sample_task
from autotune.tasks.strips import in_strips
from autotune.types import Task
from search_spaces.rules import rules_for

Sizes = Mapping[str, int]
STRIPS = 12
"""Kernels of a task, for strips of different lengths."""


class NoOpenKernelError(AutotuneError):
    """A task that has no kernel for all sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenKernel:
    """A program for all sizes for which it does: `extents` are at least `lengths`."""

    program: Program
    schedule: Schedule
    extents: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    seconds: float = 0.0
    """Predicted, of one strip."""

    @property
    def strips(self) -> int:
        """Strips that a call runs: an expression of sizes."""
        pairs = zip(self.extents, self.lengths, strict=True)
        return math.prod(ceil_div(extent, length) for extent, length in pairs)


def strip_kernels(
    task: Task, machine: Machine, sizes: Sizes, said: list[str]
) -> tuple[OpenKernel, ...]:
    """Kernels of a task, one of which does for any sizes; none where the task is not the same at
    every place. `sizes`: representative ones; `said`: gets what was in the way."""
    found = tuple(_in_strips(task, machine, sizes, said))
    covered = any(all(map(surely_at_most, k.lengths, k.extents)) for k in found)
    return found if covered else ()


def _in_strips(
    task: Task, machine: Machine, sizes: Sizes, said: list[str]
) -> Iterator[OpenKernel]:
    extents = open_extents(task)
    for lengths in strip_lengths(task, STRIPS, machine):
        try:
            small = sample_task(task, lengths, sizes)
            rule, config, made = cost_model.default_of(small, machine)
            program = in_strips(made.program, task, small, parallel=machine.target.threads > 1)
        except NO_DEFECT:
            raise
        except Exception as error:
            said.append(str(error))
            continue
        seconds = cost_model.predict(small, machine, [config], rule).seconds
        yield OpenKernel(
            program=program,
            schedule=made.schedule,
            extents=extents,
            lengths=tuple(lengths),
            seconds=float(seconds[0]),
        )


def whole_kernels(
    task: Task, machine: Machine, sizes: Sizes, said: list[str]
) -> Iterator[OpenKernel]:
    """Kernels each of which does for any sizes, the better ones first: schedules of representative
    sizes, on loops of any length."""
    there = task_at(task, sizes)
    symbols = tuple(sorted(s.name for s in task_symbols(task)))
    for rule in rules_for(there, machine.target):
        try:
            config = cost_model.default(there, machine, rule)
            schedule = rule.schedule(there, machine.target, config)
            program = apply_schedule(build_program(task), schedule)
        except NO_DEFECT:
            raise
        except Exception as error:
            said.append(str(error))
            continue
        yield OpenKernel(program=dataclasses.replace(program, symbols=symbols), schedule=schedule)
