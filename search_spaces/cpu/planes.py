"""Windows that pool images of one channel, as channels-first images are, on CPUs.

Lanes run along a row of results; what a window's column reads for them lies in steps, and comes
from a few vectors by a shuffle. The results at the ends of a row, whose windows reach outside,
have code of their own. Where windows overlap, their columns may be combined first (`separate`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.ops.pool import windows
from autotune.program.ir import For
from autotune.program.rewrite import stores_of
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import ComputeAt, Inline, root_body
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.loops.peel_ends import PeelEnds
from autotune.schedule.loops.separate_window import SeparateWindow
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.scope import StoreAt
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
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
from search_spaces.space import Configs, Constraint, Space
from search_spaces.windows import copies_of, peel_borders, schedule_patterned

POOLS = ("max_pool2d", "avg_pool2d")
PIECES = 8
"""Images for each thread from which on they alone are shared out."""
NARROWEST = 8
"""Results in a row from which on vectors along it are worth it (assumed)."""
TAP_CYCLES = 2.0
"""Cycles of an element of a window, for a vector of results (assumed, as all constants here)."""
RESULT_CYCLES = 4.0
"""Cycles of a vector of results."""
COLUMN_CYCLES = 1.0
"""Cycles of an element of a window's column, for a vector of columns, which are combined as they
lie."""
PART_CYCLES = 1.0
"""Cycles to keep a vector of combined columns."""
PAD_CYCLES = 8.0
"""Cycles of a vector of an image that is copied between zeros."""
BLOCK_CYCLES = 32.0
"""Cycles until what the last columns of a block keep can be read in shuffled order."""
PART_SHARE = 0.5
"""Share of the innermost cache that combined columns may fill."""
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
        _, rows, columns, _ = task.by_role("output")[0].type.shape
        vectors = columns // _lanes(task, target)
        apart = min(_kernel(task)) > 1 and not target.is_reproducible
        blocks = tuple(r for r in (1, 2, 4, 8) if r <= rows)

        places = _places(task)[1]

        def fits(configs: Configs) -> npt.NDArray[Any]:
            held = 4 * configs["rows"] * places <= PART_SHARE * target.l1_bytes
            return np.asarray((configs["rows"] == 1) | ((configs["separate"] == 1) & held))

        return Space(
            (
                Param(name="unroll", choices=tuple(u for u in (1, 2, 4) if u <= vectors)),
                Param(name="separate", choices=(1, 0) if apart else (0,)),
                Param(name="rows", choices=blocks if apart else (1,)),
            ),
            (Constraint("rows together", fits),),
        )

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
        unroll, separate = config.number("unroll"), dict(config.items).get("separate")
        if separate:
            for pad in pads:
                builder.apply(Inline(buffer=pad))
            builder.apply(
                SeparateWindow(loop=next(v for v in builder.loops() if v.endswith("_kw")))
            )
        if buffer != output:
            builder.apply(ComputeAt(buffer=output, at=channel))
        if separate:
            _separate(builder, target, buffer, (image, row, column, channel), config)
            return builder.scheduled
        for other in (n for n in nests if n is not nest and stores_of((n,))[0].buffer in pads):
            loops = [loop.var for loop in nest_loops(other)][:-1]
            schedule_patterned(builder, target, loops, unroll)
        _vectors(builder, target, buffer, (image, row, column, channel), unroll)
        _written_out(builder, column)
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
            extra={
                "unroll": unroll,
                "separate": configs["separate"].astype(np.float64),
                "rows": configs["rows"].astype(np.float64),
            },
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        separate = configs["separate"] == 1
        images, rows, width, _ = task.by_role("output")[0].type.shape
        (high, wide), places = _kernel(task), _places(task)
        unroll, lanes = configs["unroll"].astype(np.float64), _lanes(task, machine.target)

        def pass_of(columns: int, each: float) -> Column:
            blocks = np.ceil(columns / (unroll * lanes))
            return np.asarray(blocks * (unroll * each + ITERATION_CYCLES))

        whole = rows * pass_of(width, TAP_CYCLES * high * wide + RESULT_CYCLES)
        padded = task.op == "avg_pool2d" and places[0] > task.values[0].type.shape[1]
        if padded:
            whole = whole + places[0] * pass_of(places[1], PAD_CYCLES)
        columns = pass_of(places[1], COLUMN_CYCLES * high + PART_CYCLES)
        part = columns + pass_of(width, TAP_CYCLES * wide + RESULT_CYCLES)
        blocks = np.ceil(rows / configs["rows"])
        apart = blocks * (BLOCK_CYCLES + configs["rows"] * part)
        share = busiest_share(np.full(len(unroll), float(images * rows)), machine.target.threads)
        peak = max(1, task_flops(task)) / (2 * machine.target.lanes())
        cost = images * np.where(separate, apart, whole) * share
        return Prior(cycles=np.asarray(cost), peak_cycles=peak)


def _kernel(task: Task) -> tuple[int, int]:
    rows, columns = windows(task.values[0].type, dict(task.nodes[0].attrs))
    return rows.kernel, columns.kernel


def _places(task: Task) -> tuple[int, int]:
    """Rows and columns of an image that its windows reach, outside of it, too."""
    rows, columns = (
        (w.positions - 1) * w.stride + w.kernel
        for w in windows(task.values[0].type, dict(task.nodes[0].attrs))
    )
    return rows, columns


def _separate(
    builder: ScheduleBuilder, target: Target, buffer: str, loops: tuple[str, ...], config: Config
) -> None:
    """Schedule a pool whose windows' columns are combined first, once for all windows that have
    them, for a few rows of results at a time: what lies between stays in the innermost cache."""
    unroll, together = config.number("unroll"), config.number("rows")
    image, row, column, channel = loops
    part = f"{buffer}.part"
    for loop in (row, f"{row}_part"):
        builder.split(loop, together, f"{loop}_block", f"{loop}_row")
    block = f"{row}_part_block"
    builder.apply(ComputeAt(buffer=output_name(builder.task), at=block))
    builder.apply(StoreAt(buffer=part, loop=block, scope="scratch"))
    places = tuple(f"{v}_part" for v in (column, channel))
    _vectors(builder, target, part, (f"{row}_part_row", *places), unroll)
    _vectors(builder, target, buffer, (f"{row}_row", column, channel), unroll)
    _written_out(builder, column)
    images = f"{image}_part"
    if target.threads == 1 or builder.extent(images) >= PIECES * target.threads:
        blocks = builder.extent(block)
        builder.apply(PeelEnds(loop=block, first=1, last=1 if blocks > 1 else 0))
    share(builder, target, list(builder.present([images, block])), f"{image}_p")


def _vectors(
    builder: ScheduleBuilder, target: Target, buffer: str, loops: tuple[str, ...], unroll: int
) -> None:
    """Lanes along the columns of a nest whose last loops are columns and channels, ends apart."""
    *outer, column, channel = loops
    lanes = min(lanes_of(builder.task, target), builder.extent(column))
    over, beside, lane = (f"{column}_{part}" for part in "ouv")
    builder.split(column, lanes * unroll, over, f"{column}_b")
    builder.split(f"{column}_b", lanes, beside, lane)
    builder.apply(Reorder(loops=(*outer, over, channel, beside, lane)))
    builder.apply(CacheWrite(buffer=buffer, loops=(beside, lane)))
    peel_borders(builder, over)


def _written_out(builder: ScheduleBuilder, column: str) -> None:
    """Windows and vectors of all nests without loops, lanes as vectors."""
    inside = [v for v in builder.loops() if v.split(".")[0].endswith(("_kh", "_kw"))]
    builder.apply(Unroll(loops=tuple(sorted(inside))))
    parts = [f"{c}_{made}" for c in (column, f"{column}_part") for made in "uv"]
    for loop in parts:
        names = [v for kind in ("", "_init", "_out") for v in copies_of(builder, f"{loop}{kind}")]
        kind = Unroll if loop.endswith("u") else Vectorize
        if names:
            builder.apply(kind(loops=tuple(names)))


def _lanes(task: Task, target: Target) -> int:
    return min(lanes_of(task, target), task.by_role("output")[0].type.shape[2])


RULES.add(PlanesRule.name, PlanesRule())
