"""Anything, as the expression says it: loops in their order, one element at a time.

This rule is asked last, where those that know better have a defect: it has one config, whose
schedule is empty, so there is nothing in it that could be illegal. On a GPU one thread does it
all.
"""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.schedule import Scheduled
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import LAST, PLAIN, Access, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space


class PlainRule(Rule):
    """Every task, with an empty schedule; asked when all other rules have failed."""

    name = PLAIN
    priority = -1000

    def matches(self, task: Task, target: Target) -> bool:
        return True

    def space(self, task: Task, target: Target) -> Space:
        return Space((Param(name="loops", choices=("as they are",)),))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        return ScheduleBuilder(task).scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        target = machine.target
        ones = np.ones(len(configs["loops"]))
        size = max(1, task.by_role("output")[0].type.size)
        lanes = float(target.lanes())
        out = Access(
            buffer="out", item_bytes=4, shape=(size,), dims=((("element", 1),),), written=True
        )
        return TileStructure(
            extents={"element": size},
            reduce_axes=frozenset(),
            accesses=(out,),
            tiles=({"element": size * ones}, {"element": ones}),
            flops=max(1, task_flops(task)),
            accumulators=ones,
            vector_axis_waste=lanes * ones,
            parallel_chunks=ones,
            unrolled=ones,
            extra={},
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        lanes = float(machine.target.lanes())
        return Prior(cycles=np.full(len(configs["loops"]), lanes), peak_cycles=1.0)


LAST.add(PlainRule.name, PlainRule())
