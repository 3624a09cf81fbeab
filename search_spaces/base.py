"""What a rule is: it turns a task into a space of configs, and a config into a schedule.

It also describes the tile structure of every config at once, which is all that the features and
the analytical cost model need: candidates are ranked without being built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from autotune.registry import Registry
from autotune.schedule.base import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.space import Space

Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How one buffer is indexed by the nest: per buffer dimension, (axis, coefficient) pairs.

    A convolution reads rows (("oh", stride), ("kh", dilation)); the footprint of a tile along that
    dimension is 1 + sum of coefficient * (tile extent - 1), at most `shape` of the dimension."""

    buffer: str
    item_bytes: int
    shape: tuple[int, ...]
    dims: tuple[tuple[tuple[str, int], ...], ...]
    written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TileStructure:
    """The loop nest of many configs: `extents[axis]` is the whole extent of an axis, everything
    else an array of one float64 entry per config."""

    extents: Mapping[str, int]
    reduce_axes: frozenset[str]
    accesses: tuple[Access, ...]
    tiles: tuple[Mapping[str, Column], ...]
    """From the whole problem to the register tile: per level, axis -> extent covered by one
    iteration of the level's loops, axes in loop order, outermost first. Axes missing at a level
    keep the extent of the level outside."""
    flops: int
    accumulators: Column
    """Vector registers used by accumulators."""
    vector_axis_waste: Column
    """Computed over useful points: above 1 by padding to vectors and tiles, below 1 where an
    algorithm needs fewer operations than the expression (Winograd)."""
    parallel_chunks: Column
    """Independent pieces of work the threads share."""
    unrolled: Column
    """Instructions (roughly) in the innermost unrolled body."""
    extra: Mapping[str, Column]
    """Rule-specific numeric columns, appended to the features."""
    flops_per_lane: int = 2
    """Operations of a vector instruction per lane: 2 of a multiply-add, 1 of a maximum or sum."""
    at_once: Mapping[str, Column] = field(default_factory=dict)
    """Extents of axes that the innermost tile takes one after another -> what one step takes."""


class Rule(Protocol):
    """How tasks of one kind are scheduled. Add one: a file in rules/ and `RULES.add`."""

    @property
    def name(self) -> str: ...

    def matches(self, task: Task, target: Target) -> bool:
        """Whether the rule schedules this task there. The matching rule of highest priority
        wins."""
        ...

    @property
    def priority(self) -> int: ...

    def space(self, task: Task, target: Target) -> Space: ...

    def default(self, task: Task, target: Target) -> Config:
        """A config that is valid with zero trials, and good: the best guess without measuring."""
        ...

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule: ...

    def structure(
        self, task: Task, target: Target, columns: Mapping[str, npt.NDArray[np.object_] | Column]
    ) -> TileStructure:
        """Tile structure of the configs whose params are given as columns (see Space.columns)."""
        ...


RULES: Registry[Rule] = Registry("rule")


def rule_for(task: Task, target: Target) -> Rule:
    """The rule that schedules a task for a target. Every task has one: the fallback rules, of CPUs
    and of GPUs, and that of scatters, match anything."""
    rules = sorted(RULES.parts(), key=lambda r: -r.priority)
    return next(r for r in rules if r.matches(task, target))
