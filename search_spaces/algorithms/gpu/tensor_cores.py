"""Products on tensor cores: a block's warps multiply small matrices of its tile.

A block has `threads_m` x `threads_n` warps; each adds up `tile_m` x `tile_n` matrices of 16 x 8.
Operands are copied to shared memory side by side along the reduction, rounded on the way (bf16,
f16) or read as they are, less their last bits (tf32), or as the bytes that they are (int8).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from autotune.machine import Machine
from autotune.program.ir import MATRIX, MATRIX_BYTES, WARP
from autotune.schedule.base import Schedule
from autotune.schedule.gpu.async_pipeline import Warpgroup
from autotune.schedule.gpu.bind import Bind, Privatize
from autotune.schedule.gpu.pipeline import Pipeline
from autotune.schedule.gpu.shared import Shared
from autotune.schedule.gpu.swizzle import Swizzle
from autotune.schedule.gpu.tensor import Tensorize
from autotune.schedule.loops.nest import Reorder, Split, Unroll
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.copies import PackConstant
from autotune.target import Target
from autotune.types import ITEM_BYTES, Task
from search_spaces.algorithms.base import ALGORITHMS, Mask
from search_spaces.algorithms.gpu.base import (
    DEPTHS,
    PADDED,
    SWIZZLED,
    GpuAlgorithm,
    padded_shared_bytes,
)
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, output_with_sums
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.gpu.blocks import AMPERE, bind_rest, generation
from search_spaces.gpu.contraction.prior import BlockStep, tiled_cycles
from search_spaces.gpu.contraction.tiles import (
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
from search_spaces.space import Configs

ITEM = {"bf16": 2, "f16": 2, "tf32": 4, "int8": 1}
"""Bytes of an operand's element, by what it is rounded to."""
ROUNDED = {"bf16": "bfloat16", "f16": "float16"}
"""Short floats that operands are rounded to."""
ALLOWED = {"bfloat16": ("bf16", "tf32"), "float16": ("f16", "tf32"), "tf32": ("tf32",)}
"""What products of float32 may round to, by the precision asked for. Bytes are exact."""
ERRORS = {"bf16": 2.0**-6, "f16": 2.0**-9, "tf32": 2.0**-9, "int8": 0.0}
"""Largest error of a result over the largest value of the output: of two rounded operands."""
PAD_BYTES = 16
"""Gap behind each row of an operand in shared memory."""
SHORT_BYTES = 2
"""Bytes of elements that tensor cores can load transposed."""
LOAD_BYTES = 32
"""Bytes of a row that one load of a matrix brings."""
LOADS_OF_TILES = 4
"""Loads beside the first that tiles of a single matrix need for each product (assumed)."""
_KINDS = ("", "_init", "_out")


class TensorCores(GpuAlgorithm):
    """Products of operands rounded to one type."""

    fragment = (*MATRIX, WARP)
    layouts = (PADDED, SWIZZLED)

    def __init__(self, choice: str, rank: int) -> None:
        self.name, self.rank = f"gpu_{choice}", rank
        self.item, self.error = ITEM[choice], ERRORS[choice]
        self.is_direct = choice == "int8"
        self.reference = "" if self.is_direct else "NVIDIA, Parallel Thread Execution ISA: mma"

    @property
    def step_depth(self) -> int:
        """Terms of a sum that one instruction adds."""
        return MATRIX_BYTES // self.item

    def label(self, schedule: Schedule) -> str:
        own = any(isinstance(step, Tensorize) for step in schedule)
        if not own or any(isinstance(step, Warpgroup) for step in schedule):
            return ""
        dtype = next(step.dtype for step in schedule if isinstance(step, Shared))
        terms = next(s.factor for s in schedule if isinstance(s, Split) and s.outer == "k_m")
        mine = dtype == ROUNDED.get(self.choice, "") and terms == self.step_depth
        return f"tensor_{self.choice}" if mine else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        if generation(target) < AMPERE:
            return False
        if c.item_bytes == 1:
            return self.choice == "int8"
        short = {dtype: (name,) for name, dtype in ROUNDED.items()}
        allowed = ALLOWED.get(target.precision, ())
        return self.choice in short.get(task.value(c.data).type.dtype, allowed)

    def item_bytes(self, configs: Configs) -> Column:
        return np.full(len(configs["algorithm"]), float(self.item))

    def shared_bytes(self, configs: Configs) -> Column:
        (rows, width), depth = self.tile(configs), np.asarray(configs["depth"], np.float64)
        gap = np.where(configs["layout"] == PADDED, float(PAD_BYTES), 0.0)
        return padded_shared_bytes(configs, (depth * self.item + gap) * (rows + width))

    def valid(self, c: Contraction, configs: Configs) -> Mask:
        steps = (configs["depth"] % self.step_depth == 0) & (configs["depth"] <= DEPTHS[-1])
        return np.asarray(steps & (configs["unroll"] == 1))

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        p, blocks = self.products(task, c), self.blocks(configs)
        step = self._step(machine, configs)
        return tiled_cycles(p, c, machine, blocks, configs, step=step)

    def _step(self, machine: Machine, configs: Configs) -> BlockStep:
        """Small tiles of a warp load nearly as many matrices as they multiply."""
        m, n, depth = (np.asarray(configs[k], np.float64) for k in ("tile_m", "tile_n", "depth"))
        rows, width = MATRIX
        loads = 1 + LOADS_OF_TILES * (m + n) / (m * n)
        return BlockStep(
            multiply_adds_per_cycle=(
                machine.gpu.warp_matrix_multiply_adds_per_cycle * 2 / self.item
            ),
            words=(m * rows + n * width) / WARP * self.item / 4,
            turned=np.ones(len(m)),
            loops=depth * self.item / LOAD_BYTES * loads,
        )

    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        task, tile = builder.task, Tile.of(config, target, warps=True)
        p = product_of(task, c)
        rounded = ROUNDED.get(self.choice, "")
        output_with_sums(builder, c.tensor, c.channels[0])
        if c.constant:
            # Columns of the weights side by side along the reduction, and rounded already.
            order = tuple(range(c.weight_rank)) if p.transposed else swapped(c.weight_rank)
            pack = PackConstant(buffer=c.weights, splits=(), order=order, dtype=rounded)
            builder.apply(pack)
            p = dataclasses.replace(p, transposed=True)
        across = not p.transposed and self.item == SHORT_BYTES
        c = split_reduction(builder, c, tile)
        outer = _split(builder, c, p, tile)
        builder.split("k_i", self.step_depth, "k_m", "k_f")
        matrix = ("m_f", "n_f")
        builder.apply(CacheWrite(buffer=c.tensor, loops=("m_w", "n_w", "m_i", "n_i", *matrix)))
        builder.apply(Reorder(loops=("m_w", "n_w", "k_m", "m_i", "n_i", *matrix, "k_f")))
        data, weights = self._share_operands(builder, c, config, tile, across=across)
        bind_blocks(builder, outer, str(config["order"]), config.number("band"))
        along = data_vector(task, c, p, tile.depth)
        bind_copy(builder, data, (0, 1), vector=along, tile=tile)
        self._bind_weights(builder, c, p, tile, weights)
        bind_matrices(builder, c, ("m_w", "n_w"))
        if tile.stages > 1:
            builder.apply(Pipeline(loop="k_o", stages=tile.stages))
        bind_rest(builder, target)

    def _share_operands(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, tile: Tile, *, across: bool
    ) -> tuple[str, str]:
        """Put both operands into shared memory; `across`: weights as they lie."""
        (data, weights), swizzled = operands_of(builder, c), config["layout"] == SWIZZLED
        depth, columns = ("k_m", "k_f"), ("n_w", "n_i", "n_f")
        lying = (depth, columns) if across else (columns, depth)
        builder.apply(
            Shared(loop="k_o", buffers=(data, weights),
            axes=((("m_w", "m_i", "m_f"), depth), lying),
            pads=(0 if swizzled else PAD_BYTES // self.item,) * 2,
            dtype=ROUNDED.get(self.choice, ""),
        ))  # fmt: skip
        if swizzled:
            for name in (data, weights):
                # Rows of one chunk lie in different banks as they are.
                if name != weights or not across or tile.columns > 1:
                    builder.apply(Swizzle(buffer=f"{name}.shared"))
        return data, weights

    def _bind_weights(
        self, builder: ScheduleBuilder, c: Contraction, p: Product, tile: Tile, name: str
    ) -> None:
        """Copy the weights by all threads, in vectors as far as they lie side by side."""
        lying, size = (
            ITEM_BYTES[builder.task.value(c.weights).type.dtype],
            MATRIX[1] * tile.columns,
        )
        order = (0, 1)
        if p.transposed:
            run = p.run if c.rows else p.depth
            whole = c.rows is None or p.run % tile.depth == 0
            item = self.item if c.constant else lying
            along = vector_of(run, tile.depth, item) if whole else 1
        elif self.item == SHORT_BYTES:
            along = vector_of(p.columns, size, lying) if c.plain else 1
        else:
            order, along = (1, 0), 1 if tile.asynchronous else vector_of(p.columns, size)
        bind_copy(builder, name, order, vector=along, tile=tile)


for _rank, _choice in enumerate(ITEM, 1):
    ALGORITHMS.add(f"gpu_{_choice}", TensorCores(_choice, _rank))


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
