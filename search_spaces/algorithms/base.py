"""Algorithms: ways to compute a kernel, each with everything that depends on the way.

Add one: a file in this folder and `ALGORITHMS.add`. It says where it applies and which configs are
valid, writes the schedule, predicts cycles, and knows its schedules again, those in logs too, with
the operations that they take. Rules, priors, layouts and reports ask it: none knows a name.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.registry import Registry
from autotune.schedule.base import Schedule
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import EXACT, Task
from search_spaces.base import Column, OpenTiles
from search_spaces.builder import ScheduleBuilder
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.params import Config
from search_spaces.space import Configs, ConfigsAt

DIRECT = "direct"
"""The algorithm that computes as the definition says."""
GPU_PREFIX = "gpu_"
"""What algorithms' names on GPUs begin with: the choice is what follows."""
Mask = npt.NDArray[np.bool_]


class Algorithm(ABC):
    """A way to compute a kernel, as its schedules show it."""

    name: str
    """The choice of the param `algorithm`; on GPUs after `gpu_`."""
    reference: str = ""
    """Where it is published; empty for what the definition says."""
    error: float = 1e-5
    """Largest error of a result over the largest value of the output, of operands as they are."""
    turn: int = 0
    """When it is asked whether it knows a schedule: what is known by no trait of its own is asked
    last."""
    layout_share: float = 1.0
    """Share of direct code's time, as layouts are chosen by before tiles are."""

    @abstractmethod
    def label(self, schedule: Schedule) -> str:
        """What reports call a schedule of this algorithm; empty for one of another."""

    def flops(self, task: Task, schedule: Schedule) -> int:  # noqa: ARG002
        """Floating-point operations of one run of the task by this schedule."""
        return task_flops(task)


class TiledAlgorithm(Algorithm):
    """A way to compute convolutions and matrix products by tiles. Arrays have an entry per config;
    all configs passed are of this algorithm."""

    rank: int
    """Its place among the choices, the plainest first."""
    is_direct: bool = False
    """Whether it computes every product, as the definition does."""

    @property
    def choice(self) -> str:
        """Its value of the param `algorithm`."""
        return self.name.removeprefix(GPU_PREFIX)

    @abstractmethod
    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        """Whether it can compute the task on the target, within the accuracy asked for."""

    @abstractmethod
    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        """Apply the steps of a config; locals are inlined already."""

    @abstractmethod
    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        """Cycles until the last core, or multiprocessor, is done."""


class ContractionAlgorithm(TiledAlgorithm):
    """A way to compute convolutions and matrix products on CPUs."""

    code: int
    """Its number among the features of configs."""
    neighbours: int = 1
    """Neighbouring products along the reduction that one instruction sums."""
    descents: int = 0
    """Downhill walks from the best sampled config to the default, where few tiles are sampled."""
    is_plain: bool = False
    """Whether the loop nest that the tile structure shows is all that it does, and no less."""
    in_registers: bool = True
    """Whether a tile's sums are in vector registers while they grow."""

    @abstractmethod
    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:
        """Which configs are; params that mean nothing here must have their first value."""

    def widths(self, c: Contraction, target: Target) -> Collection[int]:  # noqa: ARG002
        """Points of a register tile (`tile_w`) beside those that divide the output."""
        return ()

    def blocks(self, c: Contraction, target: Target) -> Collection[int]:  # noqa: ARG002
        """Tiles, or points, taken at a time (`block`), beside 1."""
        return ()

    def may_prefetch(self, c: Contraction) -> bool:  # noqa: ARG002
        """Whether some config asks early for a panel of weights."""
        return False

    def open_tiles(self, c: Contraction, target: Target) -> Iterable[OpenTiles]:  # noqa: ARG002
        """Kernels that take any number of tiles, for a contraction of open sizes."""
        return ()

    def prefetch_gain(self, c: Contraction, machine: Machine) -> float:  # noqa: ARG002
        """Time with weights asked for early over that without."""
        return 1.0


Tiled = TypeVar("Tiled", bound=TiledAlgorithm)
ALGORITHMS: Registry[Algorithm] = Registry("algorithm", room="search_spaces.rules")


class Family(Generic[Tiled]):
    """Algorithms for convolutions and matrix products on one kind of machine."""

    def __init__(self, kind: type[Tiled]) -> None:
        self._kind = kind

    def members(self) -> tuple[Tiled, ...]:
        """All of them, the plainest first."""
        found = [a for a in ALGORITHMS.parts() if isinstance(a, self._kind)]
        return tuple(sorted(found, key=lambda a: a.rank))

    def applicable(self, task: Task, c: Contraction, target: Target) -> tuple[Tiled, ...]:
        """Those that can compute a contraction on the target, the plainest first."""
        if is_exact(task):
            target = dataclasses.replace(target, accuracy="strict")
        return tuple(a for a in self.members() if a.applies(task, c, target))

    def chosen_by(self, config: Config) -> Tiled:
        """The one that a config of a contraction chose."""
        return next(a for a in self.members() if a.choice == config["algorithm"])

    def of_each(
        self, configs: Configs, give: Callable[[Tiled, Configs], Column | Mask | float]
    ) -> Column:
        """What every config's algorithm gives for it; 0 where the config chose none of these."""
        chosen = configs["algorithm"]
        out = np.zeros(len(chosen))
        left = np.arange(len(chosen))
        for algorithm in self.members():
            if not len(left):
                break
            same = chosen[left] == algorithm.choice
            own, left = left[same], left[~same]
            if len(own):
                out[own] = give(algorithm, ConfigsAt(configs, own))
        return out


ON_CPUS = Family(ContractionAlgorithm)  # type: ignore[type-abstract]


def is_exact(task: Task) -> bool:
    """Whether its convolution or product takes the algorithms of accuracy `strict` only."""
    return bool(dict(task.nodes[task.anchor].attrs).get(EXACT))


def algorithm_of(schedule: Schedule) -> tuple[Algorithm, str]:
    """What a schedule computes by, and its label: direct code where no other knows it."""
    for algorithm in sorted(ALGORITHMS.parts(), key=lambda a: a.turn):
        label = algorithm.label(schedule)
        if label:
            return algorithm, label
    raise AssertionError("direct code knows every schedule")


def share_of_direct(config: Config, target: Target) -> float:
    """Share of direct code's time that a config's algorithm is taken to need, before tiles are
    chosen; 1 where it names none."""
    name = str(dict(config.items).get("algorithm", ""))
    name = f"{GPU_PREFIX}{name}" if target.is_gpu else name
    return ALGORITHMS.get(name).layout_share if name in ALGORITHMS else 1.0
