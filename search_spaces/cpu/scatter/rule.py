"""Updates that join a tensor at computed places, one after the other (scatter).

On CPUs the columns of an update are vectors. Threads take columns of their own, or places of their
own (each looks at all updates and leaves out the others'), or one of them does it all: what is
cheapest depends on how wide updates are.
"""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.program.ir import For
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import root_body
from autotune.schedule.loops.nest import Parallel, Reorder
from autotune.schedule.loops.partition_scatter import PartitionScatter
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    inline_locals,
    lanes_of,
    nest_loops,
    output_name,
    own_loops,
    schedule_elementwise,
    share,
    vectorize_loop,
)
from search_spaces.cpu.scatter.shape import Sizes
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space

_ALONE, _COLUMNS, _PLACES = "alone", "columns", "places"
UPDATE_CYCLES = 6.0
"""Cycles of an update (assumed, as all constants here)."""
VECTOR_CYCLES = 2.5
"""Cycles of each vector of it."""
LOOK_CYCLES = 2.5
"""Cycles of looking at an update that is another thread's."""
MISPREDICT_CYCLES = 12.0
"""Cycles of guessing wrong whose it is."""


class ScatterRule(Rule):
    """Scatters, with vectors along an update, and threads by columns, by places, or one alone."""

    name = "scatter"
    priority = 5

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and task.op == "scatter"

    def space(self, task: Task, target: Target) -> Space:
        unroll = Param(name="unroll", choices=(1, 2, 4, 8))
        return Space((unroll, Param(name="by", choices=_choices(task, target))))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        inline_locals(builder, keep=frozenset((output_name(task),)))
        start, updates = (s for s in root_body(builder.program) if isinstance(s, For))
        by = str(config["by"])
        loops = [loop.var for loop in nest_loops(start)]
        schedule_elementwise(builder, target, loops, config.number("unroll"))
        _schedule_updates(builder, target, updates, by, config.number("unroll"))
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        target = machine.target
        ones = np.ones(len(configs["by"]))
        size = Sizes(task)
        unroll = configs["unroll"].astype(np.float64)
        dims: tuple[tuple[tuple[str, int], ...], ...] = ((("update", 1),), (("column", 1),))
        shape = (size.updates, size.width)
        accesses = (
            Access(buffer="updates", item_bytes=4, shape=shape, dims=dims),
            Access(buffer="out", item_bytes=4, shape=shape, dims=dims, written=True),
        )
        return TileStructure(
            extents={"update": size.updates, "column": size.width},
            reduce_axes=frozenset(),
            accesses=accesses,
            tiles=({"update": ones}, {"column": np.minimum(unroll, size.width)}),
            flops=max(1, task_flops(task)),
            accumulators=ones,
            vector_axis_waste=ones,
            parallel_chunks=np.where(configs["by"] == _ALONE, 1.0, float(target.threads)),
            unrolled=unroll,
            extra={
                "by.columns": (configs["by"] == _COLUMNS).astype(np.float64),
                "by.places": (configs["by"] == _PLACES).astype(np.float64),
                "unroll": unroll,
            },
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        target = machine.target
        peak = max(1, task_flops(task)) / (2 * target.lanes() * target.threads)
        return Prior(cycles=_cycles(task, target, configs), peak_cycles=peak)


def _choices(task: Task, target: Target) -> tuple[str, ...]:
    size, lanes = Sizes(task), lanes_of(task, target)
    if target.threads == 1 or size.updates * size.width == 0:
        return (_ALONE,)
    out = [_ALONE]
    if size.outer >= target.threads or size.last >= 2 * lanes:
        out.append(_COLUMNS)
    if size.outer == 1 and size.places > 1:
        out.append(_PLACES)
    return tuple(out)


def _schedule_updates(
    builder: ScheduleBuilder, target: Target, nest: For, by: str, unroll: int
) -> None:
    """Vectors along the columns where these share a place, the rest among threads."""
    loops, lanes = [loop.var for loop in nest_loops(nest)], lanes_of(builder.task, target)
    size, first, last = Sizes(builder.task), loops[0], loops[-1]
    outer = own_loops(nest) if size.outer >= target.threads else []
    if by == _COLUMNS and not outer:
        block = -(-size.last // (lanes * target.threads)) * lanes
        builder.split(last, block, f"{last}_c", f"{last}_i")
        builder.apply(Reorder(loops=(f"{last}_c", *loops[:-1])))
        outer, last = [f"{last}_c"], f"{last}_i"
    if by == _PLACES:
        part = -(-size.places // target.threads)
        builder.apply(PartitionScatter(loop=first, size=part, part=f"{first}_r"))
        builder.apply(Parallel(loop=f"{first}_r"))
    if size.last > 1:
        vectorize_loop(builder, last, lanes, unroll)
    if by == _COLUMNS:
        share(builder, target, outer, f"{first}_p")


def _cycles(task: Task, target: Target, configs: Configs) -> Column:
    """Cycles until the last thread, or the device, is done."""
    size = Sizes(task)
    many = float(size.outer * size.updates * (size.width // size.last))
    by, lanes, threads = configs["by"], lanes_of(task, target), target.threads
    unroll = configs["unroll"].astype(np.float64)
    vectors = np.ceil(size.last / lanes)
    steps = np.ceil(vectors / unroll)
    alone = many * (UPDATE_CYCLES + VECTOR_CYCLES * vectors + steps)
    parted = many / threads * (UPDATE_CYCLES + VECTOR_CYCLES * vectors + steps)
    if size.outer < threads:
        parted = many * (UPDATE_CYCLES + (VECTOR_CYCLES * vectors + steps) / threads)
    claimed = many * LOOK_CYCLES + many / threads * (
        MISPREDICT_CYCLES + UPDATE_CYCLES + VECTOR_CYCLES * vectors + steps
    )
    out = np.where(by == _COLUMNS, parted, np.where(by == _PLACES, claimed, alone))
    start = size.size / lanes * (1.0 + 0.5 / unroll) / threads
    return np.asarray(out + start, np.float64)


RULES.add(ScatterRule.name, ScatterRule())
