"""Schedules of contractions: direct code, Winograd's algorithm, Strassen's.

In: a builder whose locals are inlined, the contraction, a config, the target. Out: the builder's
steps. The params are those of `search_spaces.rules.contraction`.
"""

from __future__ import annotations

import math

from autotune.program.strassen import PRODUCTS, first_uses
from autotune.target import Target
from search_spaces.params import Config
from search_spaces.rules._builder import ScheduleBuilder, output_name, schedule_copies, share
from search_spaces.rules._contraction import BANDS, Contraction
from search_spaces.rules._contraction_tiles import (
    PLAIN,
    TOGETHER,
    bands,
    in_band,
    outer_loops,
    pack_plan,
    quarters_plan,
    strassen_parts,
)


def write_direct(builder: ScheduleBuilder, c: Contraction, config: Config, target: Target) -> None:
    """Every product, tile by tile."""
    narrow = config["algorithm"] == "bf16"
    neighbours = TOGETHER.get(str(config["algorithm"]), 1)
    if narrow:
        builder.do("narrow", buffer=c.data, tensor=c.tensor)
    if c.groups > 1:
        builder.split(c.channels[0], c.channels[1], "group", "channel")
    if c.constant:
        # Before the channels are split: a guard on the last block would hide that they stay
        # inside their group.
        splits, order = pack_plan(c, config, tuple(range(c.weight_rank)))
        dtype = "bfloat16" if narrow else ""
        builder.do("pack", buffer=c.weights, splits=splits, order=order, dtype=dtype)
    count = bands(c, target) if config["order"] == BANDS else 1
    tile = _split(builder, c, config, count)
    if neighbours > 1:
        builder.split(c.reduce[-1][0], neighbours, "pairs", "pair")
    outer = outer_loops(c, str(config["order"]))
    batch = [n for n, _ in c.batch]
    builder.do("reorder", loops=(*batch, *outer, *tile))
    builder.do("cache_write", buffer=c.tensor, loops=tile)
    _annotate(builder, c, config, tile)
    if neighbours > 1:
        builder.do("reorder", loops=(*tile, "pair"))
        builder.do("dot", loop="pair")
    if config["prefetch"] == "panel":
        builder.do("prefetch", buffer=c.weights, panel="block", loop=_step_loop(c, config))
    at, part = f"{c.tensor}.reg", in_band(c, count)
    for loop, extent, size in (
        ("block", c.channels[1], config.number("lanes") * config.number("vectors")),
        ("points", part.points[1], config.number("tile_w")),
        ("rows", part.row_count, config.number("tile_h")),
    ):
        if extent % size:
            builder.do("specialize", loop=loop, at=at)
    as_it_is = c.constant or dict(config.items).get("weights") == PLAIN
    whole = as_it_is or _cache_weights(builder, c, config, target)
    schedule_copies(builder, target, {output_name(builder.task)})
    share(builder, target, [*batch, *outer] if whole else batch, "shared")


def write_winograd(
    builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
) -> None:
    """Tiles of points with fewer products; a block of tiles stays in the cache between steps."""
    form, block = str(config["algorithm"]), config.number("block")
    height, width = c.tile_sides(form)
    block_h, block_w = c.block_shape(form, block)
    builder.do(
        "winograd", buffer=c.tensor, tile_h=height, tile_w=width, block_h=block_h,
        block_w=block_w, lanes=target.lanes(),
    )  # fmt: skip
    size = config.number("lanes") * config.number("vectors")
    if c.groups > 1:
        builder.split(c.channels[0], c.channels[1], "group", "channel")
        splits: tuple[tuple[int, int], ...] = ((3, c.channels[1]), (4, size))
        order: tuple[int, ...] = (0, 1, 3, 4, 2, 5)
        outer = ["wino_i", "wino_j", "group", "block", "points"]
    else:
        splits, order = ((3, size),), (0, 1, 3, 2, 4)
        outer = ["wino_i", "wino_j", "block", "points"]
    builder.do("pack", buffer=c.weights, splits=splits, order=order)
    _split_channels(builder, "channel" if c.groups > 1 else c.channels[0], config)
    builder.split("wino_t", config.number("tile_w"), "points", "point")
    tile = ("point", "vector", "lane")
    builder.do("reorder", loops=(*outer, *tile))
    products = f"{c.tensor}.m"
    builder.do("cache_write", buffer=products, loops=tile)
    _annotate(builder, c, config, tile)
    if config["prefetch"] == "panel":
        builder.do("prefetch", buffer=c.weights, panel="block", loop=_step_loop(c, config))
    if c.channels[1] % size:
        builder.do("specialize", loop="block", at=f"{products}.reg")
    if block % config.number("tile_w"):
        builder.do("specialize", loop="points", at=f"{products}.reg")
    schedule_copies(builder, target, {output_name(builder.task), products, f"{c.tensor}.v"})
    if c.count * c.tile_rows(form) * c.tile_columns(form) > block:
        share(builder, target, [c.batch[0][0], "wino_tb", "wino_cb"], "shared")
        return
    share(builder, target, ["vin_tr", "vin_tc", "vin_c"], "vin_shared")
    share(builder, target, outer[:-1], "shared")
    share(builder, target, ["vout_tr", "vout_tc", "vout_c"], "vout_shared")


def write_strassen(
    builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
) -> None:
    """Seven products of halves."""
    builder.do("strassen", buffer=c.tensor, rows=c.halved, lanes=target.lanes())
    _split_channels(builder, c.channels[0], config)
    # Every thread has its own points, in all seven products as before and after them.
    parts = strassen_parts(c, target)
    count = c.strassen_points // parts
    builder.split("stra_t", count, "run", "stra_r")
    builder.split("stra_r", config.number("tile_w"), "points", "point")
    splits, order = pack_plan(c, config, tuple(range(c.weight_rank)))
    (dim, size), *_ = splits
    moved = (0, *(d + 1 for d in order))
    builder.do("pack", buffer=c.weights, splits=((dim + 1, size),), order=moved)
    tile, outer = ("point", "vector", "lane"), ["run", "stra_i", "block", "points"]
    builder.do("reorder", loops=(*outer, *tile))
    products = f"{c.tensor}.m"
    builder.do("cache_write", buffer=products, loops=tile)
    _annotate(builder, c, config, tile)
    if c.channels[1] // 2 % size:
        builder.do("specialize", loop="block", at=f"{products}.reg")
    if count % config.number("tile_w"):
        builder.do("specialize", loop="points", at=f"{products}.reg")
    schedule_copies(builder, target, {output_name(builder.task), products, f"{c.tensor}.v"})
    for prefix in ("sin", "sout"):
        loops = [f"{prefix}_p{n}" for n in range(len(c.batch) + (2 if c.rows else 1))]
        outside = list(builder.present([*loops, f"{prefix}_c"]))
        share(builder, target, outside, f"{prefix}_shared")
    share(builder, target, outer, "shared")


def write_strassen_runs(
    builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
) -> None:
    """Seven products of halves, a run of points and a panel of channels at a time."""
    size = config.number("lanes") * config.number("vectors")
    run, points = config.number("block"), config.number("tile_w")
    builder.do(
        "strassen_runs", buffer=c.tensor, rows=c.halved, lanes=target.lanes(), run=run, panel=size
    )
    splits, order = quarters_plan(c, size)
    builder.do("pack", buffer=c.weights, splits=splits, order=order)
    builder.split(c.channels[0], config.number("lanes"), "vector", "lane")
    builder.split("stra_t", points, "points", "point")
    tile = ("point", "vector", "lane")
    products = f"{c.tensor}.m"
    builder.do("reorder", loops=("stra_i", "points", *tile))
    builder.do("cache_write", buffer=products, loops=tile)
    _annotate(builder, c, config, tile)
    if run % points:
        builder.do("specialize", loop="points", at=f"{products}.reg")
    builder.do("write_out", loop="stra_i")
    _prefetch_quarters(builder, c, config)
    schedule_copies(builder, target, {output_name(builder.task), products, f"{c.tensor}.v"})
    share(builder, target, ["stra_r"], "shared")


def _step_loop(c: Contraction, config: Config) -> str:
    """The innermost loop of a tile that is not written out."""
    return "step" if config.number("unroll") > 1 else c.reduce[-1][0]


def _prefetch_quarters(builder: ScheduleBuilder, c: Contraction, config: Config) -> None:
    """While a product runs, ask for the weights that the next one is the first to use."""
    last = _step_loop(c, config)
    block, low, right = (c.weight_rank + d for d in (-2, -1, 0))
    for number in range(PRODUCTS):
        following = (number + 1) % PRODUCTS
        for q, r in first_uses(following):
            builder.do(
                "prefetch_part", buffer=c.weights, first=f"points.stra_i{number}",
                loop=f"{last}.stra_i{number}", fixed=((low, q), (right, r)),
                ahead=() if following else (block,),
            )  # fmt: skip


def _split(
    builder: ScheduleBuilder, c: Contraction, config: Config, count: int
) -> tuple[str, ...]:
    """Split the output loops, first into `count` bands; gives the tile's loops."""
    _split_channels(builder, "channel" if c.groups > 1 else c.channels[0], config)
    part, (along, _) = in_band(c, count), c.rows or c.points
    if count > 1:
        extent = part.row_count if c.rows else part.points[1]
        builder.split(along, extent, "band", "banded")
        along = "banded"
    points = c.points[0] if c.rows else along
    builder.split(points, config.number("tile_w"), "points", "point")
    if not c.rows:
        return ("point", "vector", "lane")
    builder.split(along, config.number("tile_h"), "rows", "row")
    return ("row", "point", "vector", "lane")


def _split_channels(builder: ScheduleBuilder, loop: str, config: Config) -> None:
    lanes, vectors = config.number("lanes"), config.number("vectors")
    builder.split(loop, lanes * vectors, "block", "rest")
    builder.split("rest", lanes, "vector", "lane")


def _cache_weights(
    builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
) -> bool:
    """Pack weights that are activations: whole at the start where batch elements share them or
    are too few for the threads (gives True), else each batch element's own."""
    shape = builder.task.value(c.weights).type.shape
    own = c.rows is None and math.prod(shape[:-2]) == c.count
    whole = not own or (target.threads > 1 and c.count < 4 * target.threads)
    rank = c.weight_rank
    dims = tuple(range(rank)) if whole else (rank - 2, rank - 1)
    splits, order = pack_plan(c, config, dims)
    builder.do(
        "cache_read", buffer=c.weights, loop="" if whole or not c.batch else c.batch[-1][0],
        dims=dims, splits=splits, order=order,
        dtype="bfloat16" if config["algorithm"] == "bf16" else "",
    )  # fmt: skip
    last = f"{c.weights}_p{len(order) - 1}"
    builder.split(last, config.number("lanes"), f"{last}_o", f"{last}_v")
    builder.do("vectorize", loops=(f"{last}_v",))
    if whole:
        outer = [f"{c.weights}_p{i}" for i in range(len(order) - 1)]
        share(builder, target, outer, f"{c.weights}_shared")
    return whole or not c.batch


def _annotate(
    builder: ScheduleBuilder, c: Contraction, config: Config, tile: tuple[str, ...]
) -> None:
    kinds = ("", "_init", "_out")
    builder.do("vectorize", loops=builder.present([f"lane{k}" for k in kinds]))
    flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
    unroll = config.number("unroll")
    if unroll > 1:
        last = "pairs" if config["algorithm"] in TOGETHER else c.reduce[-1][0]
        builder.split(last, unroll, "step", "part")
        flat.append("part")
    builder.do("unroll", loops=builder.present(flat))
