"""Direct code: every product, tile by tile.

The constants were fitted so that surveys of benchmarks/data (Zen 4) and kernels in models are
ranked as measured; only the order that they give matters.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import (
    RUN_LANES,
    asking_cycles,
    beyond_l2,
    busiest_share,
    conflict_free_points,
    from_others_cycles,
    from_writers_cycles,
    overlapped,
    stream_cycles,
)
from autotune.schedule.base import Schedule, Step
from autotune.schedule.loops.nest import Reorder
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.cast import Cast, Dot
from autotune.schedule.memory.copies import PackConstant
from autotune.schedule.memory.prefetch import PrefetchPanel
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, DIRECT, ContractionAlgorithm, Mask
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, output_name, schedule_copies, share
from search_spaces.cpu.contraction.data_prior import data_cost, order_cost
from search_spaces.cpu.contraction.operand_prior import operand_cycles, passes_of, tiles_of
from search_spaces.cpu.contraction.rates import (
    EXPOSED_STREAM,
    STRIP_COST,
    ideal_cycles,
    long_bodies,
    tile_efficiency,
    waste,
)
from search_spaces.cpu.contraction.schedule import (
    annotate_tile,
    cache_weights,
    split_tile,
    step_loop,
)
from search_spaces.cpu.contraction.shape import STRIPS_FIRST, Contraction
from search_spaces.cpu.contraction.tiles import (
    ORDERS,
    PLAIN,
    Packing,
    in_strip,
    outer_loops,
    pack_plan,
    plain,
    sizes,
    strips,
)
from search_spaces.params import Config
from search_spaces.space import Configs

MOST_PREFETCH_POINTS = 1024
"""Points up to which panels may be asked for: with more, arithmetic takes 30 times as long as the
weights from memory."""
PREFETCH_POINTS = 8
"""Points from which arithmetic takes so long that weights are late unless prefetched."""
PREFETCH_GAIN = 0.9
"""Time with weights prefetched over without, of few points, where that pays."""
PREFETCH_LOSS = 1.1
"""The same where it does not."""
POINT_CONFLICT_COST = 0.5
"""Share that points which evict each other from it add."""
NEAR_CONFLICT = 0.75
"""Share of the points that fit from which some evict each other: other data take sets too."""
NEAR_CONFLICT_COST = 0.01
"""Share of the time that these add."""
RESULT_STORES = {"channels_first": 1.46, "rows_first": 1.1, "points_first": 0.0}
"""Stores per line of results, or of what is added to them, that a tile of one vector of channels
takes where they lie beyond the L2 cache; wider tiles take whole runs of lines."""


class Products(ContractionAlgorithm):
    """Algorithms that compute every product: tiles of points by vectors of channels."""

    is_direct = True
    reads_plain = False
    """Whether weights that are activations may be read where they lie."""
    prefetches = False
    """Whether panels of weights may be asked for early."""
    dtype = ""
    """Element type that operands are rounded to, if to another."""

    def is_written(self, schedule: Schedule, product: type[Step]) -> bool:
        """Whether a schedule multiplies by this step, its operands rounded where these are."""
        kinds = {type(step) for step in schedule}
        return product in kinds and (Cast in kinds) == bool(self.dtype)

    def may_prefetch(self, c: Contraction) -> bool:
        return c.constant and c.count * c.row_count * c.points[1] <= MOST_PREFETCH_POINTS

    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:
        ok = (configs["block"] == 1) & _divides(c, target, configs)
        ok &= c.reduce[-1][1] // self.neighbours % configs["unroll"] == 0
        if self.neighbours > 1 and target.sve_granules:
            # Code sums neighbours by instructions for 128 bits.
            ok &= configs["lanes"] == RUN_LANES
        several = c.channels[1] > configs["lanes"] * configs["vectors"]
        # A panel that every tile goes on from would be asked for again and again.
        once = np.isin(configs["order"], (ORDERS[0], STRIPS_FIRST))
        asks = self.may_prefetch(c) & (c.streams | once)
        ok &= (several & asks & self.prefetches) | (configs["prefetch"] == "none")
        return np.asarray(ok & (self.reads_plain | ~plain(c, configs)))

    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        """Every product, tile by tile."""
        neighbours = self.neighbours
        if self.dtype:
            builder.apply(Cast(buffer=c.data, tensor=c.tensor))
        if c.groups > 1:
            builder.split(c.channels[0], c.channels[1], "group", "channel")
        if c.constant:
            # Before the channels are split: a guard on the last block would hide that they stay
            # inside their group.
            splits, order = self.packing(c, config)
            pack = PackConstant(buffer=c.weights, splits=splits, order=order, dtype=self.dtype)
            builder.apply(pack)
        count = strips(c, target) if config["order"] == STRIPS_FIRST else 1
        tile = split_tile(builder, c, config, count)
        tile = self.split_product(builder, c, config, tile)
        outer = outer_loops(c, str(config["order"]))
        batch = [n for n, _ in c.batch]
        builder.apply(Reorder(loops=(*batch, *outer, *tile)))
        builder.apply(CacheWrite(buffer=c.tensor, loops=tile))
        self.annotate(builder, c, config, tile)
        if config["prefetch"] == "panel":
            loop = step_loop(c, config)
            builder.apply(PrefetchPanel(buffer=c.weights, panel="block", loop=loop))
        at, part = f"{c.tensor}.reg", in_strip(c, count)
        for loop, extent, size in (
            ("block", c.channels[1], config.number("lanes") * config.number("vectors")),
            ("points", part.points[1], config.number("tile_w")),
            ("rows", part.row_count, config.number("tile_h")),
        ):
            if extent % size:
                builder.apply(Specialize(loop=loop, at=at))
        as_it_is = c.constant or dict(config.items).get("weights") == PLAIN
        whole = as_it_is or cache_weights(
            builder, c, config, target, neighbours=neighbours, dtype=self.dtype
        )
        schedule_copies(builder, target, {output_name(builder.task)})
        share(builder, target, [*batch, *outer] if whole else batch, "shared")

    def packing(self, c: Contraction, config: Config) -> Packing:
        """How constant weights lie."""
        return pack_plan(c, config, tuple(range(c.weight_rank)), self.neighbours)

    def split_product(
        self,
        builder: ScheduleBuilder,
        c: Contraction,
        config: Config,  # noqa: ARG002
        tile: tuple[str, ...],
    ) -> tuple[str, ...]:
        """Split the reduction, and the tile's loops, as an instruction takes them; gives these."""
        if self.neighbours > 1:
            builder.split(c.reduce[-1][0], self.neighbours, "pairs", "pair")
        return tile

    def annotate(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, tile: tuple[str, ...]
    ) -> None:
        """Say of the tile's loops what they become."""
        annotate_tile(builder, c, config, tile, "pairs" if self.neighbours > 1 else "")
        if self.neighbours > 1:
            builder.apply(Reorder(loops=(*tile, "pair")))
            builder.apply(Dot(loop="pair"))

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        striped = configs["order"] == STRIPS_FIRST
        configs = {**configs, "order": np.where(striped, "channels_first", configs["order"])}
        total = direct_cycles(task, c, machine, configs)
        if striped.any():
            total = np.where(striped, strip_cycles(task, c, machine, configs), total)
        return np.asarray(total / machine.products_per_lane(self.name))

    def prefetch_gain(self, c: Contraction, machine: Machine) -> float:
        if not c.streams:
            return 1.0  # the cycles say it
        return PREFETCH_GAIN if _prefetch_pays(c, machine) else PREFETCH_LOSS


class Direct(Products):
    """Products of float32 operands, or of what is widened to it."""

    name, code, rank, turn = DIRECT, 0, 0, 2
    is_plain = reads_plain = prefetches = True

    def label(self, schedule: Schedule) -> str:  # noqa: ARG002
        return DIRECT

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:  # noqa: ARG002
        return c.item_bytes > 1


ALGORITHMS.add(Direct.name, Direct())


def _divides(c: Contraction, target: Target, configs: Configs) -> Mask:
    """Whether tiles divide well what they are cut of."""
    strip, striped = in_strip(c, strips(c, target)), configs["order"] == STRIPS_FIRST

    def divides(name: str, whole: int, part: int, most: int) -> Mask:
        in_whole, in_part = (np.isin(configs[name], sizes(e, most)) for e in (whole, part))
        return np.where(striped, in_part, in_whole)

    return np.asarray(
        divides("tile_w", c.points[1], strip.points[1], 28)
        & divides("tile_h", c.row_count, strip.row_count, 4)
    )


def _prefetch_pays(c: Contraction, machine: Machine) -> bool:
    """Whether weights are worth asking for early. For few points the hardware does so itself, as
    fast as a cache gives them, and what it asks for twice it gets late: steps of recurrent layers
    find their weights in the L2 cache. Single points of huge weights leave it short of memory,
    where nothing else was measured."""
    points = c.count * c.row_count * c.points[1]
    huge = points == 1 and c.weight_bytes > machine.l3_bytes / 4
    huge = huge and not machine.foresees(c.weight_bytes)
    return c.streams and (points >= PREFETCH_POINTS or huge)


def direct_cycles(
    task: Task, c: Contraction, machine: Machine, configs: Configs, *, streams: bool = True
) -> Column:
    """Direct code: tile efficiency, tails, conflicts, loop order; operands, results, and data from
    other cores. `streams`: with weights that come from afar."""
    points = (configs["tile_w"] * configs["tile_h"]).astype(np.float64)
    # Where points share four vectors of weights, one of these may be loaded late.
    over = np.where(configs["vectors"] >= 4, 1, 0)
    rate, taste = tile_efficiency(c, machine, configs, points, c.depth, over=over)
    cost = waste(c, configs) * rate + taste + long_bodies(configs)
    cost = cost + _point_conflicts(task, c, machine, points)
    cost = cost + order_cost(task, machine, c, configs)
    cost = cost + data_cost(task, machine, c, configs, points)
    chunks = np.ceil(c.points[1] / configs["tile_w"]) * np.ceil(c.row_count / configs["tile_h"])
    chunks = chunks * np.ceil(c.channels[1] / (configs["vectors"] * configs["lanes"]))
    shared = busiest_share(chunks * c.count * c.groups, machine.target.threads)
    busy = ideal_cycles(c, machine.target) * cost * shared
    if streams:
        stream = _weight_stream(c, machine, configs) / machine.target.threads
        # While the first points meet weights, these come in; others find them in a cache.
        first = busy / _met_again(c, machine, configs)
        busy = busy - first + _beside_stream(c, machine, configs, (first, busy), stream)
    busy = busy + operand_cycles(task, c, machine, configs)
    busy = busy + _result_cycles(task, c, machine, configs)
    return np.asarray(busy + _crossing_cycles(task, c, machine, configs), np.float64)


def _beside_stream(
    c: Contraction, machine: Machine, configs: Configs, arithmetic: tuple[Column, Column],
    stream: Column,
) -> Column:  # fmt: skip
    """Cycles of the arithmetic that meets weights first, which come in meanwhile. `arithmetic`: of
    that, and all of it, in which panels come that are asked for ahead."""
    first, busy = arithmetic
    foreseen = overlapped(first, stream, machine.cpu.hidden_stream)
    asked = busy + asking_cycles(machine, c.weight_bytes) / machine.target.threads
    asked = overlapped(asked, stream, machine.cpu.hidden_asked_stream) - (busy - first)
    early = (configs["prefetch"] == "panel") & (not c.streams)
    return np.where(early, asked, foreseen)


def strip_cycles(task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Direct code of threads which share strips: each has its own data, and needs all weights, for
    every strip again."""
    threads = machine.target.threads
    count = strips(c, machine.target)
    alone = dataclasses.replace(machine, target=machine.target.with_threads(1))
    busy = direct_cycles(task, in_strip(c, count), alone, configs, streams=False)
    busy = busy * count / threads
    shared, own = stream_cycles(machine, c.weight_bytes, np.asarray([1, count])) / threads
    exposed = EXPOSED_STREAM * (own - shared)
    busy = STRIP_COST * busy
    return np.asarray(_beside_stream(c, machine, configs, (busy, busy), shared) + exposed)


def _point_conflicts(task: Task, c: Contraction, machine: Machine, points: Column) -> Column:
    """Share of the time that points of a tile add which evict each other."""
    free = conflict_free_points(machine, task.value(c.data).layout.strides[-2] * c.strides[1])
    near = np.where(points > NEAR_CONFLICT * free, NEAR_CONFLICT_COST, 0.0)
    return np.where(points > free, POINT_CONFLICT_COST, near)


def _weight_stream(c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Cycles of all cores while weights come in that do not stay in the L2 cache."""
    passes = passes_of(c, machine, configs)
    passes = passes if beyond_l2(machine, c.weight_bytes) else np.ones(len(passes))
    return stream_cycles(machine, c.weight_bytes, passes)


def _met_again(c: Contraction, machine: Machine, configs: Configs) -> Column | float:
    """Tiles of points that meet a panel of weights while it stays. Several cores are each at
    another place: what one waits for, another one has asked for."""
    if machine.target.threads > 1:
        return 1.0
    return tiles_of(c, configs)[1] / passes_of(c, machine, configs)


def _crossing_cycles(task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Cycles for what lies in other cores' caches. Threads that share the channels need each
    other's data, and their results are needed by the next kernel's threads; threads that share the
    points need all weights."""
    blocks = c.groups * np.ceil(c.channels[1] / (configs["vectors"] * configs["lanes"]))
    threads = machine.target.threads
    if threads == 1 or c.count >= threads:
        return np.zeros(len(blocks))
    first = ("rows_first", "points_first") if c.rows else ("points_first",)
    extent, size = (c.row_count, "tile_h") if c.rows else (c.points[1], "tile_w")
    near = np.isin(configs["order"], first) & (np.ceil(extent / configs[size]) >= threads)
    weights, data, out = (task.value(v).type.nbytes for v in (c.weights, c.data, c.tensor))
    weights_cycles = from_others_cycles(machine, weights)
    return np.where(near | (blocks == 1), weights_cycles, from_writers_cycles(machine, data + out))


def _result_cycles(task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Cycles for results, and what is added to them, that lie beyond the L2 cache."""
    out = task.value(c.tensor).type
    alike = [v for v in task.by_role("input") if v.type == out and v.name != c.data]
    nbytes = out.nbytes * (1 + len(alike))
    if not beyond_l2(machine, nbytes):
        return np.zeros(len(configs["vectors"]))
    stores = np.asarray([RESULT_STORES[str(o)] for o in configs["order"]], np.float64)
    each = stores * machine.cpu.line_bytes / machine.cpu.l3_store_bytes_per_cycle
    lines = nbytes / machine.cpu.line_bytes
    return np.asarray(lines * each / configs["vectors"] / machine.target.threads)
