"""Depthwise convolutions of what lies channels first, on CPUs: lanes along a row of results.

A tile of rows and vectors of one plane is summed in registers; a weight is one number for a whole
vector. Zeros around a plane are in a copy of that plane alone, which stays in a core's own caches,
or are what masks leave out at the ends of rows that are read one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.ops.conv_planes import plane_windows
from autotune.ops.window import Window
from autotune.program.ir import For
from autotune.program.rewrite import stores_of
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import ComputeAt, Inline, root_body
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.scope import StoreAt
from autotune.schedule.memory.split_dimension import SplitDimension
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    lanes_of,
    nest_loops,
    output_with_sums,
    share,
)
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Constraint, Space
from search_spaces.windows import copies_of, peel_borders

HELD_SHARE = 0.75
"""Share of the vector registers for sums and the rows that windows share (fitted: tiles of 2 x 8
and 2 x 7 vectors of 3x3 windows, Zen 4, 133 and 123 us)."""
MOST_WRITTEN_OUT = 64
"""Elements of a window up to which all of its loops are written out, else its columns' alone."""
LOAD_CYCLES = 1.5
"""Cycles of a vector from anywhere in the first cache (assumed: half of them touch two lines)."""
STRIDED_CYCLES = 3.0
"""Cycles of a vector whose lanes lie in steps in what is not copied (assumed)."""
RESULT_CYCLES = 3.0
"""Cycles to begin and to store a vector of results (assumed)."""
LOOP_CYCLES = 2.0
"""Cycles of an iteration over tiles or over rows of a window (assumed)."""
COPY_CYCLES = 3.0
"""Cycles of a vector that is copied between zeros (assumed)."""
MASKED_CYCLES = 0.8
"""Cycles more of a vector at a row's end that is loaded under a mask (fitted: 7x7 and 3x3 windows
of 56x56 planes, 5x5 of 14x14, with a copy and without, Zen 4)."""


class PlaneWindowsRule(Rule):
    """Depthwise convolutions of planes."""

    name = "plane_windows"
    priority = 9

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and task.op == "conv_planes" and task.anchor == 0

    def space(self, task: Task, target: Target) -> Space:
        *_, rows, columns = _sums_shape(task)
        vectors = -(-columns // _lanes(task, target))
        most = HELD_SHARE * target.vector_registers
        down, across = _windows(task)

        whole, aside = not _is_copied(task), across.stride == 1

        def fits(configs: Configs) -> npt.NDArray[Any]:
            high = configs["tile_h"]
            held = configs["vectors"] * (high + np.minimum(high, down.kernel) + down.kernel - 1)
            good = (held <= most) | (configs["vectors"] * high == 1)
            return np.asarray(good & ((configs["copy"] == 1) | (configs["vectors"] == 1) | whole))

        return Space(
            (
                Param(name="vectors", choices=tuple(v for v in (1, 2, 3, 4) if v <= vectors)),
                Param(name="tile_h", choices=tuple(h for h in (1, 2, 4, 7, 8) if h <= rows)),
                Param(name="copy", choices=(0,) if whole else (1, 0) if aside else (1,)),
            ),
            (Constraint("registers", fits),),
        )

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder, sums = ScheduleBuilder(task), task.nodes[0].outputs[0]
        nests = {
            stores_of((s,))[0].buffer: [loop.var for loop in nest_loops(s)]
            for s in root_body(builder.program) if isinstance(s, For)
        }  # fmt: skip
        image, plane, row, column = nests[sums][:4]
        output = output_with_sums(builder, sums, column)
        pad = next((b for b in nests if b.endswith(".pad")), None)
        if pad is not None and not config.number("copy"):
            builder.apply(Inline(buffer=pad))
        elif pad is not None:
            image, plane = nests[pad][:2]
            builder.apply(ComputeAt(buffer=output, at=plane))
            builder.apply(StoreAt(buffer=pad, loop=plane, scope="scratch"))
            self._copy(builder, task, target, pad, nests[pad][2:])
        self._tile(builder, task, target, (row, column), config)
        for loop, extent, size in self._around(task, target, (row, column), config):
            if pad is not None and not config.number("copy"):
                peel_borders(builder, loop)
            elif extent % size:
                builder.apply(Specialize(loop=loop))
        share(builder, target, [image, plane], f"{image}_p")
        return builder.scheduled

    def _copy(
        self, builder: ScheduleBuilder, task: Task, target: Target, pad: str, loops: list[str]
    ) -> None:
        """The copy of a plane; where windows go along rows in steps, columns of one remainder lie
        side by side in it."""
        (row, column), stride, along = loops, _windows(task)[1].stride, loops[-1]
        apart = 1 < stride <= builder.extent(column)
        if apart:
            along = f"{column}_q"
            builder.split(column, stride, along, f"{column}_r")
            builder.apply(Reorder(loops=(f"{column}_r", along)))
            builder.apply(SplitDimension(buffer=pad, dim=1, factor=stride))
        lanes = min(lanes_of(task, target), builder.extent(along))
        builder.split(along, lanes, f"{column}_o", f"{column}_v")
        peel_borders(builder, f"{column}_o")
        peel_borders(builder, row)
        if apart:
            builder.apply(Unroll(loops=copies_of(builder, f"{column}_r")))
        builder.apply(Vectorize(loops=copies_of(builder, f"{column}_v")))

    def _tile(
        self, builder: ScheduleBuilder, task: Task, target: Target, loops: tuple[str, str],
        config: Config,
    ) -> None:  # fmt: skip
        """Rows and vectors of a plane together, the window around them."""
        row, column = loops
        sums, lanes = task.nodes[0].outputs[0], _lanes(task, target)
        vectors, high = config.number("vectors"), config.number("tile_h")
        builder.split(column, lanes * vectors, f"{column}_o", f"{column}_b")
        builder.split(f"{column}_b", lanes, f"{column}_u", f"{column}_v")
        builder.split(row, high, f"{row}_o", f"{row}_i")
        tile = (f"{row}_i", f"{column}_u", f"{column}_v")
        builder.apply(Reorder(loops=(f"{row}_o", f"{column}_o", *tile)))
        builder.apply(CacheWrite(buffer=sums, loops=tile))
        down, across = (next(v for v in builder.loops() if v.endswith(k)) for k in ("kh", "kw"))
        builder.apply(Reorder(loops=(across, down)))  # rows that windows share are loaded once
        kinds = ("", "_init", "_out")
        builder.apply(Vectorize(loops=builder.present([f"{tile[2]}{k}" for k in kinds])))
        rows, columns = _windows(task)
        inside = [v for v in builder.loops() if v.endswith(("kw", "kh"))]
        written = rows.kernel * columns.kernel <= MOST_WRITTEN_OUT
        flat = [v for v in sorted(inside) if written or v.endswith("kw")]
        builder.apply(Unroll(loops=builder.present([f"{v}{k}" for v in tile[:2] for k in kinds])))
        builder.apply(Unroll(loops=tuple(flat)))

    def _around(
        self, task: Task, target: Target, loops: tuple[str, str], config: Config
    ) -> tuple[tuple[str, int, int], ...]:
        """Loops over tiles, inner ones first, what they go over, and by how much."""
        row, column = loops
        *_, height, width = _sums_shape(task)
        block = _lanes(task, target) * config.number("vectors")
        return (f"{column}_o", width, block), (f"{row}_o", height, config.number("tile_h"))

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        vectors, high = (configs[p].astype(np.float64) for p in ("vectors", "tile_h"))
        images, planes, rows, width = _sums_shape(task)
        size = ITEM_BYTES[task.by_role("output")[0].type.dtype]
        down, across = _windows(task)
        out: tuple[tuple[tuple[str, int], ...], ...] = (
            (("plane", 1),),
            (("row", 1),),
            (("column", 1),),
        )
        reads = (
            (("plane", 1),),
            (("row", down.stride), ("kh", down.dilation)),
            (("column", across.stride), ("kw", across.dilation)),
        )
        all_planes, ones = images * planes, np.ones(len(vectors))
        accesses = (
            Access(
                buffer="in",
                item_bytes=size,
                shape=(all_planes, down.extent, across.extent),
                dims=reads,
            ),
            Access(
                buffer="out",
                item_bytes=size,
                shape=(all_planes, rows, width),
                dims=out,
                written=True,
            ),
        )
        block = np.minimum(vectors * _lanes(task, machine.target), width)
        high = np.minimum(high, rows)
        return TileStructure(
            extents={
                "plane": all_planes,
                "row": rows,
                "column": width,
                "kh": down.kernel,
                "kw": across.kernel,
            },
            reduce_axes=frozenset(("kh", "kw")),
            accesses=accesses,
            tiles=({"plane": ones}, {"row": high, "column": block}),
            flops=max(1, task_flops(task)),
            accumulators=vectors * high,
            vector_axis_waste=np.ceil(width / block) * block / width,
            parallel_chunks=all_planes * ones,
            unrolled=vectors * high * down.kernel * across.kernel,
            extra={"vectors": vectors, "tile_h": high},
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        vectors, high = (configs[p].astype(np.float64) for p in ("vectors", "tile_h"))
        images, planes, rows, width = _sums_shape(task)
        down, across = _windows(task)
        lanes = _lanes(task, machine.target)
        high_tiles, wide_tiles = np.ceil(rows / high), np.ceil(width / (lanes * vectors))
        cost = high_tiles * wide_tiles * _tile_cycles(task, machine, vectors, high)
        copied = COPY_CYCLES * (down.extent * math.ceil(across.extent / lanes))
        ends = high_tiles * np.minimum(wide_tiles, 2) * across.kernel
        masked = MASKED_CYCLES * ends * _rows_loaded(task, high) if _is_copied(task) else 0.0
        cost = cost + np.where(configs["copy"] == 1, copied, masked)
        chunks = np.full(len(vectors), float(images * planes))
        peak = max(1, task_flops(task)) / (2 * machine.target.lanes())
        cost = cost * images * planes * busiest_share(chunks, machine.target.threads)
        return Prior(cycles=np.asarray(cost), peak_cycles=peak, means="work")


def _tile_cycles(task: Task, machine: Machine, vectors: Column, high: Column) -> Column:
    """Cycles of a tile of sums: its multiply-adds, or what they load, whichever takes longer."""
    down, across = _windows(task)
    window = down.kernel * across.kernel
    apart = across.stride > 1 and not _is_copied(task)
    each = STRIDED_CYCLES if apart else LOAD_CYCLES
    loads = each * _rows_loaded(task, high) * across.kernel * vectors + window
    adds = np.maximum(vectors * high, machine.cpu.multiply_adds_in_flight) * window
    loops = LOOP_CYCLES * (1 if window <= MOST_WRITTEN_OUT else down.kernel)
    return np.asarray(np.maximum(loads, adds) + vectors * high * RESULT_CYCLES + loops)


def _rows_loaded(task: Task, high: Column) -> Column:
    """Rows of a plane that a tile loads: those that windows share once, where they are written
    out."""
    down, across = _windows(task)
    rows = high * down.kernel
    if down.kernel * across.kernel <= MOST_WRITTEN_OUT and down.dilation == 1:
        rows = np.minimum(rows, (high - 1) * down.stride + down.kernel)
    return np.asarray(rows)


def _is_copied(task: Task) -> bool:
    """Whether windows reach outside of the data, where they have no halo."""
    data = task.value(task.nodes[0].inputs[0])
    reach = [w.reach() for w in _windows(task)]
    halo = data.layout.halo[2:]
    return any(b > x or a > y for (b, a), (x, y) in zip(reach, halo, strict=True))


def _windows(task: Task) -> tuple[Window, Window]:
    x, w = (task.value(name).type for name in task.nodes[0].inputs)
    return plane_windows(x, w, dict(task.nodes[0].attrs))


def _sums_shape(task: Task) -> tuple[int, ...]:
    return task.value(task.nodes[0].outputs[0]).type.shape


def _lanes(task: Task, target: Target) -> int:
    return min(lanes_of(task, target), _sums_shape(task)[-1])


RULES.add(PlaneWindowsRule.name, PlaneWindowsRule())
