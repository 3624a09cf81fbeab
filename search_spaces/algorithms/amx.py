"""Products of matrix tiles on CPUs (Intel AMX), of any type: tiles, schedule, prior.

A tile register has 16 rows of 64 bytes. One instruction adds the product of up to 16 points by a
run of the reduction, and of that run by 16 channels, to 16 x 16 sums: 16 times what a vector
instruction does. Of the eight registers, `tile_h` x ceil(tile_w / 16) take data, `vectors` take
weights, and their products the sums; these go to memory that stays in the L1 cache before the
epilogue uses them. Data are read where they lie, weights as they are packed for vectors.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.schedule.base import Schedule
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.memory.cast import Dot
from autotune.schedule.memory.tile_dot import TILE_LANES, TILE_ROWS, TileDot
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import Mask
from search_spaces.algorithms.direct import Products
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder
from search_spaces.cpu.contraction.operand_prior import operand_cycles
from search_spaces.cpu.contraction.rates import TILE_CYCLES
from search_spaces.cpu.contraction.shape import STRIPS_FIRST, Contraction
from search_spaces.cpu.contraction.tiles import plain, sizes
from search_spaces.params import Config
from search_spaces.space import Configs

REGISTERS = 8
"""Tile registers of a thread."""
LEAST_GROUPS = 4
"""Groups of neighbours that a product of tiles sums, at least."""
LEAST_ROWS = 6
"""Rows of a tile of data where there are more points: fewer load more than they multiply."""
LATENCY_ROWS = 52.0
"""Rows of products after which a sum can be added to again (Intel's optimization manual: 52
cycles; one instruction takes a cycle a row)."""
LOADED_ROWS = 2.0
"""Rows of operands loaded while one row is multiplied (same source: 8 cycles per tile)."""
EPILOGUE_ROWS = 4.0
"""Rows of products in the time that a row of sums takes to be stored, read and used (assumed)."""
CAST_CYCLES = 3.0
"""Cycles per vector of data that are rounded first (assumed)."""
CONFIGURE_CYCLES = 200.0
"""Cycles of shaping tiles, and of releasing them, a call (assumed)."""


class Amx(Products):
    """Products of matrix tiles, of operands that fields name."""

    feature: str
    """LLVM's name for the instruction."""
    in_registers = False

    def label(self, schedule: Schedule) -> str:
        return self.name if self.is_written(schedule, TileDot) else ""

    def exists(self, task: Task, c: Contraction, target: Target) -> bool:
        """Whether the target has the instruction, and sums are deep enough for it."""
        has = target.has_tiles and f"+{self.feature}" in target.features.split(",")
        if not has or target.lanes() != TILE_LANES or c.reduce[-1][1] % self.neighbours:
            return False
        return self.run_of(task, c)[1] >= LEAST_GROUPS

    def may_prefetch(self, c: Contraction) -> bool:  # noqa: ARG002
        return False

    def widths(self, c: Contraction, target: Target) -> Collection[int]:  # noqa: ARG002
        """One to three tiles along the points, of equal numbers of rows, that leave no, or a
        small, ragged end."""
        extent = c.points[1]
        least = min(LEAST_ROWS, extent)
        found = {w for w in range(least, 3 * TILE_ROWS + 1) if w % _strips(w) == 0 and w <= extent}
        return {w for w in found if -extent % w <= extent / 4 or w % TILE_ROWS == 0}

    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:
        data, weights = _tiles(configs), configs["vectors"]
        ok = (data * weights + data + weights <= REGISTERS) & ~plain(c, configs)
        ok &= np.isin(configs["tile_w"], tuple(self.widths(c, target)))
        ok &= np.isin(configs["tile_h"], sizes(c.row_count, 4))
        ok &= (configs["block"] == 1) & (configs["prefetch"] == "none")
        ok &= configs["order"] != STRIPS_FIRST
        return np.asarray(ok & (configs["unroll"] == 1) & (configs["lanes"] == TILE_LANES))

    def split_product(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, tile: tuple[str, ...]
    ) -> tuple[str, ...]:
        width = config.number("tile_w")
        builder.split("point", width // _strips(width), "strip", "at")
        builder.split(c.reduce[-1][0], self.neighbours, "pairs", "pair")
        along, groups = self.run_of(builder.task, c)
        loop = builder.fuse([*along, "pairs"], "taps") if along else "pairs"
        builder.split(loop, groups, "run", "group")
        return tuple(n for name in tile for n in (("strip", "at") if name == "point" else (name,)))

    def annotate(
        self,
        builder: ScheduleBuilder,
        c: Contraction,  # noqa: ARG002
        config: Config,  # noqa: ARG002
        tile: tuple[str, ...],
    ) -> None:
        rows = tile[: tile.index("strip")]
        builder.apply(Reorder(loops=(*rows, "strip", "vector", "at", "lane", "group", "pair")))
        outside = [n for name in (*rows, "strip", "vector") for n in (name, f"{name}_out")]
        ends = ("lane_init", "lane_out")
        builder.apply(Unroll(loops=builder.present([*outside, "vector_init"])))
        builder.apply(Vectorize(loops=builder.present(list(ends))))
        builder.apply(Dot(loop="pair"))
        builder.apply(TileDot(loops=("at", "lane", "group")))

    def run_of(self, task: Task, c: Contraction) -> tuple[list[str], int]:
        """What the reduction is cut into: loops around the innermost one that are fused with it
        first, where data lie on and products of tiles get longer; groups of neighbours of one
        product, the most that divide all."""
        whole = c.reduce[-1][1] // self.neighbours
        alone = _divisor(whole)
        if not c.rows or not _lies_on(task, c, rounded=bool(self.dtype)):
            return [], alone
        name, taps = c.reduce[-2]
        joined = _divisor(whole * taps)
        return ([name], joined) if joined > alone else ([], alone)

    # --------------------------------------------------------------------------------------- prior

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        row = TILE_ROWS * self.neighbours / machine.products_per_lane(self.name)
        groups = self.run_of(task, c)[1]
        tile = _tile_rows(c, configs, groups) * (c.depth / (groups * self.neighbours))
        tile = tile + EPILOGUE_ROWS * _tiles(configs) * configs["vectors"] * _height(configs)
        each = np.maximum(row * tile, self._far_cycles(task, c, machine, configs)) + TILE_CYCLES
        count = np.ceil(c.points[1] / configs["tile_w"]) * np.ceil(c.row_count / configs["tile_h"])
        count = count * np.ceil(c.channels[1] / (configs["vectors"] * TILE_LANES))
        chunks = count * c.count * c.groups
        threads = machine.target.threads
        busy = each * chunks * busiest_share(chunks, threads) + CONFIGURE_CYCLES
        if self.dtype:
            vectors = task.value(c.data).type.size / machine.target.lanes()
            busy = busy + CAST_CYCLES * vectors / threads
        return np.asarray(busy + operand_cycles(task, c, machine, configs), np.float64)

    def _far_cycles(
        self, task: Task, c: Contraction, machine: Machine, configs: Configs
    ) -> Column:
        """Cycles of a tile in which operands come from beyond the L1 cache: data of a tile that
        stays for all channels, or weights of a panel that stays for all points, do not."""
        item = 4 / self.neighbours
        data = _tiles(configs) * _height(configs) * c.depth * item
        panel = configs["vectors"] * TILE_LANES * c.depth * item
        all_data = task.value(c.data).type.size * item
        all_weights = c.depth * c.channels[1] * c.groups * item
        stays = configs["order"] == "points_first"
        data_lies = np.where(stays, data, all_data)
        weights_lie = np.where(stays, all_weights, panel)
        cycles = data / _speed(machine, data_lies) + panel / _speed(machine, weights_lie)
        return np.asarray(cycles, np.float64)


def _divisor(extent: int) -> int:
    """The most groups, as many as a tile has rows, that divide an extent."""
    return max(g for g in range(1, TILE_ROWS + 1) if extent % g == 0)


def _lies_on(task: Task, c: Contraction, *, rounded: bool) -> bool:
    """Whether a window's columns lie side by side: copies that are rounded do so always."""
    channels = c.reduce[-1][1]
    pitch = channels * c.groups if rounded else task.value(c.data).layout.strides[-2]
    return c.dilation[1] == 1 and pitch == channels


def _tiles(configs: Configs) -> Column:
    """Tiles of data."""
    return np.asarray(configs["tile_h"] * np.ceil(configs["tile_w"] / TILE_ROWS))


def _height(configs: Configs) -> Column:
    """Rows of a tile of data."""
    return np.asarray(configs["tile_w"] / np.ceil(configs["tile_w"] / TILE_ROWS))


def _strips(width: int) -> int:
    """Tiles that so many points take."""
    return -(-width // TILE_ROWS)


def _tile_rows(c: Contraction, configs: Configs, groups: int) -> Column:
    """Time of one product of all tiles, in rows: these follow each other, as fast as operands are
    loaded, and sums are not added to before they are there."""
    data, weights, height = _tiles(configs), configs["vectors"], _height(configs)
    used = c.points[1] / (configs["tile_w"] * np.ceil(c.points[1] / configs["tile_w"]))
    used = used * c.row_count / (configs["tile_h"] * np.ceil(c.row_count / configs["tile_h"]))
    products = np.maximum(data * weights * height * used, LATENCY_ROWS)
    loads = (data * height * used + weights * groups) / LOADED_ROWS
    return np.asarray(np.maximum(products, loads), np.float64)


def _speed(machine: Machine, nbytes: Column) -> Column:
    """Bytes a cycle beside multiply-adds, of what is read over and over; without bound from L1,
    whose loads are counted by rows."""
    target, cpu = machine.target, machine.cpu
    near = machine.l2_bytes * cpu.own_share_of_l2
    shared = np.where(
        nbytes <= machine.l3_bytes * cpu.own_share_of_l3,
        cpu.l3_stream_bytes_per_cycle, cpu.memory_stream_bytes_per_cycle / target.threads,
    )  # fmt: skip
    far = np.where(nbytes <= near, cpu.l2_stream_bytes_per_cycle, shared)
    return np.asarray(np.where(nbytes <= machine.l1_bytes / 2, np.inf, far), np.float64)
