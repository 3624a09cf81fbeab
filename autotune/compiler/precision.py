"""Which products a lower precision leaves as they are: it is asked for to be fast.

In: what was chosen for every task. Out: a line for people, or none.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.compiler.choose import Candidate
from autotune.schedule.memory.cast import Cast
from autotune.target import Target
from autotune.types import Task
from search_spaces.cpu.contraction.shape import is_contraction


def kept_float32(chosen: Mapping[Task, Candidate], target: Target) -> tuple[str, ...]:
    """Products of a model for bfloat16 on a CPU that are not rounded, if there are some."""
    if target.is_gpu or target.precision != "bfloat16":
        return ()
    schedules = [c.schedule for task, c in chosen.items() if is_contraction(task, short=False)]
    kept = sum(not any(isinstance(step, Cast) for step in s) for s in schedules)
    if not kept:
        return ()
    return (f"{kept} of {len(schedules)} products stay float32: bf16 is not faster for them",)
