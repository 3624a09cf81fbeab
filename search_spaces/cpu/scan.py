"""Prefix sums (scan), on CPUs.

Columns side by side are vectors; where there are too few, `rows` of them go through the dimension
together, so that no addition waits for the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.program.ir import For
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import root_body
from autotune.schedule.loops.jam import Jam
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.loops.peel_ends import PeelEnds
from autotune.schedule.loops.specialize import Specialize
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    lanes_of,
    nest_loops,
    schedule_elementwise,
    share,
)
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space
from search_spaces.windows import copies_of

ROWS_SHARE_OF_L1 = 0.2
"""Share of the innermost cache that a block of a row may take: its sums, those before and data are
there at a time."""
CHAIN_CYCLES = 8.0
"""Cycles from a sum in memory to the next one (assumed, as all constants here)."""
SUM_CYCLES = 1.0
"""Cycles of a sum that waits for none."""
ITERATION_CYCLES = 1.0
"""Cycles of an iteration."""
EVICTED_CYCLES = 6.0
"""Cycles that a sum waits for a line that others have pushed out of the innermost cache."""
COPY_CYCLES = 2.0
"""Cycles to copy a vector."""


class ScanRule(Rule):
    """Prefix sums, with vectors across columns and several columns in turns."""

    name = "scan"
    priority = 5

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and task.op == "scan"

    def space(self, task: Task, target: Target) -> Space:
        return Space((Param(name="together", choices=(1, 2, 4, 8, 16)),))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        copy, *sums = (s for s in root_body(builder.program) if isinstance(s, For))
        loops = [[loop.var for loop in nest_loops(nest)] for nest in (copy, *sums)]
        width = task.by_role("output")[0].type.shape[2]
        together, lanes = config.number("together"), lanes_of(task, target)
        if sums and width >= lanes:
            beside = _even_part(width // lanes, together)
            _schedule_columns(builder, target, loops, lanes * beside)
            return builder.scheduled
        schedule_elementwise(builder, target, loops[0], 4)
        for nest in loops[1:]:
            _schedule_rows(builder, target, nest, together)
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        together = configs["together"].astype(np.float64)
        rows, extent, width = task.by_role("output")[0].type.shape
        dims: tuple[tuple[tuple[str, int], ...], ...] = ((("row", 1),), (("column", 1),))
        size = ITEM_BYTES[task.by_role("output")[0].type.dtype]
        shape, ones = (rows * extent, width), np.ones(len(together))
        accesses = (
            Access(buffer="in", item_bytes=size, shape=shape, dims=dims),
            Access(buffer="out", item_bytes=size, shape=shape, dims=dims, written=True),
        )
        lanes = float(min(lanes_of(task, machine.target), width))
        return TileStructure(
            extents={"row": rows * extent, "column": width},
            reduce_axes=frozenset(),
            accesses=accesses,
            tiles=({"row": ones}, {"column": lanes * ones}),
            flops=max(1, task_flops(task)),
            accumulators=together,
            vector_axis_waste=np.ceil(width / lanes) * lanes / width * ones,
            parallel_chunks=rows * ones,
            unrolled=together,
            extra={"together": together},
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        target = machine.target
        rows = task.by_role("output")[0].type.shape[0]
        together = configs["together"].astype(np.float64)
        share = busiest_share(np.ceil(rows / together), target.threads)
        peak = max(1, task_flops(task)) / (2 * target.lanes())
        return Prior(cycles=_cycles(task, target, together) * share, peak_cycles=peak)


def _even_part(count: int, most: int) -> int:
    """The most of `count` things at a time that leave none over, or as even parts as there are:
    sums under masks wait for what was stored under others."""
    fits = max(n for n in range(1, most + 1) if count % n == 0) if count > most else count
    return fits if 2 * fits > most or fits == count else -(-count // -(-count // most))


def _schedule_columns(
    builder: ScheduleBuilder, target: Target, nests: Sequence[Sequence[str]], vectors: int
) -> None:
    """Blocks of columns two rows of which the innermost cache has, vectors side by side: each row
    copied, and added to the one before."""
    width = builder.task.by_role("output")[0].type.shape[2]
    held = max(1, int(ROWS_SHARE_OF_L1 * target.l1_bytes) // (4 * vectors))
    block = _even_part(-(-width // vectors), held) * vectors
    for row, along, column in nests:
        builder.split(column, block, f"{column}_o", f"{column}_b")
        builder.split(f"{column}_b", vectors, f"{column}_m", f"{column}_n")
        builder.split(f"{column}_n", lanes_of(builder.task, target), f"{column}_u", f"{column}_v")
        inner = tuple(f"{column}_{part}" for part in "muv")
        builder.apply(Reorder(loops=(row, f"{column}_o", along, *inner)))
        builder.apply(Unroll(loops=(f"{column}_u",)))
        builder.apply(Vectorize(loops=(f"{column}_v",)))
    (row, along, column), (other, summing, summed) = nests
    builder.apply(Jam(loop=row, other=other))
    builder.apply(Jam(loop=f"{column}_o", other=f"{summed}_o"))
    if not dict(builder.task.nodes[0].attrs).get("reverse"):
        builder.apply(PeelEnds(loop=along, first=1))
        builder.apply(Jam(loop=along, other=summing))
        for part in "muv":
            builder.apply(Jam(loop=f"{column}_{part}", other=f"{summed}_{part}"))
    if width % block:
        builder.apply(Specialize(loop=f"{column}_o"))
    if width % vectors:
        for copy in copies_of(builder, f"{column}_m"):
            if builder.extent(copy) > 1:
                builder.apply(Specialize(loop=copy))
    share(builder, target, [row, f"{column}_o"], f"{row}_p")


def _schedule_rows(
    builder: ScheduleBuilder, target: Target, loops: Sequence[str], together: int
) -> None:
    """Elements of several rows side by side, of few columns."""
    row, along, column = loops
    size = min(together, builder.extent(row))
    builder.split(row, size, f"{row}_o", f"{row}_i")
    builder.apply(Reorder(loops=(f"{row}_o", along, f"{row}_i", column)))
    builder.apply(Unroll(loops=(f"{row}_i", column)))
    if builder.extent(f"{row}_o") * size > builder.task.by_role("output")[0].type.shape[0]:
        builder.apply(Specialize(loop=f"{row}_o"))
    share(builder, target, [f"{row}_o"], f"{row}_p")


def _cycles(task: Task, target: Target, together: Column) -> Column:
    """Cycles on one thread."""
    rows, extent, width = task.by_role("output")[0].type.shape
    lanes = lanes_of(task, target)
    if width < lanes:
        sums = rows * extent * width * np.ones(len(together))
        beside = np.minimum(together, rows) * width
        waits = np.where(together > _rows_held(extent * width, target), EVICTED_CYCLES, 0.0)
    else:
        beside, waits = np.minimum(together, width // lanes), np.zeros(len(together))
        sums = rows * extent * np.ceil(width / (beside * lanes)) * beside
    each = np.maximum(SUM_CYCLES, CHAIN_CYCLES / beside) + ITERATION_CYCLES / beside + waits
    return np.asarray(sums * each + COPY_CYCLES * rows * extent * width / lanes)


def _rows_held(step: int, target: Target) -> int:
    """Rows so many elements of 4 bytes apart whose lines stay in the innermost cache together."""
    way = max(target.line_bytes, target.l1_bytes // target.l1_ways)
    return target.l1_ways * (way // math.gcd(max(4 * step, target.line_bytes), way))


RULES.add(ScanRule.name, ScanRule())
