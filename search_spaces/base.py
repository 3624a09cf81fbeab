"""Rules: each turns a task into a space of configs, and a config into a schedule.

It also describes the tile structure of every config at once, which is all that the features and
the analytical cost model need: candidates are ranked without being built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from autotune.defects import raised
from autotune.machine import Machine
from autotune.registry import Registry
from autotune.schedule.base import Schedule, Scheduled
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.space import Configs, Space

Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The indices of one buffer in the nest: per buffer dimension, (axis, coefficient) pairs.

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
    modelled: npt.NDArray[np.bool_] | None = None
    """Configs whose algorithm computes other points than the nest has: what they compute over
    useful points is what the prior makes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Predicted times of a rule's configs."""

    cycles: Column
    peak_cycles: float
    """Cycles, counted in the same way, of the task's multiply-adds at the peak of one core (of a
    GPU: of all of it). Only the ratio to them is believed: it becomes seconds by the device's
    measured peak."""
    means: Literal["time", "work", "order"] = "time"
    """time: cycles until the last thread is done, which the prediction is. work: of one thread for
    all the work; the prediction is the mean, by ratio, with what the nest's footprint says.
    order: which config to begin with; the footprint alone predicts seconds."""

    @property
    def relative(self) -> Column:
        """Cycles over those at the peak."""
        return np.asarray(self.cycles / self.peak_cycles)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBlocks:
    """How a kernel goes through extents that only a run knows: in blocks whose lengths are params
    of its config, whatever the extents are."""

    extents: Mapping[str, int]
    """By param, what its blocks cut."""
    times: int
    """How often all of them are gone through."""
    tried: tuple[Mapping[str, int], ...]
    """Lengths worth a kernel each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTiles:
    """A kernel that takes any number of tiles, in groups of a length that its config has."""

    settled: Mapping[str, int | str]
    """Params that make it such a kernel; `block` of a sample is how many tiles that has."""
    lengths: tuple[int, ...]
    """Output points of a tile along the outer dimensions, which are no shorter."""
    count: int
    """Tiles."""
    group: int
    weight_bytes: int
    """Bytes that are read once for all tiles."""
    tile_bytes: int
    """Bytes of a tile that stages hand on: all tiles are written by one before the next reads."""


class Rule(Protocol):
    """The scheduling of tasks of one kind. Add one: a file in cpu/ or gpu/ and `RULES.add`."""

    @property
    def name(self) -> str: ...

    def matches(self, task: Task, target: Target) -> bool:
        """Whether the rule schedules this task there. The matching rule of highest priority
        wins."""
        ...

    @property
    def priority(self) -> int: ...

    def space(self, task: Task, target: Target) -> Space: ...

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        """The config's schedule, whose steps were applied one by one. Raises ScheduleError where
        one is not legal."""
        ...

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        """The schedule alone, for who measures it elsewhere or looks it up."""
        return self.write(task, target, config).schedule

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        """Tile structure of the configs whose params are given as columns (see Space.columns)."""
        ...

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        """Cycles that these configs should take, without measuring."""
        ...

    def open_blocks(self, task: Task, target: Target) -> OpenBlocks | None:  # noqa: ARG002
        """Blocks in which one kernel does for all sizes of a task; None where it does not,
        or none of this rule's choosing."""
        return None

    def open_tiles(self, task: Task, target: Target) -> Iterable[OpenTiles]:  # noqa: ARG002
        """Kernels that take any number of tiles, worth trying for a task of open sizes."""
        return ()

    @property
    def packing_params(self) -> tuple[str, ...]:
        """Params that say how a kernel's weights lie: kernels that have the same values of these
        read one copy."""
        return ()

    @property
    def sampled_rows(self) -> int:
        """Configs among which the prior looks for the default."""
        return 20_000

    def descents(self, task: Task, best: Config) -> int:  # noqa: ARG002
        """From how many of these the default is looked for downhill, `best` being the first; 0:
        it is the default."""
        return 0


RULES: Registry[Rule] = Registry("rule", room="search_spaces.rules")
LAST: Registry[Rule] = Registry("last rule", room="search_spaces.rules")
"""Rules that no task is meant for: asked where the others have a defect."""


PLAIN = "plain"
"""The rule that takes loops as they are: it is asked last, of everything, and never raises."""


def rules_for(task: Task, target: Target) -> Iterator[Rule]:
    """The rules that schedule a task for a target, best first; the last one is `plain`."""
    for rule in (*sorted(RULES.parts(), key=lambda r: -r.priority), *LAST.parts()):
        try:
            matches = rule.matches(task, target)
        except Exception as error:  # it ends no run: the others are asked
            raised(f"{task.key}: rule {rule.name} raises", error, "it is left out")
            continue
        if matches:
            yield rule


def rule_for(task: Task, target: Target) -> Rule:
    """The rule that schedules a task for a target. Every task has one: the fallback rules, of CPUs
    and of GPUs, and that of scatters, match anything."""
    return next(rules_for(task, target))
