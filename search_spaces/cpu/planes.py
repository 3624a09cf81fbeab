"""Windows that pool images of one channel, as channels-first images are, on CPUs.

Lanes run along a row of results; what a window's column reads for them lies in steps, and comes
from a few vectors by a shuffle. The results at the ends of a row, whose windows reach outside,
have code of their own.
"""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.program.ir import For
from autotune.program.rewrite import stores_of
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import ComputeAt, Inline, root_body
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, Task
from search_spaces.base import RULES, Access, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    inline_locals,
    lanes_of,
    local_buffers,
    nest_loops,
    output_name,
    share,
)
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space
from search_spaces.windows import copies_of, peel_borders, schedule_patterned

POOLS = ("max_pool2d", "avg_pool2d")
NARROWEST = 8
"""Results in a row from which on vectors along it are worth it (assumed)."""
TAP_CYCLES = 2.0
"""Cycles of an element of a window, for a vector of results (assumed, as all constants here)."""
RESULT_CYCLES = 4.0
"""Cycles of a vector of results."""
ITERATION_CYCLES = 3.0
"""Cycles of an iteration, shared by the vectors that it makes."""


class PlanesRule(Rule):
    """Pools of one-channel images, with lanes along a row of results."""

    name = "planes"
    priority = 9

    def matches(self, task: Task, target: Target) -> bool:
        if target.is_gpu or task.op not in POOLS or task.anchor != 0:
            return False
        *_, columns, channels = task.value(task.nodes[0].outputs[0]).type.shape
        dilated = dict(task.nodes[0].attrs).get("dilations", (1, 1)) != (1, 1)
        return channels == 1 and columns >= NARROWEST and not dilated

    def space(self, task: Task, target: Target) -> Space:
        vectors = task.by_role("output")[0].type.shape[2] // _lanes(task, target)
        return Space((Param(name="unroll", choices=tuple(u for u in (1, 2, 4) if u <= vectors)),))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        output, pooled = output_name(task), task.nodes[0].outputs[0]
        inline_locals(builder, keep=frozenset((output,)))
        nests = [s for s in root_body(builder.program) if isinstance(s, For)]
        nest = next(n for n in nests if any(s.combine for s in stores_of((n,))))
        buffer = stores_of((nest,))[0].buffer
        pads = [b for b in local_buffers(builder.program) if b.endswith(".pad")]
        image, row, column, channel = (loop.var for loop in nest_loops(nest))
        if pooled not in (buffer, output) and pooled in local_buffers(builder.program):
            builder.apply(Inline(buffer=pooled))  # of sums
        if buffer != output:
            builder.apply(ComputeAt(buffer=output, at=channel))
        for other in (n for n in nests if n is not nest and stores_of((n,))[0].buffer in pads):
            loops = [loop.var for loop in nest_loops(other)][:-1]
            schedule_patterned(builder, target, loops, config.number("unroll"))
        lanes = _lanes(task, target)
        over, beside, lane = (f"{column}_{part}" for part in "ouv")
        builder.split(column, lanes * config.number("unroll"), over, f"{column}_b")
        builder.split(f"{column}_b", lanes, beside, lane)
        builder.apply(Reorder(loops=(image, row, over, channel, beside, lane)))
        builder.apply(CacheWrite(buffer=buffer, loops=(beside, lane)))
        inside = [v for v in builder.loops() if v.endswith(("_kh", "_kw"))]
        builder.apply(Unroll(loops=tuple(sorted(inside))))
        peel_borders(builder, over)
        parts = ("", "_init", "_out")
        for made, kind in ((beside, Unroll), (lane, Vectorize)):
            names = [v for part in parts for v in copies_of(builder, f"{made}{part}")]
            builder.apply(kind(loops=tuple(names)))
        share(builder, target, [image, row], f"{image}_p")
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        unroll = configs["unroll"].astype(np.float64)
        images, rows, width, _ = task.by_role("output")[0].type.shape
        size = ITEM_BYTES[task.by_role("output")[0].type.dtype]
        dims: tuple[tuple[tuple[str, int], ...], ...] = ((("row", 1),), (("column", 1),))
        shape, ones = (images * rows, width), np.ones(len(unroll))
        accesses = (
            Access(buffer="in", item_bytes=size, shape=shape, dims=dims),
            Access(buffer="out", item_bytes=size, shape=shape, dims=dims, written=True),
        )
        block = np.minimum(unroll * _lanes(task, machine.target), width)
        return TileStructure(
            extents={"row": images * rows, "column": width},
            reduce_axes=frozenset(),
            accesses=accesses,
            tiles=({"row": ones}, {"column": block}),
            flops=max(1, task_flops(task)),
            accumulators=unroll,
            vector_axis_waste=np.ceil(width / block) * block / width,
            parallel_chunks=images * rows * ones,
            unrolled=unroll,
            extra={"unroll": unroll},
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        unroll = configs["unroll"].astype(np.float64)
        images, rows, width, _ = task.by_role("output")[0].type.shape
        kernel = dict(task.nodes[0].attrs)["kernel"]
        assert isinstance(kernel, tuple)
        taps, lanes = float(np.prod(kernel)), _lanes(task, machine.target)
        blocks = images * rows * np.ceil(width / (unroll * lanes))
        each = unroll * (TAP_CYCLES * taps + RESULT_CYCLES) + ITERATION_CYCLES
        share = busiest_share(np.full(len(unroll), float(images * rows)), machine.target.threads)
        peak = max(1, task_flops(task)) / (2 * machine.target.lanes())
        return Prior(cycles=blocks * each * share, peak_cycles=peak)


def _lanes(task: Task, target: Target) -> int:
    return min(lanes_of(task, target), task.by_role("output")[0].type.shape[2])


RULES.add(PlanesRule.name, PlanesRule())
