"""Strassen's algorithm a run of points and a panel of channels at a time, weights as they are:
read once, as direct code does, and combined as they are used.

Constants were fitted to kernels of models on Zen 4; which ones was not written down.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import (
    RUNS,
    beyond_l2,
    busiest_share,
    cold_code_cycles,
    conflict_free_points,
    from_others_cycles,
    stream_cycles,
)
from autotune.program.strassen import PRODUCTS, first_uses
from autotune.schedule.algorithms.strassen import StrassenRuns
from autotune.schedule.base import Schedule
from autotune.schedule.loops.nest import Reorder
from autotune.schedule.loops.peel_all import PeelAll
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.copies import PackConstant
from autotune.schedule.memory.prefetch import PrefetchPart
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, ContractionAlgorithm, Mask
from search_spaces.algorithms.strassen import (
    end_cycles,
    half_points,
    halved_loop,
    halves,
    products_cycles,
    strassen_flops,
)
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, output_name, schedule_copies, share
from search_spaces.cpu.contraction.rates import DATA_COST, NEAR_DATA, RAGGED_COST, STRIP_COST
from search_spaces.cpu.contraction.schedule import annotate_tile, step_loop
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.cpu.contraction.tiles import ORDERS, sizes
from search_spaces.params import Config
from search_spaces.space import Configs

LEAST_RUN = 8
"""Points that share a panel of weights, which is read again for every run."""
SHARED_PATH = 2.0
"""Times what a stream asked for early costs beside one load of its operands: sums of quarters load
two (fitted: kernels of models, Zen 4)."""
SUMMED_WEIGHTS = 10 / 7
"""Loads and additions of a vector of weights that a product needs: five of seven use sums."""
NEAR_CONFLICT, NEAR_CONFLICT_FACTOR = 0.75, 1.1
"""Share of the points that fit in the L1 cache's sets from which they evict each other, and times
that products then take."""
QUARTERS = 12 / 7
"""Quarters of weights that a product combines, on average."""
QUARTER_WAIT = 0.02
"""Share of the time of quarters' coming from the L2 cache that shows even where it is short."""
STEP_CODE_BYTES = 7
"""Bytes of machine code per accumulator of a step of the reduction."""
TILE_CODE_BYTES = 16
"""Bytes of machine code per accumulator of a tile."""


class Runs(ContractionAlgorithm):
    """Halves of a run of points."""

    name, code, rank = "strassen_runs", 9, 31
    reference = "Strassen, Gaussian Elimination is not Optimal, 1969"
    error = 1e-3

    def label(self, schedule: Schedule) -> str:
        return "strassen" if any(isinstance(step, StrassenRuns) for step in schedule) else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:  # noqa: ARG002
        return target.accuracy == "normal" and halves(task) is not None

    def blocks(self, c: Contraction, target: Target) -> Collection[int]:
        return runs_of(c, target)

    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:
        """Whole panels and runs; tiles lie in these."""
        run = configs["block"]
        ok = (configs["tile_h"] == 1) & (configs["order"] == ORDERS[0])
        ok &= (configs["prefetch"] == "none") & np.isin(run, runs_of(c, target))
        for size in runs_of(c, target):
            ok &= (run != size) | np.isin(configs["tile_w"], sizes(size, 28))
        ok &= c.reduce[-1][1] // 2 % configs["unroll"] == 0
        ok &= c.channels[1] // 2 % (configs["vectors"] * configs["lanes"]) == 0
        # There are seven bodies: longer ones take longer to build and to fetch, and gain nothing
        # but where a load takes what several steps multiply by.
        ok &= configs["unroll"] <= (max(RUNS) if target.takes_lanes else 2)
        return np.asarray(ok & (configs["vectors"] * configs["lanes"] <= c.channels[1] // 2))

    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        """Seven products of halves, a run of points and a panel of channels at a time."""
        size = config.number("lanes") * config.number("vectors")
        run, points = config.number("block"), config.number("tile_w")
        builder.apply(
            StrassenRuns(buffer=c.tensor, rows=halved_loop(builder.task), lanes=target.lanes(),
            run=run, panel=size,
        ))  # fmt: skip
        splits, order = _quarters_plan(c, size)
        builder.apply(PackConstant(buffer=c.weights, splits=splits, order=order))
        builder.split(c.channels[0], config.number("lanes"), "vector", "lane")
        builder.split("stra_t", points, "points", "point")
        tile = ("point", "vector", "lane")
        products = f"{c.tensor}.m"
        builder.apply(Reorder(loops=("stra_i", "points", *tile)))
        builder.apply(CacheWrite(buffer=products, loops=tile))
        annotate_tile(builder, c, config, tile)
        if run % points:
            builder.apply(Specialize(loop="points", at=f"{products}.reg"))
        builder.apply(PeelAll(loop="stra_i"))
        _prefetch_quarters(builder, c, config)
        schedule_copies(builder, target, {output_name(builder.task), products, f"{c.tensor}.v"})
        share(builder, target, ["stra_r"], "shared")

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        return _runs_cycles(task, c, machine, configs)

    def flops(self, task: Task, schedule: Schedule) -> int:  # noqa: ARG002
        return strassen_flops(task)


ALGORITHMS.add(Runs.name, Runs())


def runs_of(c: Contraction, target: Target) -> tuple[int, ...]:
    """Points of a half that Strassen's algorithm may take at a time: equal runs, as many for each
    thread where they can be."""
    whole = half_points(c)
    found = [d for d in range(1, whole + 1) if whole % d == 0 and d >= min(LEAST_RUN, whole)]
    even = [d for d in found if whole // d % target.threads == 0]
    return tuple(even or found)


def _quarters_plan(
    c: Contraction, size: int
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """(splits, order) that put the panels of `size` channels of all quarters side by side."""
    labels = [
        {c.channel_dim: "channel", c.reduce_dim: "depth"}.get(d, f"{d}")
        for d in range(c.weight_rank)
    ]
    splits: list[tuple[int, int]] = []
    for label, factor, outer, inner in (
        ("channel", c.channels[1] // 2, "right", "channel"),
        ("channel", size, "block", "lane"),
        ("depth", c.depth // 2, "low", "depth"),
    ):
        at = labels.index(label)
        splits.append((at, factor))
        labels[at : at + 1] = [outer, inner]
    named = ("block", "low", "right", "depth", "lane")
    rest = [name for name in labels if name not in named]
    order = (*rest, *named)
    return tuple(splits), tuple(labels.index(name) for name in order)


def _prefetch_quarters(builder: ScheduleBuilder, c: Contraction, config: Config) -> None:
    """While a product runs, ask for the weights that the next one is the first to use."""
    last = step_loop(c, config)
    block, low, right = (c.weight_rank + d for d in (-2, -1, 0))
    for number in range(PRODUCTS):
        following = (number + 1) % PRODUCTS
        for q, r in first_uses(following):
            builder.apply(
                PrefetchPart(buffer=c.weights, first=f"points.stra_i{number}",
                loop=f"{last}.stra_i{number}", fixed=((low, q), (right, r)),
                ahead=() if following else (block,),
            ))  # fmt: skip


def _runs_cycles(task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
    """The same in runs of points, each with all weights: these are asked for early, and late only
    where multiplying takes less time than they do."""
    threads, run = machine.target.threads, configs["block"].astype(np.float64)
    runs = half_points(c) / run
    shares = busiest_share(runs, threads)
    product = _run_products(c, machine, configs, run) * shares
    near = NEAR_CONFLICT * conflict_free_points(machine, c.depth // 2)
    conflicts = np.where(configs["tile_w"] > near, NEAR_CONFLICT_FACTOR, 1.0)
    product = product * _panel_waits(machine, configs) * conflicts
    stream = stream_cycles(machine, c.weight_bytes, np.asarray(np.ceil(runs))) / threads
    waits = SHARED_PATH * (1 - machine.cpu.hidden_asked_stream)
    busy = np.maximum(product, stream) + waits * stream
    busy = busy + (end_cycles(c, machine, _held(c, run)) + _run_spill(c, machine, run)) * shares
    busy = busy + _end_bytes(task, c, machine) / machine.cpu.l3_stream_bytes_per_cycle / threads
    busy = busy + cold_code_cycles(machine, _code_bytes(configs))
    busy = busy * (STRIP_COST if threads > 1 else 1.0)
    return np.asarray(busy + from_others_cycles(machine, c.weight_bytes))


def _run_products(c: Contraction, machine: Machine, configs: Configs, run: Column) -> Column:
    """Cycles of all cores for the products of runs. As direct code: data are read at as many
    places as a tile has points."""
    inside = run * (c.depth // 2) * 4 < machine.l2_bytes * machine.cpu.own_share_of_l2
    points = configs["tile_w"].astype(np.float64)
    extra = DATA_COST / configs["vectors"] * np.where(inside, NEAR_DATA, 1.0)
    extra = extra + RAGGED_COST * (-run % configs["tile_w"]) / run
    least = 1 if machine.target.takes_lanes else 4
    steps = {**configs, "unroll": np.maximum(configs["unroll"], least)}
    # Sums of weights take the place of multiply-adds where nothing else adds.
    summed = SUMMED_WEIGHTS / points * max(0.0, 1 - machine.cpu.additions_beside)
    return products_cycles(c, machine, steps, run) * (1 + extra + summed)


def _held(c: Contraction, run: Column) -> Column:
    """Bytes of a run's sums and products."""
    return np.asarray(7.0 * run * (c.depth + c.channels[1]) // 2 * 4)


def _run_spill(c: Contraction, machine: Machine, run: Column) -> Column:
    """Cycles for sums of runs that leave the L2 cache."""
    sums = 7.0 * run * (c.depth // 2) * 4
    far = sums > machine.l2_bytes * machine.cpu.own_share_of_l2
    moved = 2 * sums * (half_points(c) / run)
    return np.where(far, moved / machine.cpu.l3_stream_bytes_per_cycle, 0.0)


def _code_bytes(configs: Configs) -> Column:
    """Machine code of seven products, which other kernels have driven from the caches."""
    held = configs["vectors"] * configs["tile_w"]
    code = 7 * held * (STEP_CODE_BYTES * configs["unroll"] + TILE_CODE_BYTES)
    ragged = configs["block"].astype(np.float64) % configs["tile_w"]
    return np.asarray(code * np.where(ragged, 2, 1), np.float64)


def _panel_waits(machine: Machine, configs: Configs) -> Column:
    """Times what multiplying takes if panels of quarters, mostly two, come from the L2 cache for
    every tile: few points use what comes."""
    nbytes = QUARTERS * machine.target.vector_bytes
    cycles = nbytes / machine.cpu.l2_stream_bytes_per_cycle / configs["tile_w"]
    return np.maximum(1.0, cycles) + QUARTER_WAIT * cycles


def _end_bytes(task: Task, c: Contraction, machine: Machine) -> float:
    """Bytes that combining waits for, while nothing is multiplied: data beyond the L2 cache, and
    half of the results there, with what is added to them."""
    data, out = task.value(c.data).type, task.value(c.tensor).type
    alike = [v for v in task.by_role("input") if v.type == out and v.name != c.data]
    results = out.nbytes * (1 + len(alike))
    read = data.nbytes * beyond_l2(machine, data.nbytes)
    return read + results / 2 * beyond_l2(machine, results)
