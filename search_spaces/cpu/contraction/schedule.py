"""Parts of contractions' schedules that several algorithms share.

In: a builder whose locals are inlined, the contraction, a config. Out: the builder's steps. The
params are those of `search_spaces.cpu.contraction.rule`.
"""

from __future__ import annotations

import math

from autotune.schedule.loops.nest import Unroll, Vectorize
from autotune.schedule.memory.copies import CacheRead
from autotune.target import Target
from search_spaces.builder import ScheduleBuilder, share
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.cpu.contraction.tiles import in_strip, pack_plan
from search_spaces.params import Config


def step_loop(c: Contraction, config: Config) -> str:
    """The innermost loop of a tile that is not written out."""
    return "step" if config.number("unroll") > 1 else c.reduce[-1][0]


def split_tile(
    builder: ScheduleBuilder, c: Contraction, config: Config, count: int
) -> tuple[str, ...]:
    """Split the output loops, first into `count` strips; gives the tile's loops."""
    split_channels(builder, "channel" if c.groups > 1 else c.channels[0], config)
    part, (along, _) = in_strip(c, count), c.rows or c.points
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


def split_channels(builder: ScheduleBuilder, loop: str, config: Config) -> None:
    lanes, vectors = config.number("lanes"), config.number("vectors")
    builder.split(loop, lanes * vectors, "block", "rest")
    builder.split("rest", lanes, "vector", "lane")


def cache_weights(
    builder: ScheduleBuilder,
    c: Contraction,
    config: Config,
    target: Target,
    *,
    neighbours: int,
    dtype: str,
) -> bool:
    """Pack weights that are activations: whole at the start where batch elements share them or
    are too few for the threads (gives True), else each batch element's own."""
    shape = builder.task.value(c.weights).type.shape
    own = c.rows is None and math.prod(shape[:-2]) == c.count
    whole = not own or (target.threads > 1 and c.count < 4 * target.threads)
    rank = c.weight_rank
    dims = tuple(range(rank)) if whole else (rank - 2, rank - 1)
    splits, order = pack_plan(c, config, dims, neighbours)
    builder.apply(
        CacheRead(buffer=c.weights, loop="" if whole or not c.batch else c.batch[-1][0],
        dims=dims, splits=splits, order=order,
        dtype=dtype,
    ))  # fmt: skip
    last = f"{c.weights}_p{len(order) - 1}"
    builder.split(last, config.number("lanes"), f"{last}_o", f"{last}_v")
    builder.apply(Vectorize(loops=(f"{last}_v",)))
    if whole:
        outer = [f"{c.weights}_p{i}" for i in range(len(order) - 1)]
        share(builder, target, outer, f"{c.weights}_shared")
    return whole or not c.batch


def annotate_tile(
    builder: ScheduleBuilder,
    c: Contraction,
    config: Config,
    tile: tuple[str, ...],
    reduction: str = "",
) -> None:
    """Vectorize and unroll the loops of a tile, and steps of the innermost loop of the reduction,
    or of the loop named."""
    kinds = ("", "_init", "_out")
    builder.apply(Vectorize(loops=builder.present([f"lane{k}" for k in kinds])))
    flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
    unroll = config.number("unroll")
    if unroll > 1:
        builder.split(reduction or c.reduce[-1][0], unroll, "step", "part")
        flat.append("part")
    builder.apply(Unroll(loops=builder.present(flat)))
