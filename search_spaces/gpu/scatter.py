"""GPUs, updates that join a tensor at computed places (scatter).

A thread computes elements of its own, going through all updates in order: those of a column, or
only those of a single place, so that no two threads meet at an element.
"""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.machine.gpu import peak_flops_per_cycle
from autotune.program.analysis import own_vars
from autotune.program.ir import For
from autotune.program.rewrite import stores_of
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import root_body
from autotune.schedule.loops.nest import Reorder
from autotune.schedule.loops.partition_scatter import PartitionScatter
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    inline_locals,
    nest_loops,
    output_name,
    own_loops,
)
from search_spaces.cpu.scatter.shape import Sizes
from search_spaces.gpu.blocks import bind_flat, thread_choices
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space

_COLUMNS, _PLACES = "columns", "places"
LOOK_CYCLES = 4.0
"""Cycles of a thread for an update of another one (assumed)."""
START_CYCLES = 1000.0
"""Cycles beside the updates (assumed)."""
THREADS_BUSY = 1024.0
"""Threads of a multiprocessor that work side by side (assumed)."""


class GpuScatterRule(Rule):
    """Scatters on GPUs, a thread for each column or place, through all updates in order."""

    name = "gpu_scatter"
    priority = 5

    def matches(self, task: Task, target: Target) -> bool:
        return target.is_gpu and task.op == "scatter"

    def space(self, task: Task, target: Target) -> Space:
        size = Sizes(task)
        ways = (_PLACES, _COLUMNS) if size.outer * size.width > 1 else (_PLACES,)
        threads = Param(name="threads", choices=thread_choices(target))
        return Space((threads, Param(name="by", choices=ways)))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        inline_locals(builder, keep=frozenset((output_name(task),)))
        start, updates = (s for s in root_body(builder.program) if isinstance(s, For))
        threads = config.number("threads")
        bind_flat(builder, own_loops(start), threads)
        _bind_updates(builder, updates, str(config["by"]), threads)
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        threads = configs["threads"].astype(np.float64)
        ones, size = np.ones(len(threads)), Sizes(task)
        dims: tuple[tuple[tuple[str, int], ...], ...] = ((("update", 1),), (("column", 1),))
        shape = (size.updates, size.width)
        places = configs["by"] == _PLACES
        elements = size.outer * size.width * np.where(places, float(size.places), 1.0)
        return TileStructure(
            extents={"update": size.updates, "column": size.width},
            reduce_axes=frozenset(),
            accesses=(
                Access(buffer="updates", item_bytes=4, shape=shape, dims=dims),
                Access(buffer="out", item_bytes=4, shape=shape, dims=dims, written=True),
            ),
            tiles=({"update": ones}, {"column": np.minimum(threads, size.width)}),
            flops=max(1, task_flops(task)),
            accumulators=ones,
            vector_axis_waste=ones,
            parallel_chunks=np.ceil(elements / threads),
            unrolled=ones,
            extra={
                "threads": threads,
                "by.places": places.astype(np.float64),
            },
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        peak = max(1, task_flops(task)) / peak_flops_per_cycle(machine)
        return Prior(cycles=_cycles(task, machine, configs), peak_cycles=peak)


def _bind_updates(builder: ScheduleBuilder, nest: For, by: str, threads: int) -> None:
    """Loops whose iterations have elements of their own outside, that over the updates inside."""
    loops = [loop.var for loop in nest_loops(nest)]
    own = own_vars(stores_of((nest,))[0].indices)
    outer = [v for v in loops if v in own]
    builder.apply(Reorder(loops=(*outer, *(v for v in loops if v not in own))))
    if by == _PLACES:
        part = f"{loops[0]}_r"
        builder.apply(PartitionScatter(loop=[*outer, *loops][0], size=1, part=part))
        outer = [part, *outer]
    bind_flat(builder, outer, threads)


def _cycles(task: Task, machine: Machine, configs: Configs) -> Column:
    """A thread for every element, or for every column."""
    size, threads = Sizes(task), configs["threads"].astype(np.float64)
    wide, held = size.outer * size.width, max(1.0, machine.target.multiprocessors * THREADS_BUSY)
    hit = machine.gpu.global_latency_cycles  # a thread's own update waits for memory
    each = size.updates * (LOOK_CYCLES + hit / size.places)
    places = np.maximum(1.0, wide * size.places / held) * each
    column = np.maximum(1.0, wide / held) * size.updates * hit
    out = np.where(configs["by"] == _PLACES, places, column)
    return np.asarray(out + START_CYCLES + threads, np.float64)


RULES.add(GpuScatterRule.name, GpuScatterRule())
