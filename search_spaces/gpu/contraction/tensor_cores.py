"""Contractions on tensor cores: the schedule of one block's tile.

In: a contraction and a tile. Out: steps. A block has `threads_m` x `threads_n` warps; each adds up
`tile_m` x `tile_n` matrices of 16 x 8. Operands are copied to shared memory side by side along the
reduction, rounded on the way (bf16, f16) or read as they are, less their last bits (tf32), or as
the bytes that they are (int8).
"""

from __future__ import annotations

import dataclasses

from autotune.program.ir import MATRIX, MATRIX_BYTES
from autotune.schedule.gpu.bind import Bind, Privatize
from autotune.schedule.gpu.pipeline import Pipeline
from autotune.schedule.gpu.shared import Shared
from autotune.schedule.gpu.swizzle import Swizzle
from autotune.schedule.gpu.tensor import Tensorize
from autotune.schedule.loops.compute import ComputeAt
from autotune.schedule.loops.nest import Reorder, Unroll
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.copies import PackConstant
from autotune.target import Target
from autotune.types import ITEM_BYTES
from search_spaces.builder import ScheduleBuilder, inline_locals, output_name
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.gpu.blocks import bind_rest
from search_spaces.gpu.contraction.tiles import (
    ITEM,
    Product,
    Tile,
    bind_blocks,
    bind_copy,
    data_vector,
    operands_of,
    product_of,
    row_and_channel,
    split_reduction,
    swapped,
    vector_of,
)
from search_spaces.params import Config

ROUNDED = {"bf16": "bfloat16", "f16": "float16"}
"""What operands are rounded to."""
ALLOWED = {"bfloat16": ("bf16", "tf32"), "float16": ("f16", "tf32"), "tf32": ("tf32",)}
"""Algorithms of a product of float32, by the precision asked for. Bytes are exact."""
_KINDS = ("", "_init", "_out")
LAYOUTS = ("padded", "swizzled")
"""How eight rows of an operand come to lie in different banks: by a gap behind each, or chunks of
them change places."""
_PAD_BYTES = 16
_SHORT_BYTES = 2
"""Of elements that tensor cores can load turned."""


def step_depth(algorithm: str) -> int:
    """Terms of a sum that one instruction adds."""
    return MATRIX_BYTES // ITEM[algorithm]


def schedule_tensor(builder: ScheduleBuilder, c: Contraction, config: Config, t: Target) -> None:
    """The whole schedule of a contraction."""
    task, tile, algorithm = builder.task, Tile.of(config, t), str(config["algorithm"])
    p, output, rounded = product_of(task, c), output_name(task), ROUNDED.get(algorithm, "")
    inline_locals(builder, keep=frozenset((output, c.tensor)))
    if output != c.tensor:
        builder.apply(ComputeAt(buffer=output, at=c.channels[0]))
    if c.constant:
        # Columns of the weights side by side along the reduction, and rounded already.
        order = tuple(range(c.weight_rank)) if p.transposed else swapped(c.weight_rank)
        builder.apply(PackConstant(buffer=c.weights, splits=(), order=order, dtype=rounded))
        p = dataclasses.replace(p, transposed=True)
    c = split_reduction(builder, c, tile)
    outer = _split(builder, c, p, tile)
    builder.split("k_i", step_depth(algorithm), "k_m", "k_f")
    matrix = ("m_f", "n_f")
    builder.apply(CacheWrite(buffer=c.tensor, loops=("m_w", "n_w", "m_i", "n_i", *matrix)))
    builder.apply(Reorder(loops=("m_w", "n_w", "k_m", "m_i", "n_i", *matrix, "k_f")))
    (data, weights), swizzled = operands_of(builder, c), config["layout"] == "swizzled"
    depth, columns = ("k_m", "k_f"), ("n_w", "n_i", "n_f")
    across = not p.transposed and ITEM[algorithm] == _SHORT_BYTES
    builder.apply(
        Shared(loop="k_o", buffers=(data, weights),
        axes=((("m_w", "m_i", "m_f"), depth), (depth, columns) if across else (columns, depth)),
        pads=(0 if swizzled else _PAD_BYTES // ITEM[algorithm],) * 2,
        dtype=rounded,
    ))  # fmt: skip
    if swizzled:
        for name in (data, weights):
            # Rows of one chunk lie in different banks as they are.
            if name != weights or not across or tile.columns > 1:
                builder.apply(Swizzle(buffer=f"{name}.shared"))
    bind_blocks(builder, outer, str(config["order"]), config.number("band"))
    along = data_vector(task, c, p, tile.depth)
    bind_copy(builder, data, (0, 1), vector=along, tile=tile)
    lying = ITEM_BYTES[task.value(c.weights).type.dtype]
    if p.transposed:
        run = p.run if c.rows else p.depth
        whole = c.rows is None or p.run % tile.depth == 0
        item = ITEM[algorithm] if c.constant else lying
        along = vector_of(run, tile.depth, item) if whole else 1
        bind_copy(builder, weights, (0, 1), vector=along, tile=tile)
    elif across:
        size = MATRIX[1] * tile.columns
        along = vector_of(p.columns, size, lying) if c.plain else 1
        bind_copy(builder, weights, (0, 1), vector=along, tile=tile)
    else:
        along = 1 if tile.asynchronous else vector_of(p.columns, MATRIX[1] * tile.columns)
        bind_copy(builder, weights, (1, 0), vector=along, tile=tile)
    bind_matrices(builder, c, ("m_w", "n_w"))
    if tile.stages > 1:
        builder.apply(Pipeline(loop="k_o", stages=tile.stages))
    bind_rest(builder, t)


def _split(builder: ScheduleBuilder, c: Contraction, p: Product, tile: Tile) -> list[str]:
    batch, row, channel = row_and_channel(builder, c, p)
    for name, loop, size, count, along in (
        ("m", row, tile.rows, tile.tile_m, MATRIX[0]),
        ("n", channel, tile.columns, tile.tile_n, MATRIX[1]),
    ):
        builder.split(loop, size * along, f"{name}_b", f"{name}_l")
        builder.split(f"{name}_l", count * along, f"{name}_w", f"{name}_r")
        builder.split(f"{name}_r", along, f"{name}_i", f"{name}_f")
    builder.apply(Reorder(loops=("m_b", "n_b", "m_w", "n_w", "m_i", "n_i", "m_f", "n_f")))
    return [*batch, "m_b", "n_b"]


def bind_matrices(builder: ScheduleBuilder, c: Contraction, loops: tuple[str, ...]) -> None:
    """Warps of the tile's nests, `loops` in one, each keeping its own matrices; the products."""
    kinds = [k.removeprefix(loops[0]) for k in builder.present([loops[0] + k for k in _KINDS])]
    for kind in kinds:
        builder.fuse([name + kind for name in loops], f"w{kind}")
        builder.apply(Bind(loop=f"w{kind}", axis="warp"))
        builder.apply(Unroll(loops=(f"m_i{kind}", f"n_i{kind}")))
    builder.apply(Unroll(loops=("k_m",)))
    builder.apply(Privatize(buffer=f"{c.tensor}.reg"))
    others = [k for k in kinds if k]
    builder.apply(
        Tensorize(buffer=f"{c.tensor}.reg", loops=("m_f", "n_f", "k_f"),
        rows=tuple(f"m_f{k}" for k in others), columns=tuple(f"n_f{k}" for k in others),
    ))  # fmt: skip
