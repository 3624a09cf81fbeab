"""Strassen's algorithm: seven products of halves instead of eight, weights combined before a call.

Constants were fitted to kernels of models on Zen 4; which ones was not written down.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import Any

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import (
    conflict_free_points,
    from_others_cycles,
    from_writers_cycles,
    overlapped,
    padding_waste,
    store_cycles,
    stream_cycles,
    tail_waste,
)
from autotune.schedule.algorithms import strassen as steps
from autotune.schedule.base import Schedule
from autotune.schedule.loops.nest import Reorder
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.copies import PackConstant
from autotune.target import Target
from autotune.tasks.build import loop_var
from autotune.tasks.flops import node_flops, task_flops
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, ContractionAlgorithm, Mask
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, output_name, schedule_copies, share
from search_spaces.cpu.contraction.rates import (
    CONFLICT_FACTOR,
    EXPOSED_STREAM,
    long_bodies,
    tile_efficiency,
)
from search_spaces.cpu.contraction.schedule import annotate_tile, split_channels
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.cpu.contraction.tiles import ORDERS, pack_plan, sizes
from search_spaces.params import Config
from search_spaces.space import Configs

LEAST_DEPTH, LEAST_POINTS = 64, 32
"""Depth and channels, and points, below which combining quarters takes more than it saves."""
QUARTER_SUM_STORES = 7.0
"""Vectors stored for each of the four quarters that are combined."""


class StrassenHalves(ContractionAlgorithm):
    """Halves of all points at once."""

    name, code, rank = "strassen", 5, 30
    reference = "Strassen, Gaussian Elimination is not Optimal, 1969"
    error = 1e-3

    def label(self, schedule: Schedule) -> str:
        return self.name if any(isinstance(step, steps.Strassen) for step in schedule) else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:  # noqa: ARG002
        return target.accuracy == "normal" and halves(task) is not None

    def widths(self, c: Contraction, target: Target) -> Collection[int]:
        return sizes(half_points(c) // strassen_parts(c, target), 28)

    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:
        """Tiles lie in the halves."""
        ok = (configs["tile_h"] == 1) & (configs["order"] == ORDERS[0]) & (configs["block"] == 1)
        ok &= np.isin(configs["tile_w"], tuple(self.widths(c, target)))
        ok &= configs["prefetch"] == "none"
        ok &= c.reduce[-1][1] // 2 % configs["unroll"] == 0
        return np.asarray(ok & (configs["vectors"] * configs["lanes"] <= c.channels[1] // 2))

    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        """Seven products of halves."""
        halved = halved_loop(builder.task)
        builder.apply(steps.Strassen(buffer=c.tensor, rows=halved, lanes=target.lanes()))
        split_channels(builder, c.channels[0], config)
        # Every thread has its own points, in all seven products as before and after them.
        parts = strassen_parts(c, target)
        count = half_points(c) // parts
        builder.split("stra_t", count, "run", "stra_r")
        builder.split("stra_r", config.number("tile_w"), "points", "point")
        splits, order = pack_plan(c, config, tuple(range(c.weight_rank)))
        (dim, size), *_ = splits
        moved = (0, *(d + 1 for d in order))
        builder.apply(PackConstant(buffer=c.weights, splits=((dim + 1, size),), order=moved))
        tile, outer = ("point", "vector", "lane"), ["run", "stra_i", "block", "points"]
        builder.apply(Reorder(loops=(*outer, *tile)))
        products = f"{c.tensor}.m"
        builder.apply(CacheWrite(buffer=products, loops=tile))
        annotate_tile(builder, c, config, tile)
        if c.channels[1] // 2 % size:
            builder.apply(Specialize(loop="block", at=f"{products}.reg"))
        if count % config.number("tile_w"):
            builder.apply(Specialize(loop="points", at=f"{products}.reg"))
        schedule_copies(builder, target, {output_name(builder.task), products, f"{c.tensor}.v"})
        for prefix in ("sin", "sout"):
            loops = [f"{prefix}_p{n}" for n in range(len(c.batch) + (2 if c.rows else 1))]
            outside = list(builder.present([*loops, f"{prefix}_c"]))
            share(builder, target, outside, f"{prefix}_shared")
        share(builder, target, outer, "shared")

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:  # noqa: ARG002
        return _strassen_cycles(c, machine, configs)

    def flops(self, task: Task, schedule: Schedule) -> int:  # noqa: ARG002
        return strassen_flops(task)


ALGORITHMS.add(StrassenHalves.name, StrassenHalves())


def halves(task: Task) -> str | None:
    """The axis over points of a product to halve, "" for all as one; None where quarters are not
    worth combining: a convolution of more than a point, few points, or short sums."""
    node = task.nodes[task.anchor]
    data, weights, out = (task.value(v) for v in (*node.inputs[:2], node.outputs[0]))
    attrs: dict[str, Any] = dict(node.attrs)
    plain = {"pads": (0, 0, 0, 0), "groups": 1}
    floats = all(v.type.dtype == "float32" for v in (data, weights, out))
    if weights.role != "constant" or not floats:
        return None
    if any(attrs.get(k, v) != v for k, v in plain.items()):
        return None
    axes: tuple[str, ...] = ("n", "oh", "ow")
    if node.op == "matmul":
        axes = (*(f"b{i}" for i in range(len(out.type.shape) - 2)), "m")
        if len(weights.type.shape) != 2:
            return None
    elif weights.type.shape[:2] != (1, 1):
        return None
    *points, channels = out.type.shape
    depth, count = data.type.shape[-1], math.prod(points)
    if depth % 2 or channels % 2 or min(depth, channels) < LEAST_DEPTH or count < LEAST_POINTS:
        return None
    return next((a for a, extent in zip(axes, points, strict=True) if extent % 2 == 0), "")


def halved_loop(task: Task) -> str:
    """The loop over points that is halved; empty: all of them as one."""
    axis = halves(task)
    return loop_var(task.nodes[task.anchor].outputs[0], axis) if axis else ""


def half_points(c: Contraction) -> int:
    """Rows of each of the seven products."""
    return -(-c.count * c.row_count * c.points[1] // 2)


def strassen_flops(task: Task) -> int:
    """Seven eighths of the multiply-adds, and the additions at both ends: of quarters, five of the
    data and eight of the result."""
    node = task.nodes[task.anchor]
    data, out = task.value(node.inputs[0]).type, task.value(node.outputs[0]).type
    products = 2 * out.size * data.shape[-1] * 7 // 8
    sums = (5 * data.size + 8 * out.size) // 4
    return products + sums + task_flops(task) - node_flops(task, node)


def strassen_parts(c: Contraction, target: Target) -> int:
    """Runs of points that Strassen's products are cut into, one per thread."""
    return target.threads if half_points(c) % target.threads == 0 else 1


def _strassen_cycles(c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Seven products of halves, and the sums at both ends."""
    target, cpu = machine.target, machine.cpu
    rows, depth, channels = half_points(c), c.depth // 2, c.channels[1] // 2
    run = rows // strassen_parts(c, target)
    product = products_cycles(c, machine, configs, run)
    moved = 7.0 * rows * (depth + channels) * 4
    held = moved + 8.0 * rows * (depth + channels)
    spill = moved / cpu.l3_stream_bytes_per_cycle if held > machine.l2_bytes else 0.0
    # In a model, weights come from memory: seven quarters of those of direct code, which nothing
    # asks for ahead. The first points meet them; several cores are each at another place. Panels
    # are short, and what begins late with each of them one long stream, as machines are measured
    # by, waits for once: never more is hidden than of direct code's.
    weights = 7.0 * depth * channels * 4
    stream = stream_cycles(machine, weights, np.ones(1))
    tiles = np.ceil(run / configs["tile_w"]) if target.threads == 1 else 1.0
    first = product / tiles
    hidden = min(cpu.hidden_stream, 1 - EXPOSED_STREAM)
    product = product - first + overlapped(first, stream, hidden)
    across = (
        from_others_cycles(machine, weights) if run < rows else from_writers_cycles(machine, moved)
    )
    busy = (product + end_cycles(c, machine, moved) + spill) / target.threads
    return np.asarray(busy + across, np.float64)


def products_cycles(
    c: Contraction, machine: Machine, configs: Configs, run: Column | int
) -> Column:
    """Cycles of all cores for the seven products, in runs of so many points."""
    half = dataclasses.replace(c, channels=(c.channels[0], c.channels[1] // 2))
    depth, points = c.depth // 2, configs["tile_w"].astype(np.float64)
    rate, taste = tile_efficiency(half, machine, configs, points, depth)
    padded = padding_waste(half.channels[1], configs["lanes"].astype(np.float64))
    rate = (rate + taste + long_bodies(configs)) * padded * tail_waste(run, configs["tile_w"])
    product = 7 * half_points(c) * depth * half.channels[1] / machine.target.lanes() * rate
    crowded = points > conflict_free_points(machine, depth)
    return np.asarray(product * np.where(crowded, CONFLICT_FACTOR, 1.0))


def end_cycles(c: Contraction, machine: Machine, held: Column | float) -> Column:
    """Cycles of all cores for combining data and results, `held` bytes of them at a time."""
    lanes = float(machine.target.lanes())
    vectors = math.ceil(c.depth // 2 / lanes) + math.ceil(c.channels[1] // 2 / lanes)
    return half_points(c) * vectors * QUARTER_SUM_STORES * store_cycles(machine, held)
