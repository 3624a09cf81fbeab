"""Windows sliding over channels-last data: depthwise convolutions, pools, reductions over rows.

Lanes run along the channels. A tile of `tile_h` x `tile_w` output points times `vectors` vectors
is accumulated in registers over the window; neighbouring points share what they read. Where
windows of stride 2 overlap, sums may roll `down` columns of points, or `along` their rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.ops import OPS
from autotune.program.ir import Load
from autotune.program.rewrite import find_loop, loads_of, value_loads
from autotune.schedule import Scheduled
from autotune.schedule.loops.fuse_reduction_terms import FuseReductionTerms
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.loops.rolling_window import RollingWindow
from autotune.schedule.loops.shared_window_terms import SharedWindowTerms
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.scalar_replacement import ScalarReplacement
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import RULES, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    lanes_of,
    output_with_sums,
    schedule_copies,
    share,
)
from search_spaces.cpu.window.prior import cycles, operations, terms_held
from search_spaces.cpu.window.reach import crowds
from search_spaces.cpu.window.shape import (
    WindowShape,
    accesses,
    joins,
    reduction_of,
    rolls,
    row_strips,
    slides,
    window_of,
)
from search_spaces.cpu.window.small_cores import is_byte_window, window_cycles
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Constraint, Space

ORDERS = ("rows_first", "channels_first")
"""Whether the loop over blocks of channels is innermost, or outermost: then a block's weights
stay, and its data come from a few lines of the cache each."""
_ROLLED = ("_init_carry", "_init_next", "_first", "_alone")
"""Suffixes of loops that `rolling_window` makes."""
_TILE = {"point": "tile_w", "row": "tile_h"}
"""What registers hold of each axis; sums that roll go on from there."""
JOINS = ("none", "rows", "columns")
"""Which terms of a window are combined first, so that windows that overlap share them."""


def _reads_once(task: Task) -> bool:
    """Whether the anchor reads each element once, so that what computes it can be inlined."""
    before = {OPS.get(n.op).kind for n in task.nodes[: task.anchor]}
    return before <= {"elementwise"} and task.op.startswith("reduce_")


def is_window(task: Task) -> bool:
    """Whether the anchor is one reduction of floats or bytes, its last axis the data's last
    dimension."""
    compute = reduction_of(task)
    node = task.nodes[task.anchor]
    if compute is None or not compute.axes or OPS.get(node.op).kind == "elementwise":
        return False
    if compute.dtype not in ("float32", "float64", "int8", "uint8", "int32", "int64"):
        return False
    if any(task.value(v).role == "local" for v in node.inputs) and not _reads_once(task):
        return False
    # Lanes must step through the data: the last axis is the data's last dimension.
    loads = list(value_loads(compute.body))
    last = compute.axes[-1].name
    return all(
        isinstance(v, Load) and v.indices and v.indices[-1].coefficient(last) == 1 for v in loads
    )


class WindowRule(Rule):
    """Depthwise convolutions and pools, by register tiles of points with lanes along channels."""

    name = "window"
    priority = 8

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and is_window(task)

    def space(self, task: Task, target: Target) -> Space:
        w = self._window(task)
        blocks = -(-w.channels[1] // lanes_of(task, target))
        sliding = slides(task, w)
        widths = _widths(task, w, target)
        # Blocks of channels that begin inside lines have two threads wait for each other's.
        apart = target.threads == 1 or w.channels[1] % lanes_of(task, target) == 0
        rolling = apart and rolls(task, w)
        heights = _columns(w.rows[1] // target.threads, w.rows[1]) if rolling else ()
        # The terms of pools are combined first instead; along rows, sums change their order.
        one_order = target.is_reproducible
        along = apart and rolls(task, w, "point") and not joins(task, w) and not one_order
        joined = ("none",) if one_order else JOINS
        sizes = (1, 2, 3, 4, 6, 8, 12, 16) if sliding else (1, 2, 3, 4, 6, 8)
        params = (
            Param(name="vectors", choices=tuple(v for v in sizes if v <= blocks)),
            Param(name="tile_w", choices=_sizes(w.points[1], 14)),
            Param(name="tile_h", choices=_sizes(w.rows[1], 7 if rolling else 4)),
            Param(name="order", choices=ORDERS if blocks > 1 and w.rows[0] else ORDERS[:1]),
            *((Param(name="join", choices=joined),) if joins(task, w) else ()),
            *((Param(name="slide", choices=(0, 1)),) if sliding else ()),
            *((Param(name="lanes", choices=widths),) if len(widths) > 1 else ()),
            *((Param(name="down", choices=heights),) if len(heights) > 1 else ()),
            *((Param(name="along", choices=(0, 1)),) if along else ()),
        )

        def fits(configs: Configs) -> npt.NDArray[Any]:
            points = configs["tile_w"] * configs["tile_h"]
            held = configs["vectors"] * points
            good = (held <= target.vector_registers - 4) & (held * w.body <= 500)
            if "slide" in configs:
                terms = terms_held(w, lanes_of(task, target), configs)
                apart = (points == 1) & (terms <= target.vector_registers - 8)
                good = np.where(configs["slide"] == 1, apart, good & (configs["vectors"] <= 8))
            if "down" in configs:
                alone = (configs["tile_h"] == 1) & (2 * held <= target.vector_registers - 4)
                good = good & ((configs["down"] == 1) | alone)
            if "down" in configs and "join" in configs:
                good = good & ((configs["down"] == 1) | (configs["join"] != "rows"))
            if "along" in configs:
                alone = (configs["tile_w"] == 1) & (configs.get("down", np.ones(1)) == 1)
                shared = configs["tile_h"] <= w.rows[1] // target.threads
                rolled = alone & shared & (2 * held <= target.vector_registers - 4)
                good = good & np.where(configs["along"] == 1, rolled, configs["tile_h"] <= 4)
            return np.asarray(good)

        return Space(params, (Constraint("registers", fits),))

    def _window(self, task: Task) -> WindowShape:
        compute = reduction_of(task)
        if compute is None:
            raise ValueError(f"task {task.key} has no single reduction")
        return window_of(compute)

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        w, target = self._window(task), machine.target
        peak = task_flops(task) / (2 * target.lanes())
        if w.body <= 1:  # four accumulators hide the latency of one: two vectors of two points
            held = configs["vectors"] * configs["tile_w"] * configs["tile_h"]
            away = np.abs(held - 4) + 0.1 * np.abs(configs["vectors"] - 2)
            return Prior(cycles=np.asarray(1 + away), peak_cycles=peak, means="order")
        if is_byte_window(task, target):
            return Prior(cycles=window_cycles(task, w, configs, target), peak_cycles=peak)
        vectors = math.prod(extent for _, extent in w.axes) / lanes_of(task, target)
        cost = cycles(task, w, machine, configs) * vectors
        return Prior(cycles=cost, peak_cycles=peak, means="work")

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        w = self._window(task)
        builder = ScheduleBuilder(task)
        output = output_with_sums(builder, w.tensor, w.channels[0])
        lanes = dict(config.items).get("lanes", lanes_of(task, target))
        lanes = min(int(lanes), w.channels[1])
        block = lanes * config.number("vectors")
        builder.split(w.channels[0], block, "block", "rest")
        builder.split("rest", lanes, "vector", "lane")
        tile, outer = ["vector", "lane"], ["block"]
        sizes = (("point", "points", w.points, "tile_w"), ("row", "rows", w.rows, "tile_h"))
        for inner, around, (loop, _), param in sizes:
            if loop:
                builder.split(loop, config.number(param), around, inner)
                tile.insert(0, inner)
                outer.insert(1, around)
        batch = [name for name, _ in w.axes[:-3]]
        down = int(dict(config.items).get("down", 1))
        outer = self._around(builder, w, target, config, outer)
        builder.apply(Reorder(loops=(*batch, *outer, *tile)))
        slide = dict(config.items).get("slide", 0)
        builder.apply(CacheWrite(buffer=w.tensor, loops=tuple(tile[-1:] if slide else tile)))
        at = f"{w.tensor}.reg"
        if slide:
            builder.apply(SharedWindowTerms(loop=w.reduce[0][0], at="vector"))
            at += ".terms"
        joined = dict(config.items).get("join", "none")
        if joined != "none":
            builder.apply(FuseReductionTerms(loop=w.reduce[0 if joined == "rows" else 1][0]))
        if down != 1:
            at = self._roll(builder, w.reduce, tile, outer.pop()) or f"{at}.next"
        elif dict(config.items).get("along"):
            at = self._roll(builder, w.reduce[::-1], tile, outer.pop()) or f"{at}.next"
        self._annotate(builder, w, tile)
        for around, (_, extent), size in (
            ("block", w.channels, block),
            ("points", w.points, config.number("tile_w")),
            ("rows", w.rows, config.number("tile_h")),
        ):
            if extent % size:
                builder.apply(Specialize(loop=around, at=at))
        schedule_copies(builder, target, {output})
        share(builder, target, [*batch, *outer], "shared")
        return builder.scheduled

    def _around(
        self,
        builder: ScheduleBuilder,
        w: WindowShape,
        target: Target,
        config: Config,
        outer: list[str],
    ) -> list[str]:
        """Loops around a tile, in order: blocks of channels outermost or inside, the one that sums
        roll along last."""
        down = int(dict(config.items).get("down", 1))
        if down != 1:
            builder.split("rows", down, "columns", "down")
            outer[1] = "columns"
        high = config.number("tile_h") * down
        strips = row_strips(w, target.threads, high)
        if config["order"] == "channels_first" and strips > 1:
            builder.split(outer[1], w.rows[1] // high // strips, "bands", "strip")
            outer = ["bands", "block", "strip", "points"]
        elif config["order"] == "channels_first":
            outer = ["block", *outer[1:]]
        elif dict(config.items).get("along"):
            outer = ["rows", "block", "points"]
        else:
            outer = [*outer[1:], "block"]
        return [*outer, "down"] if down != 1 else outer

    def _roll(
        self,
        builder: ScheduleBuilder,
        window: tuple[tuple[str, int], ...],
        tile: list[str],
        loop: str,
    ) -> str:
        """Roll sums along a loop over points, which moves the window's first one; gives the
        outermost buffer of constants kept meanwhile."""
        (over, _), *across = window
        # A point's terms side by side: what it reads is in registers for two points at most.
        order = [over, *tile[:-2], *(k for k, _ in across), *tile[-2:]]
        builder.apply(Reorder(loops=builder.present(order)))
        kept = self._keep(builder, loop)
        builder.apply(RollingWindow(loop=loop, over=over))
        return kept

    def _keep(self, builder: ScheduleBuilder, loop: str) -> str:
        """Have registers hold the constants that all of a column reads; gives the outermost
        buffer."""
        out = ""
        for param in builder.program.params:
            body = (find_loop(builder.program, loop),)
            read = [v for v in loads_of(body) if v.buffer == param.name]
            if not param.constant or len(read) != 1:
                continue
            if not any(loop in i.vars() for i in read[0].indices):
                builder.apply(ScalarReplacement(buffer=param.name, loop=loop))
                out = out or f"{param.name}.kept"
        return out

    def _annotate(self, builder: ScheduleBuilder, w: WindowShape, tile: list[str]) -> None:
        kept = [f"_{p.name}_kept" for p in builder.program.params if p.constant]
        rolled = (*_ROLLED, *kept)
        kinds = ("", "_init", "_out", "_terms", *rolled, *(f"_out{k}" for k in kept))
        builder.apply(Vectorize(loops=builder.present([f"lane{k}" for k in kinds])))
        flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
        flat += [f"{name}{k}" for name, _ in w.inner for k in ("", "_terms", *rolled)]
        builder.apply(Unroll(loops=builder.present(flat)))

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        target = machine.target
        w = self._window(task)
        vectors = configs["vectors"].astype(np.float64)
        ones = np.ones(len(vectors))
        lanes = configs.get("lanes", lanes_of(task, target) * ones)
        down, along = configs.get("down", ones), configs.get("along", 0 * ones) == 1
        tiles = {"channel": np.minimum(vectors * lanes, w.channels[1])}
        extents = {"channel": w.channels[1]}
        wide, high = np.where(along, w.points[1], configs["tile_w"]), configs["tile_h"] * down
        for axis, (loop, extent), size in (("point", w.points, wide), ("row", w.rows, high)):
            if loop:
                tiles[axis] = size
                extents[axis] = extent
        extents["batch"] = math.prod(e for _, e in w.axes[:-3])
        window = {f"k{i}": e for i, (_, e) in enumerate(w.reduce)}
        chunks = extents["batch"] * ones
        for axis, size in tiles.items():
            chunks = chunks * np.ceil(extents[axis] / size)
        # Rows are around points; blocks of channels around both, or inside.
        first = configs["order"] == "channels_first"
        alone = first & ~crowds(task, w, machine, configs)
        block = {"channel": np.where(alone, tiles["channel"], w.channels[1] * ones)}
        levels = ({"batch": ones}, block, dict(reversed(tiles.items())))
        waste = np.ceil(w.channels[1] / lanes) * lanes / w.channels[1]
        held = vectors * configs["tile_w"] * configs["tile_h"] * np.where((down > 1) | along, 2, 1)
        return TileStructure(
            extents=extents | window,
            reduce_axes=frozenset(window),
            accesses=accesses(task, w, extents),
            # A window that is written out belongs to the register tile.
            tiles=levels if w.unrolled else (*levels, dict.fromkeys(w.around, ones)),
            flops=task_flops(task),
            accumulators=np.asarray(held, np.float64),
            vector_axis_waste=waste,
            parallel_chunks=chunks,
            unrolled=np.asarray(held * w.body, np.float64),
            extra={
                **{p: configs[p].astype(np.float64) for p in ("vectors", "tile_w", "tile_h")},
                "channels_first": first.astype(np.float64),
                "operations": operations(task, w, configs),
            },
            flops_per_lane=2 if task.op.startswith("conv") else 1,
            at_once={a: configs[p] for a, p in _TILE.items() if a in tiles},
        )


def _widths(task: Task, w: WindowShape, target: Target) -> tuple[int, ...]:
    """Lanes of vectors: half of them too where channels come in halves, so that points begin in
    the middle of a cache line, and no load touches two."""
    lanes = lanes_of(task, target)
    half = (
        target.threads == 1
        and rolls(task, w)
        and w.channels[1] % lanes
        and w.channels[1] % (lanes // 2) == 0
    )
    return (lanes, lanes // 2) if half and lanes >= 8 else (lanes,)


def _columns(most: int, extent: int) -> tuple[int, ...]:
    """Heights of columns of points whose windows are rolled down; 1: none."""
    return (1, *(s for s in range(4, most + 1) if extent % s == 0))


def _sizes(extent: int, most: int) -> tuple[int, ...]:
    """Divisors, and a few sizes that leave a tail."""
    return tuple(
        s for s in range(1, min(extent, most) + 1) if extent % s == 0 or s in (2, 4, 5, 7, 8)
    )


RULES.add(WindowRule.name, WindowRule())
