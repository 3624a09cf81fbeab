"""Schedules of tiled filtering: the products of tiles, and kernels for images of any size.

In: a builder whose locals are inlined, the contraction, a config. Out: the builder's steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotune.program.winograd import points_of
from autotune.schedule.algorithms.winograd_groups import WinogradGroups
from autotune.schedule.loops.nest import Reorder
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.copies import PackConstant
from autotune.schedule.memory.prefetch import PrefetchPanel
from autotune.sizes import ceil_div
from autotune.target import Target
from search_spaces.base import OpenTiles
from search_spaces.builder import ScheduleBuilder, output_name, schedule_copies, share
from search_spaces.cpu.contraction.schedule import annotate_tile, split_channels, step_loop
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.params import Config

GROUPS = (3, 4, 5, 7)
"""Tiles of a register tile that are worth a kernel, where only a run knows how many there are."""


def multiply_tiles(
    builder: ScheduleBuilder, c: Contraction, config: Config, target: Target, tiles: int
) -> list[str]:
    """Schedule the products of a block of so many tiles; gives their outer loops."""
    size = config.number("lanes") * config.number("vectors")
    if c.groups > 1:
        builder.split(c.channels[0], c.channels[1], "group", "channel")
        splits: tuple[tuple[int, int], ...] = ((3, c.channels[1]), (4, size))
        order: tuple[int, ...] = (0, 1, 3, 4, 2, 5)
        outer = ["wino_i", "wino_j", "group", "block", "points"]
    else:
        splits, order = ((3, size),), (0, 1, 3, 2, 4)
        outer = ["wino_i", "wino_j", "block", "points"]
    builder.apply(PackConstant(buffer=c.weights, splits=splits, order=order))
    split_channels(builder, "channel" if c.groups > 1 else c.channels[0], config)
    builder.split("wino_t", config.number("tile_w"), "points", "point")
    tile = ("point", "vector", "lane")
    builder.apply(Reorder(loops=(*outer, *tile)))
    products = f"{c.tensor}.m"
    builder.apply(CacheWrite(buffer=products, loops=tile))
    annotate_tile(builder, c, config, tile)
    if config["prefetch"] == "panel":
        builder.apply(PrefetchPanel(buffer=c.weights, panel="block", loop=step_loop(c, config)))
    if c.channels[1] % size:
        builder.apply(Specialize(loop="block", at=f"{products}.reg"))
    if tiles % config.number("tile_w"):
        builder.apply(Specialize(loop="points", at=f"{products}.reg"))
    schedule_copies(builder, target, {output_name(builder.task), products, f"{c.tensor}.v"})
    return outer[:-1]


def open_tiles(
    c: Contraction, choice: str, sides: tuple[int, int], target: Target
) -> Iterator[OpenTiles]:
    """Groups of tiles of a form, for images of any size that a tile fits into."""
    (n, h, w), own = (e for _, e in (*c.batch, c.rows or c.points, c.points)), _sides(c, sides)
    count = n * ceil_div(h, own[0]) * ceil_div(w, own[1])
    kernel = zip(own, (k for _, k in c.reduce[:2]), c.strides, strict=True)
    points = math.prod(points_of(side, taps, stride) for side, taps, stride in kernel)
    for group in GROUPS:
        if group < target.vector_registers:
            yield OpenTiles(
                settled={"algorithm": choice, "tile_w": group},
                lengths=(1, *own),
                count=count,
                group=group,
                weight_bytes=points * c.reduce[2][1] * c.channels[1] * c.item_bytes,
                tile_bytes=points * (c.reduce[2][1] + c.channels[1]) * c.item_bytes,
            )


def write_groups(
    builder: ScheduleBuilder,
    c: Contraction,
    config: Config,
    target: Target,
    sides: tuple[int, int],
) -> None:
    """A schedule over all tiles, however many."""
    (height, width), group = _sides(c, sides), config.number("tile_w")
    builder.apply(
        WinogradGroups(
            buffer=c.tensor, tile_h=height, tile_w=width, group=group, lanes=target.lanes()
        )
    )
    outer = multiply_tiles(builder, c, config, target, group)
    share(builder, target, ["vin_n", "vin_tr"], "vin_shared")
    share(builder, target, outer, "shared")
    share(builder, target, ["vout_n", "vout_tr"], "vout_shared")


def _sides(c: Contraction, sides: tuple[int, int]) -> tuple[int, int]:
    """A tile's height and width: 1 along a dimension that the kernel does not span."""
    height, width = (m if k > 1 else 1 for m, (_, k) in zip(sides, c.reduce[:2], strict=True))
    return height, width
