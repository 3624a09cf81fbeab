"""Building a kernel. In: a task, a schedule and a target. Out: `Built`, with its object code.

Candidates that are measured and kernels that are linked into a model are built by this.
"""

from __future__ import annotations

import dataclasses

from autotune.codegen import backend_for
from autotune.measure.executor import Built, kernel_symbol
from autotune.program.ir import Program
from autotune.schedule.base import Schedule, apply_schedule
from autotune.target import Target
from autotune.tasks.build import build_program
from autotune.types import Task


def build_task(
    task: Task, schedule: Schedule, target: Target, unaligned: frozenset[str] = frozenset()
) -> Built:
    """Object code of a task; `unaligned` params may begin anywhere. Raises ScheduleError or
    BuildError, and whatever a defect raises."""
    naive = build_program(task)
    if unaligned:
        params = tuple(dataclasses.replace(p, unaligned=p.name in unaligned) for p in naive.params)
        naive = dataclasses.replace(naive, params=params)
    return build_scheduled(task, apply_schedule(naive, schedule), target)


def build_scheduled(task: Task, program: Program, target: Target) -> Built:
    """Object code of a task's scheduled program. Raises BuildError, and whatever a defect does."""
    symbol = kernel_symbol(task)
    code = backend_for(target).build(program, target, symbol)
    return Built(
        symbol=symbol,
        code=code.code,
        workspace_bytes=code.workspace_bytes,
        packs=program.packs,
    )
