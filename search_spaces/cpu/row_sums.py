"""Sums and maxima down the columns of a matrix that outgrows a core's own cache, on CPUs.

Strips of columns would touch a page for every row. Rows are read as they lie instead, a few of
them together, and joined to one row of results, which stays in the innermost cache: so many
streams side by side are what hardware fetches ahead of.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.machine import Machine
from autotune.program.ir import Load
from autotune.schedule import Scheduled
from autotune.schedule.loops.distribute import Distribute
from autotune.schedule.loops.fuse_reduction_terms import FuseReductionTerms
from autotune.schedule.loops.nest import Parallel, Reorder, Vectorize
from autotune.schedule.loops.peel_ends import PeelEnds
from autotune.schedule.loops.specialize import Specialize
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, Task
from search_spaces.base import RULES, Access, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder, lanes_of, output_with_sums, schedule_copies
from search_spaces.cpu.window.shape import WindowShape, reduction_of, window_of
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space

COMBINED = ("sum", "prod", "max", "min")
RESULTS_SHARE = 0.5
"""Share of the L1 cache that the row of results may fill (assumed)."""
STREAMS = 8
"""Rows together that hardware fetches ahead of at ease (assumed)."""
CYCLES_OFF = 0.1
"""Cycles more of a vector for each doubling away from that (assumed)."""


class RowSumsRule(Rule):
    """Column sums and maxima of tall matrices, by several rows at a time."""

    name = "row_sums"
    priority = 9

    def matches(self, task: Task, target: Target) -> bool:
        compute = reduction_of(task)
        if target.is_gpu or target.is_reproducible or compute is None or task.anchor != 0:
            return False
        if not isinstance(compute.body, Load) or compute.combine not in COMBINED:
            return False
        data = task.value(compute.body.buffer).type
        # What the loops over results are: one over columns, around it those of a single pass.
        points, columns = compute.axes[:-1], compute.axes[-1:]
        if len(compute.reduce) != 1 or any(a.extent > 1 for a in points) or not columns:
            return False
        last, (width,) = compute.body.indices[-1], (a.extent for a in columns)
        lies = last.coefficient(columns[0].name) == 1 and len(last.terms) == 1
        held = width * ITEM_BYTES[data.dtype]
        return (
            lies
            and data.dtype == compute.dtype == "float32"
            and data.nbytes > target.l2_bytes
            and width >= lanes_of(task, target) * target.threads
            and held <= RESULTS_SHARE * target.l1_bytes * target.threads
            and compute.reduce[0].extent >= 2 * STREAMS
        )

    def space(self, task: Task, target: Target) -> Space:
        return Space((Param(name="together", choices=(4, 8, 16)),))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        w = _shape(task)
        builder = ScheduleBuilder(task)
        output = output_with_sums(builder, w.tensor, w.channels[0])
        ((row, rows),), (column, width) = w.reduce, w.channels
        builder.apply(Distribute(loop=column, inner=row))
        inside, together = f"{column}_{row}", config.number("together")
        lanes = lanes_of(task, target)
        part = -(-width // target.threads // lanes) * lanes
        builder.split(row, together, f"{row}_o", f"{row}_i")
        builder.split(inside, part, "part", "rest")
        builder.split("rest", lanes, "vector", "lane")
        builder.apply(Reorder(loops=("part", f"{row}_o", "vector", f"{row}_i", "lane")))
        if rows % together:
            builder.apply(PeelEnds(loop=f"{row}_o", last=1))
        builder.apply(FuseReductionTerms(loop=f"{row}_i"))
        lanewise = [v for v in sorted(builder.loops()) if v == "lane" or v.startswith("lane.")]
        builder.apply(Vectorize(loops=tuple(lanewise)))
        if width % lanes:
            builder.apply(Specialize(loop="vector"))
        if target.threads > 1:
            builder.apply(Parallel(loop="part"))
        schedule_copies(builder, target, {output} if output == w.tensor else set())
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        w, together = _shape(task), configs["together"].astype(np.float64)
        ((_, rows),), (_, width) = w.reduce, w.channels
        lanes, ones = float(lanes_of(task, machine.target)), np.ones(len(together))
        row, column = (("row", 1),), (("column", 1),)
        accesses = (
            Access(buffer="in", item_bytes=4, shape=(rows, width), dims=(row, column)),
            Access(buffer="out", item_bytes=4, shape=(width,), dims=(column,), written=True),
        )
        return TileStructure(
            extents={"row": rows, "column": width},
            reduce_axes=frozenset(("row",)),
            accesses=accesses,
            tiles=({"row": together}, {"column": lanes * ones}),
            flops=max(1, task_flops(task)),
            accumulators=ones,
            vector_axis_waste=math.ceil(width / lanes) * lanes / width * ones,
            parallel_chunks=machine.target.threads * ones,
            unrolled=together,
            extra={"together": together},
            flops_per_lane=1,
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        w, together = _shape(task), configs["together"].astype(np.float64)
        ((_, rows),), (_, width) = w.reduce, w.channels
        vectors = rows * width / lanes_of(task, machine.target) / machine.target.threads
        each = 1 + CYCLES_OFF * np.abs(np.log2(together / STREAMS))
        peak = max(1, task_flops(task)) / (2 * machine.target.lanes())
        return Prior(cycles=vectors * each, peak_cycles=peak)


def _shape(task: Task) -> WindowShape:
    compute = reduction_of(task)
    assert compute is not None
    return window_of(compute)


RULES.add(RowSumsRule.name, RowSumsRule())
