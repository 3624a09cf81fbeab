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
from autotune.schedule.base import Schedule
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
from search_spaces.cpu.contraction.rates import (
    BAND_COST,
    DATA_COST,
    EXPOSED_STREAM,
    NEAR_DATA,
    RAGGED_COST,
    ideal_cycles,
    tile_efficiency,
    waste,
)
from search_spaces.cpu.contraction.schedule import (
    annotate_tile,
    cache_weights,
    split_tile,
    step_loop,
)
from search_spaces.cpu.contraction.shape import BANDS, Contraction
from search_spaces.cpu.contraction.tiles import (
    ORDERS,
    PLAIN,
    bands,
    in_band,
    outer_loops,
    pack_plan,
    plain,
    sizes,
)
from search_spaces.params import Config
from search_spaces.space import Columns

MOST_PREFETCH_POINTS = 1024
"""Points up to which panels may be asked for: with more, arithmetic takes 30 times as long as the
weights from memory."""
PREFETCH_POINTS = 8
"""Points from which arithmetic takes so long that weights are late unless prefetched."""
PREFETCH_GAIN = 0.9
"""Time with weights prefetched over without, of few points, where that pays."""
PREFETCH_LOSS = 1.1
"""The same where it does not."""
ORDER_COSTS = {
    "channels_first": (0.0, 0.01), "rows_first": (0.005, 0.01), "points_first": (0.005, 0.02),
}  # fmt: skip
"""Order of loops -> share that it adds where the operand that is read again stays in the L2 cache,
and where it does not."""
FLAT_ROWS_COST = 0.03
"""The latter of `rows_first`, of contractions that have no rows."""
COPY_CYCLES = 8.0
"""Cycles per vector of weights that a kernel packs by itself."""
L1_CONFLICT_COST = 0.01
"""Share that rows of weights which evict each other from the L1 cache add."""
POINT_CONFLICT_COST = 0.5
"""Share that points which evict each other from it add."""
NEAR_CONFLICT = 0.75
"""Share of the points that fit from which some evict each other: other data take sets too."""
NEAR_CONFLICT_COST = 0.01
"""Share of the time that these add."""
WEIGHT_COST = 0.08
"""Share that weights add which only one point uses."""
WEIGHTS_IN_L2 = 0.75
"""Share of the L2 cache that weights may take which are used again."""
FAR_WEIGHTS = 3
"""Times more where what is used again does not stay in the L2 cache."""
WEIGHT_POINTS = 6
"""Points that share weights and have nothing left of that cost."""
TILE_ROW_COST = 0.002
"""Share that each further row of a tile adds: rows are more places than points side by side."""
SPARSE_COST = 0.03
"""Share that data of which a strided kernel skips points add, where they are read in turns with
others: what a prefetcher brings is not what is needed."""
RESULT_STORES = {"channels_first": 1.46, "rows_first": 1.1, "points_first": 0.0}
"""Stores per line of results, or of what is added to them, that a tile of one vector of channels
takes where they lie beyond the L2 cache; wider tiles take whole runs of lines."""


class Products(ContractionAlgorithm):
    """What computes every product: tiles of points by vectors of channels."""

    is_direct = True
    reads_plain = False
    """Whether weights that are activations may be read where they lie."""
    prefetches = False
    """Whether panels of weights may be asked for early."""
    dtype = ""
    """Element type that operands are rounded to, if to another."""

    def may_prefetch(self, c: Contraction) -> bool:
        return c.constant and c.count * c.row_count * c.points[1] <= MOST_PREFETCH_POINTS

    def valid(self, c: Contraction, target: Target, columns: Columns) -> Mask:
        ok = (columns["block"] == 1) & _divides(c, target, columns)
        ok &= c.reduce[-1][1] // self.neighbours % columns["unroll"] == 0
        if self.neighbours > 1 and target.sve_granules:
            # Code sums neighbours by instructions for 128 bits.
            ok &= columns["lanes"] == RUN_LANES
        several = c.channels[1] > columns["lanes"] * columns["vectors"]
        # A panel that every tile goes on from would be asked for again and again.
        asks = self.may_prefetch(c) & (c.streams | (columns["order"] == ORDERS[0]))
        ok &= (several & asks & self.prefetches) | (columns["prefetch"] == "none")
        return np.asarray(ok & (self.reads_plain | ~plain(c, columns)))

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
            splits, order = pack_plan(c, config, tuple(range(c.weight_rank)), neighbours)
            pack = PackConstant(buffer=c.weights, splits=splits, order=order, dtype=self.dtype)
            builder.apply(pack)
        count = bands(c, target) if config["order"] == BANDS else 1
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
        at, part = f"{c.tensor}.reg", in_band(c, count)
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

    def cycles(self, task: Task, c: Contraction, machine: Machine, columns: Columns) -> Column:
        banded = columns["order"] == BANDS
        columns = {**columns, "order": np.where(banded, "channels_first", columns["order"])}
        total = direct_cycles(task, c, machine, columns)
        if banded.any():
            total = np.where(banded, band_cycles(task, c, machine, columns), total)
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


def _divides(c: Contraction, target: Target, columns: Columns) -> Mask:
    """Whether tiles divide well what they are cut of."""
    band, banded = in_band(c, bands(c, target)), columns["order"] == BANDS

    def divides(name: str, whole: int, part: int, most: int) -> Mask:
        in_whole, in_part = (np.isin(columns[name], sizes(e, most)) for e in (whole, part))
        return np.where(banded, in_part, in_whole)

    return np.asarray(
        divides("tile_w", c.points[1], band.points[1], 28)
        & divides("tile_h", c.row_count, band.row_count, 4)
    )


def _prefetch_pays(c: Contraction, machine: Machine) -> bool:
    """Whether weights are worth asking for early. For few points the hardware does so itself, as
    fast as a cache gives them, and what it asks for twice it gets late: steps of recurrent layers
    find their weights in the L2 cache. Single points of huge weights leave it short of memory,
    where nothing else was measured."""
    points = c.count * c.row_count * c.points[1]
    huge = points == 1 and c.weight_bytes > machine.target.l3_bytes / 4
    huge = huge and not machine.foresees(c.weight_bytes)
    return c.streams and (points >= PREFETCH_POINTS or huge)


def direct_cycles(
    task: Task, c: Contraction, machine: Machine, columns: Columns, *, streams: bool = True
) -> Column:
    """Direct code: tile efficiency, tails, conflicts, loop order; operands, results, and data from
    other cores. `streams`: with weights that come from afar."""
    points = (columns["tile_w"] * columns["tile_h"]).astype(np.float64)
    # Where points share four vectors of weights, one of these may be loaded late.
    over = np.where(columns["vectors"] >= 4, 1, 0)
    rate, taste = tile_efficiency(c, machine, columns, points, c.depth, over=over)
    cost = waste(c, columns) * rate + taste
    cost = cost + _point_conflicts(task, c, machine, points)
    cost = cost + _order_cost(task, machine, c, columns)
    cost = cost + _data_cost(task, machine, c, columns, points)
    chunks = np.ceil(c.points[1] / columns["tile_w"]) * np.ceil(c.row_count / columns["tile_h"])
    chunks = chunks * np.ceil(c.channels[1] / (columns["vectors"] * columns["lanes"]))
    shared = busiest_share(chunks * c.count * c.groups, machine.target.threads)
    busy = ideal_cycles(c, machine.target) * cost * shared
    if streams:
        stream = _weight_stream(c, machine, columns) / machine.target.threads
        # While the first points meet weights, these come in; others find them in a cache.
        first = busy / _met_again(c, machine, columns)
        foreseen = busy - first + overlapped(first, stream, machine.cpu.hidden_stream)
        asked = busy + asking_cycles(machine, c.weight_bytes) / machine.target.threads
        asked = overlapped(asked, stream, machine.cpu.hidden_asked_stream)
        early = (columns["prefetch"] == "panel") & (not c.streams)
        busy = np.where(early, asked, foreseen)
    busy = busy + operand_cycles(task, c, machine, columns)
    busy = busy + _result_cycles(task, c, machine, columns)
    return np.asarray(busy + _crossing_cycles(task, c, machine, columns), np.float64)


def band_cycles(task: Task, c: Contraction, machine: Machine, columns: Columns) -> Column:
    """Direct code of threads which share bands: each has its own data, and needs all weights, for
    every band again."""
    threads = machine.target.threads
    count = bands(c, machine.target)
    alone = dataclasses.replace(machine, target=machine.target.with_threads(1))
    busy = direct_cycles(task, in_band(c, count), alone, columns, streams=False)
    busy = busy * count / threads
    shared, own = stream_cycles(machine, c.weight_bytes, np.asarray([1, count])) / threads
    return np.asarray(BAND_COST * busy + EXPOSED_STREAM * (own - shared), np.float64)


def _point_conflicts(task: Task, c: Contraction, machine: Machine, points: Column) -> Column:
    """Share of the time that points of a tile add which evict each other."""
    free = conflict_free_points(machine, task.value(c.data).layout.strides[-2] * c.strides[1])
    near = np.where(points > NEAR_CONFLICT * free, NEAR_CONFLICT_COST, 0.0)
    return np.where(points > free, POINT_CONFLICT_COST, near)


def _weight_stream(c: Contraction, machine: Machine, columns: Columns) -> Column:
    """Cycles of all cores while weights come in that do not stay in the L2 cache."""
    passes = _passes(c, machine, columns)
    passes = passes if beyond_l2(machine, c.weight_bytes) else np.ones(len(passes))
    return stream_cycles(machine, c.weight_bytes, passes)


def _passes(c: Contraction, machine: Machine, columns: Columns) -> Column:
    """Times that all weights are gone through: once where channels are outside and a panel stays,
    else for every row of tiles, or for every tile."""
    rows, tiles = _tiles(c, columns)
    by_row = rows if c.rows else tiles
    panel = columns["vectors"] * columns["lanes"] * (c.depth * c.item_bytes)
    stays = panel <= machine.cpu.own_share_of_l2 * machine.target.l2_bytes
    order = columns["order"]
    passes = np.where(order == "points_first", tiles, np.where(order == "rows_first", by_row, 1.0))
    return np.where((order == "channels_first") & ~stays, tiles, passes)


def _tiles(c: Contraction, columns: Columns) -> tuple[Column, Column]:
    """Rows of tiles of points, and tiles."""
    rows = np.ceil(c.row_count / columns["tile_h"]) * c.count
    return rows, rows * np.ceil(c.points[1] / columns["tile_w"])


def _met_again(c: Contraction, machine: Machine, columns: Columns) -> Column | float:
    """Tiles of points that meet a panel of weights while it stays. Several cores are each at
    another place: what one waits for, another one has asked for."""
    if machine.target.threads > 1:
        return 1.0
    return _tiles(c, columns)[1] / _passes(c, machine, columns)


def operand_cycles(task: Task, c: Contraction, machine: Machine, columns: Columns) -> Column:
    """Cycles for weights that are activations: copying them, or reading rows that lie apart."""
    if not c.plain:
        return np.zeros(len(columns["vectors"]))
    target = machine.target
    copied = task.value(c.weights).type.size / target.lanes() * COPY_CYCLES / target.threads
    apart = c.depth > conflict_free_points(machine, c.weight_step)
    conflicts = ideal_cycles(c, target) / target.threads * (L1_CONFLICT_COST if apart else 0.0)
    return np.asarray(np.where(plain(c, columns), conflicts, copied))


def _crossing_cycles(task: Task, c: Contraction, machine: Machine, columns: Columns) -> Column:
    """Cycles for what lies in other cores' caches. Threads that share the channels need each
    other's data, and their results are needed by the next kernel's threads; threads that share the
    points need all weights."""
    blocks = c.groups * np.ceil(c.channels[1] / (columns["vectors"] * columns["lanes"]))
    threads = machine.target.threads
    if threads == 1 or c.count >= threads:
        return np.zeros(len(blocks))
    first = ("rows_first", "points_first") if c.rows else ("points_first",)
    extent, size = (c.row_count, "tile_h") if c.rows else (c.points[1], "tile_w")
    near = np.isin(columns["order"], first) & (np.ceil(extent / columns[size]) >= threads)
    weights, data, out = (task.value(v).type.nbytes for v in (c.weights, c.data, c.tensor))
    weights_cycles = from_others_cycles(machine, weights)
    return np.where(near | (blocks == 1), weights_cycles, from_writers_cycles(machine, data + out))


def _order_cost(task: Task, machine: Machine, c: Contraction, columns: Columns) -> Column:
    """Inner operands that leave the L2 cache on every pass are slow."""
    weights, data = (task.value(v).type.nbytes for v in (c.weights, c.data))
    l2_bytes = machine.target.l2_bytes
    stays = {
        "channels_first": data < l2_bytes // 2,
        "rows_first": data // c.row_count + weights < l2_bytes,
        "points_first": weights < l2_bytes // 2,
    }
    costs = {order: ORDER_COSTS[order][not inside] for order, inside in stays.items()}
    if not stays["rows_first"] and not c.rows:
        costs["rows_first"] = FLAT_ROWS_COST
    return np.asarray([costs[str(o)] for o in columns["order"]], np.float64)


def _data_cost(
    task: Task, machine: Machine, c: Contraction, columns: Columns, points: Column
) -> Column:
    """Share that reading adds. Data are read at as many places as a tile has points, again for
    every block of channels; those of a tile that stay in the L1 cache meanwhile are not."""
    far = beyond_l2(machine, task.value(c.data).type.nbytes)
    inside = columns["order"] == "points_first"
    stay = inside & (points * c.depth * c.item_bytes < machine.target.l1_bytes / 2)
    data = DATA_COST / columns["vectors"] * (1.0 if far else NEAR_DATA) * _touched(c, columns)
    cost = np.where(stay, NEAR_DATA, 1.0) * data + _weight_cost(machine, c, columns, points)
    sparse = far and c.rows is not None and c.strides[1] > c.reduce[1][1]
    cost = cost + np.where(inside, 0.0, SPARSE_COST if sparse else 0.0)
    for extent, size in ((c.points[1], columns["tile_w"]), (c.row_count, columns["tile_h"])):
        cost = cost + RAGGED_COST * (-extent % size) / extent
    return np.asarray(cost + TILE_ROW_COST * (columns["tile_h"] - 1))


def _weight_cost(machine: Machine, c: Contraction, columns: Columns, points: Column) -> Column:
    """Share that weights add which few points of a tile use."""
    panel = columns["vectors"] * columns["lanes"] * (c.depth * c.item_bytes)
    again = np.where(columns["order"] == "points_first", c.weight_bytes, panel)
    alone = 1 / points - 1 / WEIGHT_POINTS
    leaves = again > WEIGHTS_IN_L2 * machine.target.l2_bytes
    return WEIGHT_COST * np.where(leaves, FAR_WEIGHTS * alone, np.maximum(alone, 0))


def _touched(c: Contraction, columns: Columns) -> Column:
    """Points of the data that a tile reads, over those if a kernel had one row and column."""
    out = np.ones(len(columns["vectors"]))
    if not c.rows:
        return out
    for name, (_, kernel), stride in zip(("tile_h", "tile_w"), c.reduce, c.strides, strict=False):
        size = columns[name]
        out = out * np.minimum((size - 1) * stride + kernel, size * kernel) / size
    return np.asarray(out / c.reduce[0][1])


def _result_cycles(task: Task, c: Contraction, machine: Machine, columns: Columns) -> Column:
    """Cycles for results, and what is added to them, that lie beyond the L2 cache."""
    out = task.value(c.tensor).type
    alike = [v for v in task.by_role("input") if v.type == out and v.name != c.data]
    nbytes = out.nbytes * (1 + len(alike))
    if not beyond_l2(machine, nbytes):
        return np.zeros(len(columns["vectors"]))
    stores = np.asarray([RESULT_STORES[str(o)] for o in columns["order"]], np.float64)
    each = stores * machine.cpu.line_bytes / machine.cpu.l3_store_bytes_per_cycle
    lines = nbytes / machine.cpu.line_bytes
    return np.asarray(lines * each / columns["vectors"] / machine.target.threads)
