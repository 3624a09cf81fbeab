"""Tiles of contractions: their sizes, the order of loops around them, how weights lie for them.

In: a contraction and params (one config, or many). Out: plain data for the rule.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.target import Target
from search_spaces.algorithms.base import ON_CPUS
from search_spaces.base import Column
from search_spaces.cpu.contraction.shape import STRIPS_FIRST, Contraction
from search_spaces.params import Config
from search_spaces.space import Configs

ORDERS = ("channels_first", "rows_first", "points_first")
"""Which outer loops come first: channel blocks (weights stay), rows (both), points (data stay)."""
PACKED, PLAIN = "packed", "plain"
"""Weights that are activations: copied into the order of use first, or read where they lie."""


def plain(c: Contraction, configs: Configs) -> npt.NDArray[Any]:
    """Which configs read weights where they lie; none of spaces from before that was a choice."""
    chosen = configs.get("weights") if c.plain else None
    count = len(configs["vectors"])
    return np.zeros(count, bool) if chosen is None else np.asarray(chosen == PLAIN)


def sizes(extent: int, most: int) -> tuple[int, ...]:
    """Tile sizes along an axis: divisors, and sizes that leave a small tail."""
    out = []
    for size in range(1, min(extent, most) + 1):
        tail = -extent % size
        if extent % size == 0 or tail / (extent + tail) <= 0.15 or size in (4, 6, 8, 12, 14):
            out.append(size)
    return tuple(out)


def unrolled(configs: Configs) -> Column:
    """Multiply-adds of the innermost unrolled body."""
    held = configs["vectors"] * configs["tile_w"] * configs["tile_h"]
    return np.asarray(held * configs["unroll"], np.float64)


def copies(c: Contraction, configs: Configs) -> Column:
    """Copies of the tile that tails need."""
    out = np.ones(len(configs["vectors"]))
    for extent, size in (
        (c.channels[1], configs["lanes"] * configs["vectors"]),
        (c.points[1], configs["tile_w"]),
        (c.row_count, configs["tile_h"]),
    ):
        out = out * np.where(extent % size, 2, 1)
    direct = ON_CPUS.of_each(configs, lambda a, _: a.is_direct)
    return np.where(direct > 0, out, 2.0)


def strips(c: Contraction, target: Target) -> int:
    """How many strips the threads share, with `STRIPS_FIRST`; 1: that order is none for them."""
    extent = c.row_count if c.rows else c.points[1]
    if target.threads == 1 or c.count >= target.threads:
        return 1
    return next((n for n in range(target.threads, extent + 1) if extent % n == 0), 1)


def in_strip(c: Contraction, count: int) -> Contraction:
    """The part of a contraction that is one of so many strips."""
    if c.rows:
        return dataclasses.replace(c, rows=(c.rows[0], c.rows[1] // count))
    return dataclasses.replace(c, points=(c.points[0], c.points[1] // count))


def outer_loops(c: Contraction, order: str) -> list[str]:
    """The loops around a tile, outermost first."""
    channels = ["group", "block"] if c.groups > 1 else ["block"]
    rows = ["rows"] if c.rows else []
    if order == STRIPS_FIRST:
        return ["band", *channels, *rows, "points"]
    if order == "channels_first":
        return [*channels, *rows, "points"]
    if order == "rows_first":
        return [*rows, *channels, "points"]
    return [*rows, "points", *channels]


Packing = tuple[tuple[tuple[int, int], ...], tuple[int, ...]]
"""Splits and the order after them, of a step that packs."""


def pack_plan(
    c: Contraction,
    config: Config,
    dims: tuple[int, ...],
    neighbours: int = 1,
    *,
    in_turn: bool = False,
) -> Packing:
    """(splits, order) that put the channels of a tile last (then neighbours along the reduction,
    where an instruction takes several); `dims` are the dimensions kept. `in_turn`: channels last
    of all, and the even neighbours before the odd ones."""
    labels = [{c.channel_dim: "channel", c.reduce_dim: "depth"}.get(d, f"{d}") for d in dims]
    splits: list[tuple[int, int]] = []

    def split(label: str, factor: int, outer: str, inner: str) -> None:
        at = labels.index(label)
        splits.append((at, factor))
        labels[at : at + 1] = [outer, inner]

    last = ["lane"]
    if c.groups > 1:
        split("channel", c.channels[1], "group", "channel")
    split("channel", config.number("lanes") * config.number("vectors"), "block", "lane")
    if neighbours > 1:
        split("depth", neighbours, "depth", "pair")
        last.append("pair")
    if in_turn:
        split("pair", 2, "high", "low")
        last = ["low", "high", "lane"]
    # Where every element of the batch has constants of its own, they lie in the order of loops.
    own = [f"{d}" for d in dims[:-2]] if c.constant and not c.rows else []
    first = [name for name in (*own, "group", "block") if name in labels]
    rest = [name for name in labels if name not in (*first, *last)]
    order = tuple(labels.index(name) for name in (*first, *rest, *last))
    return tuple(splits), order
