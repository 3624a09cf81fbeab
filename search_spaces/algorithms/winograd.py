"""Winograd's minimal filtering: convolutions over tiles of points with fewer multiplications.

Transforms take what their additions, loads and stores do, and results of short sums what storing
them does: these constants were fitted to measured spaces of ten layers (benchmarks/data, Zen 4).
The rest is of kernels in models, whose weights come from memory and whose tiles share the caches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import (
    asking_cycles,
    busiest_share,
    conflict_free_points,
    from_others_cycles,
    outer_product_cycles,
    overlapped,
    padding_waste,
    store_cycles,
    stream_cycles,
    tail_latency,
)
from autotune.ops.conv import tiled_reach
from autotune.program.winograd import Matrix, additions, factored, points_of, transforms
from autotune.schedule.algorithms.winograd import Winograd
from autotune.schedule.algorithms.winograd_groups import WinogradGroups
from autotune.schedule.base import Schedule
from autotune.sizes import any_size
from autotune.target import Target
from autotune.tasks.flops import node_flops, task_flops
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, ContractionAlgorithm, Mask
from search_spaces.algorithms.filtering_tiles import Tiles
from search_spaces.base import Column, OpenTiles
from search_spaces.builder import ScheduleBuilder, share
from search_spaces.cpu.contraction.filtering import multiply_tiles, open_tiles, write_groups
from search_spaces.cpu.contraction.rates import (
    CONFLICT_FACTOR,
    LONG_BODY_COST,
    LONG_TILED_BODY_COST,
    NARROW_VECTOR_COST,
    STEP_CYCLES,
    tile_efficiency,
)
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.cpu.contraction.tiles import ORDERS
from search_spaces.params import Config
from search_spaces.space import Configs

FORMS = {
    "winograd2": (2, 2), "winograd4": (4, 4), "winograd4x2": (4, 2), "winograd5": (5, 5),
    "winograd6": (6, 6), "winograd3": (3, 3),
}  # fmt: skip
"""Form -> height and width of its tiles of output points: those that divide an image best
multiply least."""
STRIDED = ("winograd2", "winograd4")
"""Forms at strides of 2, and along one dimension."""
SMALL_IMAGES = ("winograd3",)
"""Forms for images of no more than one tile, as phases of a dilated convolution are: larger ones
take less in others."""
MOST_POINTS = 8
"""Where polynomials are evaluated along a side: more lose too many digits."""
MOST_INPUTS = 11
"""Inputs that a tile reads along a side: more do not stay in registers."""
LEAST_CHANNELS = 16
"""Channels of a group, where there are several: with fewer, the transforms cost more than they
save."""
STORE_CYCLES = 0.65
"""Cycles per result of a tile that is stored."""
STORE_QUEUE = 8
"""Results that wait for their store beside arithmetic."""
BURST_CYCLES = 1.2
"""Cycles more for each result beyond those."""
POINT_STORES = 0.53
"""Share of what storing a vector takes, per point of a tile on either end."""
ADDITION_CYCLES = 0.36
"""Cycles per addition or multiply-add of the transforms, beside these."""
SPILLED_TRANSFORM = 1.75
"""Times that a transform of results takes whose half-way values are more than registers."""
SPILL_L2_SHARE = 0.8
"""Share of the L2 cache that transformed tiles of a block may take."""
BACK_AND_FORTH = 1.5
"""Times that transformed tiles which leave the L2 cache move through the next one."""
RELOADED_L1_SHARE = 0.5
"""Share of the L1 cache from which on transformed data do not stay beside panels of weights."""
MOST_HELD_BYTES = 1e5
"""Bytes of transformed weights that lie in the L2 cache beside tiles, at most."""
BLOCK_PARTS = 8.0
"""Parts of a single block that each thread takes, one after another."""


class Filtering(ContractionAlgorithm):
    """One form: tiles of so many points on a side."""

    reference = "Winograd 1980; Lavin & Gray, Fast Algorithms for Convolutional Networks, 2016"
    error = 1e-3
    layout_share = 0.6
    descents = 1

    def __init__(self, name: str, code: int, sides: tuple[int, int]) -> None:
        self.name, self.code, self.rank, self.sides = name, code, 10 + code, sides

    def label(self, schedule: Schedule) -> str:
        step = next(
            (step for step in schedule if isinstance(step, Winograd | WinogradGroups)), None
        )
        return self.name if step is not None and form_of(step) == self.name else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        return target.transforms_weights and can_filter(task, c, self.name)

    def filters(self, c: Contraction) -> bool:
        """Whether it computes a contraction whose images are large."""
        return self.name not in SMALL_IMAGES and can_tile(c, self.name)

    def widths(self, c: Contraction, target: Target) -> Collection[int]:  # noqa: ARG002
        return range(1, 17)

    def blocks(self, c: Contraction, target: Target) -> Collection[int]:  # noqa: ARG002
        return Tiles.of(c, self.sides).blocks()

    def may_prefetch(self, c: Contraction) -> bool:
        return c.groups == 1

    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:  # noqa: ARG002
        """Blocks are whole."""
        tiles, side = configs["block"], configs["tile_w"]
        ok = (configs["tile_h"] == 1) & (configs["order"] == ORDERS[0])
        several = c.channels[1] > configs["lanes"] * configs["vectors"]
        ok &= (several & (c.groups == 1)) | (configs["prefetch"] == "none")
        ok &= np.isin(tiles, Tiles.of(c, self.sides).blocks()) & (side <= tiles)
        tail = (-tiles) % side
        return np.asarray(ok & (tail / (tiles + tail) <= 0.2))

    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        """A block of tiles stays in the cache between steps; of images of any size, all do."""
        if any_size((c.count, c.row_count, c.points[1])):
            write_groups(builder, c, config, target, self.sides)
            return
        tiles, block = Tiles.of(c, self.sides), config.number("block")
        images, block_h, block_w = tiles.block_shape(block)
        builder.apply(
            Winograd(buffer=c.tensor, tile_h=tiles.height, tile_w=tiles.width, block_h=block_h,
            block_w=block_w, lanes=target.lanes(), together=images if images > 1 else 0,
        ))  # fmt: skip
        outer = multiply_tiles(builder, c, config, target, block)
        if tiles.count > block:
            share(builder, target, [c.batch[0][0], "wino_tb", "wino_cb"], "shared")
            return
        for prefix in ("vin", "vout"):
            loops = [f"{prefix}_{name}" for name in ("n", "tr", "tc", "c")]
            share(builder, target, loops[images == 1 :], f"{prefix}_shared")
        share(builder, target, outer, "shared")

    def open_tiles(self, c: Contraction, target: Target) -> Iterable[OpenTiles]:
        if not target.transforms_weights or c.groups > 1 or not self.filters(c):
            return ()
        return open_tiles(c, self.choice, self.sides, target)

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:  # noqa: ARG002
        return _winograd_cycles(c, machine, configs, Tiles.of(c, self.sides))

    def flops(self, task: Task, schedule: Schedule) -> int:
        return filtering_flops(task, schedule)


for _form_name, _code in (
    ("winograd2", 2), ("winograd4", 4), ("winograd4x2", 6), ("winograd5", 7), ("winograd6", 8),
    ("winograd3", 17),
):  # fmt: skip
    ALGORITHMS.add(_form_name, Filtering(_form_name, _code, FORMS[_form_name]))


def can_filter(task: Task, c: Contraction, form: str) -> bool:
    """Whether the form computes a convolution, and its tiles end where the data's halo does."""
    if not can_tile(c, form):
        return False
    tile = FORMS[form]
    large = max(c.row_count, c.points[1]) >= max(tile)
    if form in SMALL_IMAGES:
        large = max(c.row_count, c.points[1]) == max(tile)
    return large and covered(task, c, tile)


def can_tile(c: Contraction, form: str) -> bool:
    """Whether the form computes a convolution of large images."""
    if c.rows is None or c.item_bytes != 4 or not c.constant:
        return False
    tile, strides = FORMS[form], c.strides
    *kernel, depth = (e for _, e in c.reduce)
    if max(kernel) < 2 or depth == 1:
        return False  # a single channel's transform costs what it saves: no halo is kept for it
    if c.groups > 1 and min(depth, c.channels[1]) < LEAST_CHANNELS:
        return False
    if max(strides) > 2 or c.dilation != (1, 1):
        return False
    if any(1 < k < s for k, s in zip(kernel, strides, strict=True)):
        return False
    sides = [(m, k, s) for m, k, s in zip(tile, kernel, strides, strict=True) if k > 1]
    exact = all(m + -(-k // s) - 1 <= MOST_POINTS for m, k, s in sides)
    small = all(points_of(m, k, s) <= MOST_INPUTS for m, k, s in sides)
    known = form in STRIDED or (len(sides) == 2 and max(strides) == 1)
    return exact and small and known


def covered(task: Task, c: Contraction, sides: tuple[int, int]) -> bool:
    """Whether the data hold zeros as far as whole tiles of these sides read."""
    data, weights = (task.value(v) for v in (c.data, c.weights))
    reach = tiled_reach(data.type, weights.type, dict(task.nodes[task.anchor].attrs), sides)
    return all(b <= x and a <= y for (b, a), (x, y) in zip(reach, data.layout.halo, strict=True))


def filtering_flops(task: Task, schedule: Schedule) -> int:
    """Products, both transforms, and what the rest of the task takes."""
    step = next(step for step in schedule if isinstance(step, Winograd | WinogradGroups))
    node = task.nodes[task.anchor]
    weights = task.value(node.inputs[1]).type.shape
    out = task.value(node.outputs[0]).type.shape
    kh, kw, ic, oc = weights
    channels = task.value(node.inputs[0]).type.shape[3]
    tiles = out[0] * -(-out[1] // step.tile_h) * -(-out[2] // step.tile_w)
    attrs: dict[str, Any] = dict(node.attrs)
    by_row, by_column = attrs.get("strides", (1, 1))
    rows, columns = points_of(step.tile_h, kh, by_row), points_of(step.tile_w, kw, by_column)
    products = 2 * tiles * rows * columns * ic * oc
    # A multiply-add per element of the matrices: rows first, then columns.
    ahead = 2 * tiles * channels * (rows * rows * columns + rows * columns * columns)
    behind = 2 * tiles * oc * step.tile_h * columns * (rows + step.tile_w)
    return products + ahead + behind + task_flops(task) - node_flops(task, node)


def form_of(step: Winograd | WinogradGroups) -> str:
    """The name of a step's form; a tile of one row or column is called by its other side."""
    height, width = step.tile_h, step.tile_w
    oblong = min(height, width) > 1 and height != width
    return f"winograd{height}x{width}" if oblong else f"winograd{max(height, width)}"


def _winograd_cycles(c: Contraction, machine: Machine, configs: Configs, tiling: Tiles) -> Column:
    """Products of all points, transforms of both ends, and streams that miss the L2 cache."""
    ic, oc = c.reduce[2][1], c.channels[1] * c.groups
    area, tiles = tiling.points, tiling.count
    block, threads = configs["block"].astype(np.float64), machine.target.threads
    blocks, points = tiles / block, configs["tile_w"].astype(np.float64)
    rate = _product_rate(c, machine, configs, block, ic)
    product = area * tiles * ic * oc / float(machine.target.lanes()) * rate
    product = product * np.where(
        points > conflict_free_points(machine, ic * c.groups), CONFLICT_FACTOR, 1.0
    )
    nbytes = area * ic * oc * 4.0
    stream = _weight_stream(c, machine, configs, nbytes, blocks)
    # Weights come in while the first tile of points meets them; the others find them in a cache.
    # Several cores are each at another place: what one waits for, another one has asked for.
    first = product / (np.ceil(block / points) if threads == 1 else 1.0)
    foreseen = product - first + overlapped(first, stream, machine.cpu.hidden_stream)
    asked = product + asking_cycles(machine, nbytes * blocks)
    asked = overlapped(asked, stream, machine.cpu.hidden_asked_stream)
    work = np.where(configs["prefetch"] == "panel", asked, foreseen)
    work = work + _reload_cycles(c, machine, configs, nbytes, tiles)
    work = work + _transform_cycles(c, machine, tiling, block)
    work = work + _spill_cycles(c, machine, block, tiles, area)
    chunks = np.where(blocks == 1, BLOCK_PARTS * threads, blocks)
    across = np.where(blocks == 1, area * tiles * (ic * c.groups + oc) * 4.0, 0.0)
    busy = work * busiest_share(chunks, threads)
    return np.asarray(busy + from_others_cycles(machine, across), np.float64)


def _weight_stream(
    c: Contraction, machine: Machine, configs: Configs, nbytes: float, blocks: Column
) -> Column:
    """Cycles of all cores while weights come in. From memory, zeros that fill the last block of
    channels cost as much as weights."""
    stream = stream_cycles(machine, nbytes, blocks)
    if nbytes > machine.cpu.own_share_of_l3 * machine.l3_bytes:
        return stream * padding_waste(c.channels[1], configs["lanes"] * configs["vectors"])
    return stream


def _reload_cycles(
    c: Contraction, machine: Machine, configs: Configs, nbytes: float, tiles: int
) -> Column:
    """Cycles for transformed data that every panel of weights drives from the L1 cache, beside
    weights from memory: these hold the buffers that a line from any cache comes through."""
    width = configs["lanes"] * configs["vectors"]
    held = 4.0 * c.reduce[2][1] * (configs["block"] + width)
    evicted = held >= RELOADED_L1_SHARE * machine.l1_bytes
    far = nbytes > machine.cpu.own_share_of_l3 * machine.l3_bytes
    loaded = far * tiles * nbytes / c.channels[1] * np.ceil(c.channels[1] / width)
    return np.asarray(evicted * loaded / machine.cpu.memory_stream_bytes_per_cycle)


def _transform_cycles(c: Contraction, machine: Machine, tiling: Tiles, block: Column) -> Column:
    """Cycles of the transforms at both ends: a pass along a tile's columns, one along its rows."""
    lanes = machine.target.lanes()
    (kh, kw), (height, width) = (e for _, e in c.reduce[:2]), (tiling.height, tiling.width)
    by_row, by_column = (
        transforms(m, k, s) for m, k, s in zip((height, width), (kh, kw), c.strides, strict=True)
    )
    (out_rows, _, in_rows), (out_columns, _, in_columns) = by_row, by_column
    tall, wide = len(in_rows), len(in_columns)
    before = wide * _additions(in_rows) + tall * _additions(in_columns)
    after = wide * _additions(out_rows) + height * _additions(out_columns)
    vectors_in = math.ceil(c.reduce[2][1] * c.groups / lanes)
    vectors_out = math.ceil(c.channels[1] * c.groups / lanes)
    area = tall * wide
    each = POINT_STORES * area * store_cycles(machine, area * block * 4 * c.reduce[2][1])
    data = vectors_in * (each + ADDITION_CYCLES * before)
    spilled = SPILLED_TRANSFORM if height * wide > machine.target.vector_registers else 1.0
    each = POINT_STORES * area * store_cycles(machine, area * block * 4 * c.channels[1])
    return tiling.count * (data + vectors_out * (each + ADDITION_CYCLES * after) * spilled)


def _additions(matrix: Matrix) -> int:
    """Additions in a product of the matrix and a vector."""
    return additions(factored(matrix))


def _spill_cycles(
    c: Contraction, machine: Machine, block: Column, tiles: int, area: int
) -> Column:
    """Cycles for transformed tiles, where those of a block do not stay in the L2 cache."""
    ic, oc = c.reduce[2][1], c.channels[1] * c.groups
    each = area * (ic * c.groups + oc) * 4.0
    held = each * block + min(area * ic * oc * 4.0, MOST_HELD_BYTES)
    spilled = held > SPILL_L2_SHARE * machine.l2_bytes
    moved = BACK_AND_FORTH * each * tiles
    return np.asarray(spilled * moved / machine.cpu.l3_stream_bytes_per_cycle)


def _product_rate(
    c: Contraction, machine: Machine, configs: Configs, block: Column, depth: int
) -> Column:
    """Cycles per multiply-add of full width of products of `block` points."""
    points = configs["tile_w"].astype(np.float64)
    rate, taste = tile_efficiency(c, machine, configs, points, depth, rate=_tile_rate)
    asks, long = configs["prefetch"] == "panel", configs["unroll"] > 4
    taste = taste + np.where(long, np.where(asks, LONG_BODY_COST, LONG_TILED_BODY_COST), 0.0)
    padded = padding_waste(c.channels[1], configs["lanes"].astype(np.float64))
    return np.asarray(
        (rate + taste) * padded * tail_latency(machine, block, points, configs["vectors"])
    )


def _tile_rate(
    machine: Machine, configs: Configs, points: Column, vectors: Column, depth: int
) -> Column:
    """Cycles per multiply-add of full width of a tile of `points` x `vectors`."""
    share = configs["lanes"] / machine.target.lanes()
    held = points * vectors
    step = outer_product_cycles(machine, points, vectors, share, configs["unroll"])
    # A reduction that is one body has no counter, no branch and no late loads.
    step = step + np.where(configs["unroll"] < depth, STEP_CYCLES / configs["unroll"], 0.0)
    stores = STORE_CYCLES * held + BURST_CYCLES * np.maximum(held - STORE_QUEUE, 0)
    narrow = np.where(share < 1, NARROW_VECTOR_COST, 0.0)
    return np.asarray((step + share * stores / depth) / (held * share) + narrow)
