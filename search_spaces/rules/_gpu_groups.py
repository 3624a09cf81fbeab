"""Matrix products by groups of four warps, whose operands the copy engine fetches.

In: a product and a tile. Out: steps. A block has `threads_m` x
`threads_n` groups; each adds up `tile_m` x `tile_n` pieces of 64 x 32 with one warp more that
fetches, `stages` steps of 64 terms ahead. Data of float32 are rounded by a launch before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.program.ir import MATRIX
from autotune.program.stream import FETCH_LIMIT, depth_of
from autotune.target import Target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules._builder import ScheduleBuilder, inline_locals, output_name
from search_spaces.rules._contraction import Contraction
from search_spaces.rules._gpu import bind_flat, bind_rest
from search_spaces.rules._gpu_cost import GROUP_ROWS, GROUP_WIDTH, block_tile
from search_spaces.rules._gpu_tensor import bind_matrices
from search_spaces.rules._gpu_tiles import (
    Product,
    Tile,
    bind_blocks,
    operands_of,
    product_of,
    row_and_channel,
    split_reduction,
    swapped,
)

Columns = Mapping[str, npt.NDArray[Any]]
DEPTH = 64
_PIECES = 8
"""Of 64 x 32, whose sums a group holds in registers."""
_COPIED = 8
"""Elements that a thread rounds."""
_OWN = ("m_i", "n_i", "m_f", "n_f")


def streams(task: Task, c: Contraction, target: Target) -> bool:
    """Whether the product can be computed so: data a matrix, weights constant, whole steps."""
    data = task.value(c.data)
    return (
        target.kind == "cuda" and target.arch == "sm_90a" and target.precision == "bfloat16"
        and c.constant and c.groups == 1 and c.rows is None and len(c.reduce) == 1
        and c.weight_rank == 2 and data.type.dtype == "float32" and c.depth % DEPTH == 0
        and not any(before or after for before, after in data.layout.halo)
    )  # fmt: skip


def fits(columns: Columns) -> npt.NDArray[Any]:
    """Where params are those of a block that fetches its operands in one box each."""
    rows, width = block_tile(columns)
    ok = (columns["depth"] == DEPTH) & (columns["unroll"] == 1) & (columns["stages"] > 1)
    ok &= columns["layout"] == "swizzled"
    ok &= (columns["tile_m"] * columns["tile_n"] <= _PIECES) & (columns["tile_m"] <= 2)
    return np.asarray(ok & (rows <= FETCH_LIMIT) & (width <= FETCH_LIMIT))


def schedule_stream(builder: ScheduleBuilder, c: Contraction, config: Config, t: Target) -> None:
    """The whole schedule of a product."""
    task, tile = builder.task, Tile.of(config, t)
    p, output = product_of(task, c), output_name(task)
    inline_locals(builder, keep=frozenset((output, c.tensor)))
    if output != c.tensor:
        builder.do("compute_at", buffer=output, at=c.channels[0])
    order = tuple(range(c.weight_rank)) if p.transposed else swapped(c.weight_rank)
    builder.do("pack", buffer=c.weights, splits=(), order=order, dtype="bfloat16")
    builder.do("matrix", buffer=c.data, tensor=c.tensor)
    rounded = [f"{c.data}_n0", f"{c.data}_n1"]
    bind_flat(builder, rounded, min(256, t.max_threads), _COPIED)
    builder.do("vectorize", loops=builder.present([f"{c.data}_n0_v"]))
    p = dataclasses.replace(p, transposed=True)
    c = split_reduction(builder, c, tile)
    outer = _split(builder, c, p, tile)
    builder.split("k_i", depth_of("bfloat16"), "k_m", "k_f")
    own = ("m_g", "n_g", "m_q")
    builder.do("cache_write", buffer=c.tensor, loops=(*own, *_OWN))
    builder.do("reorder", loops=(*own, "k_m", *_OWN, "k_f"))
    data, weights = operands_of(builder, c)
    depth = ("k_m", "k_f")
    builder.do(
        "shared", loop="k_o", buffers=(data, weights),
        axes=((("m_g", "m_i", "m_q", "m_f"), depth), (("n_g", "n_i", "n_f"), depth)),
        pads=(0, 0), dtype="",
    )  # fmt: skip
    bind_blocks(builder, outer, str(config["order"]))
    bind_matrices(builder, c, ("m_g", "n_g", "m_q"))
    builder.do("warpgroup", loop="n_i")
    builder.do("stream", loop="k_o", stages=tile.stages)
    bind_rest(builder, t)


def _split(builder: ScheduleBuilder, c: Contraction, p: Product, tile: Tile) -> list[str]:
    batch, row, channel = row_and_channel(builder, c, p)
    builder.split(row, GROUP_ROWS * tile.rows, "m_b", "m_l")
    builder.split("m_l", GROUP_ROWS * tile.tile_m, "m_g", "m_r")
    builder.split("m_r", GROUP_ROWS, "m_i", "m_s")
    builder.split("m_s", MATRIX[0], "m_q", "m_f")
    builder.split(channel, GROUP_WIDTH * tile.columns, "n_b", "n_l")
    builder.split("n_l", GROUP_WIDTH * tile.tile_n, "n_g", "n_r")
    builder.split("n_r", MATRIX[1], "n_i", "n_f")
    builder.do("reorder", loops=("m_b", "n_b", "m_g", "n_g", "m_q", *_OWN))
    return [*batch, "m_b", "n_b"]
