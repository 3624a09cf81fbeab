"""Tiles of contractions: their sizes, the order of loops around them, how weights lie for them.

In: a contraction and params (one config, or columns of many). Out: plain data for the rule.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.program.build import node_computes
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import Column
from search_spaces.params import Config
from search_spaces.rules._contraction import BANDS, Contraction
from search_spaces.space import Columns

ORDERS = ("channels_first", "rows_first", "points_first")
"""Which outer loops come first: channel blocks (weights stay), rows (both), points (data stay)."""
TOGETHER = {"bf16": 2, "int8": 4}
"""Products of neighbours along the reduction that one instruction sums, by algorithm."""
PACKED, PLAIN = "packed", "plain"
"""Weights that are activations: copied into the order of use first, or read where they lie."""
DIRECT = ("direct", *TOGETHER)
"""Algorithms that compute every product."""


_LEAST_RUN = 8
"""Points that share a panel of weights, which is read again for every run."""


def algorithms(task: Task, c: Contraction, target: Target) -> tuple[str, ...]:
    """Those that can compute a contraction on the target, the plainest first."""
    if c.item_bytes == 1:
        return ("int8",)
    out = ["direct"]
    if target.precision == "bfloat16" and _rounds(task, c):
        out.append("bf16")
    if target.accuracy == "normal":
        out += c.winograd
        out += ["strassen", "strassen_runs"] if c.strassen else []
    return tuple(out)


def _rounds(task: Task, c: Contraction) -> bool:
    """Whether operands can be rounded: data in a copy, which must be of an input that has zeros
    around it where these are read, and is not the weights too. Pairs need an even depth."""
    data = task.value(c.data)
    read = (
        side
        for compute in node_computes(task, task.nodes[task.anchor])
        for name, pads in compute.pads
        if name == c.data
        for side in zip(pads, data.layout.halo, strict=True)
    )
    covered = all(b <= x and a <= y for (b, a), (x, y) in read)
    pairs = c.reduce[-1][1] % 2 == 0 and not c.one_per_group
    floats = task.value(c.weights).type.dtype != "int8" and c.data != c.weights
    return pairs and covered and floats and data.role == "input"


def together(algorithms: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Products that one instruction sums, per config."""
    out = np.ones(len(algorithms), np.int64)
    for name, count in TOGETHER.items():
        out[algorithms == name] = count
    return out


def plain(c: Contraction, columns: Columns) -> npt.NDArray[Any]:
    """Which configs read weights where they lie; none of spaces from before that was a choice."""
    chosen = columns.get("weights") if c.plain else None
    count = len(columns["vectors"])
    return np.zeros(count, bool) if chosen is None else np.asarray(chosen == PLAIN)


def sizes(extent: int, most: int) -> tuple[int, ...]:
    """Tile sizes along an axis: divisors, and sizes that leave a small tail."""
    out = []
    for size in range(1, min(extent, most) + 1):
        tail = -extent % size
        if extent % size == 0 or tail / (extent + tail) <= 0.15 or size in (4, 6, 8, 12, 14):
            out.append(size)
    return tuple(out)


def unrolled(columns: Columns) -> Column:
    """Multiply-adds of the innermost unrolled body."""
    held = columns["vectors"] * columns["tile_w"] * columns["tile_h"]
    return np.asarray(held * columns["unroll"], np.float64)


def copies(c: Contraction, columns: Columns) -> Column:
    """Copies of the tile that tails need."""
    out = np.ones(len(columns["vectors"]))
    for extent, size in (
        (c.channels[1], columns["lanes"] * columns["vectors"]),
        (c.points[1], columns["tile_w"]),
        (c.row_count, columns["tile_h"]),
    ):
        out = out * np.where(extent % size, 2, 1)
    return np.where(np.isin(columns["algorithm"], DIRECT), out, 2.0)


def bands(c: Contraction, target: Target) -> int:
    """How many bands the threads share, with `BANDS`; 1: that order is none for them."""
    extent = c.row_count if c.rows else c.points[1]
    if target.threads == 1 or c.count >= target.threads:
        return 1
    return next((n for n in range(target.threads, extent + 1) if extent % n == 0), 1)


def in_band(c: Contraction, count: int) -> Contraction:
    """The part of a contraction that is one of so many bands."""
    if c.rows:
        return dataclasses.replace(c, rows=(c.rows[0], c.rows[1] // count))
    return dataclasses.replace(c, points=(c.points[0], c.points[1] // count))


def outer_loops(c: Contraction, order: str) -> list[str]:
    """The loops around a tile, outermost first."""
    channels = ["group", "block"] if c.groups > 1 else ["block"]
    rows = ["rows"] if c.rows else []
    if order == BANDS:
        return ["band", *channels, *rows, "points"]
    if order == "channels_first":
        return [*channels, *rows, "points"]
    if order == "rows_first":
        return [*rows, *channels, "points"]
    return [*rows, "points", *channels]


def strassen_parts(c: Contraction, target: Target) -> int:
    """Runs of points that Strassen's products are cut into, one per thread."""
    return target.threads if c.strassen_points % target.threads == 0 else 1


def strassen_runs(c: Contraction, target: Target) -> tuple[int, ...]:
    """Points of a half that Strassen's algorithm may take at a time: equal runs, as many for each
    thread where they can be."""
    if not c.strassen or target.accuracy != "normal":
        return ()
    whole = c.strassen_points
    sizes = [d for d in range(1, whole + 1) if whole % d == 0 and d >= min(_LEAST_RUN, whole)]
    even = [d for d in sizes if whole // d % target.threads == 0]
    return tuple(even or sizes)


def pack_plan(
    c: Contraction, config: Config, dims: tuple[int, ...]
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """(splits, order) that put the channels of a tile last (then neighbours along the reduction,
    where an instruction takes several); `dims` are the dimensions kept."""
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
    if config["algorithm"] in TOGETHER:
        split("depth", TOGETHER[str(config["algorithm"])], "depth", "pair")
        last.append("pair")
    # Where every element of the batch has constants of its own, they lie in the order of loops.
    own = [f"{d}" for d in dims[:-2]] if c.constant and not c.rows else []
    first = [name for name in (*own, "group", "block") if name in labels]
    rest = [name for name in labels if name not in (*first, *last)]
    order = tuple(labels.index(name) for name in (*first, *rest, *last))
    return tuple(splits), order


def quarters_plan(
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
