"""Products that stay in float32 where a lower precision was asked for, as it would not be faster.

In: what is chosen for every task. Out: a line for people, or none.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotune.schedule.base import Schedule
from autotune.schedule.memory.cast import Cast
from autotune.target import Target
from autotune.types import Task
from search_spaces.cpu.contraction.shape import is_contraction


def kept_float32(chosen: Iterable[tuple[Task, Schedule]], target: Target) -> tuple[str, ...]:
    """Products of a model for bfloat16 on a CPU that are not rounded, if there are some. Nothing
    is asked for of other targets."""
    if target.is_gpu or target.precision != "bfloat16":
        return ()
    products = [schedule for task, schedule in chosen if is_contraction(task, short=False)]
    kept = sum(not any(isinstance(step, Cast) for step in schedule) for schedule in products)
    if not kept:
        return ()
    return (f"{kept} of {len(products)} products stay float32: bf16 is not faster for them",)
