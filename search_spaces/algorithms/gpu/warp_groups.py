"""Matrix products by groups of four warps, whose operands the copy engine fetches.

A block has `threads_m` x
`threads_n` groups; each adds up `tile_m` x `tile_n` pieces of 64 x 32 with one warp more that
fetches, `stages` steps of 128 bytes of each row ahead. Data of float32 are rounded by a launch
before; short floats and bytes are taken where they lie, short floats of two activations too if
both lie along the reduction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np

from autotune.machine import Machine
from autotune.program.alignment import ALIGN_BYTES, first_alignment
from autotune.program.async_pipeline import (
    BARRIER_BYTES,
    FETCH_BYTES,
    FETCH_DIMS,
    FETCH_LIMIT,
    GROUPED_ITEMS,
    depth_of,
)
from autotune.program.ir import MATRIX, WARP, WARPGROUP, Buffer
from autotune.schedule.base import Schedule
from autotune.schedule.gpu.async_pipeline import (
    AsyncPipeline,
    CastMatrix,
    Flatten,
    Warpgroup,
    rows_apart,
)
from autotune.schedule.gpu.shared import Shared
from autotune.schedule.loops.nest import Reorder, Vectorize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.copies import PackConstant
from autotune.target import Target
from autotune.types import ITEM_BYTES, SHORT_FLOATS, Task, TaskValue
from search_spaces.algorithms.base import ALGORITHMS, Mask
from search_spaces.algorithms.gpu.base import PADDED, SWIZZLED, GpuAlgorithm
from search_spaces.algorithms.gpu.tensor_cores import bind_matrices
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, output_with_sums
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.gpu.blocks import bind_flat, bind_rest
from search_spaces.gpu.contraction.prior import (
    NOT_OVERLAPPED,
    move_cycles,
    part_cycles,
    shared_out,
    stored_cycles,
)
from search_spaces.gpu.contraction.tiles import (
    Product,
    Tile,
    bind_blocks,
    operands_of,
    product_of,
    row_and_channel,
    split_reduction,
    swapped,
)
from search_spaces.params import Config
from search_spaces.space import Configs

GROUP_ROWS, GROUP_WIDTH = MATRIX[0] * WARPGROUP, 32
"""Rows and columns of a warp group's tile: what `tile_m` and `tile_n` count."""
BLOCK_ENDS_CYCLES = 2500.0
"""Cycles of a block before its first product and after its last."""
BUSY_GROUPS = 2
"""Groups of a multiprocessor that keep its tensor cores busy (assumed, as all constants here)."""
ROUNDING_BYTES = 6.0
"""Moved by the launch that rounds an element: four are read, two written."""
_PIECES = 8
"""Tiles of 64 x 32 whose sums a group holds in registers, at most."""
_MIXED_PTX = 84
"""Version of PTX since when the operands' bytes may differ in their signs."""
_FLOAT_BYTES, _SHORT_BYTES = 4, 2
"""Bytes of elements before and after rounding."""
_COPIED = 8
"""Elements that a thread rounds."""
_OWN = ("m_i", "n_i", "m_f", "n_f")


def streams(task: Task, c: Contraction, target: Target) -> bool:
    """Whether the product can be computed so: by whole steps of short floats, which lie as the
    copy engine takes them or come to by a launch before."""
    operands = [task.value(v) for v in (c.data, c.weights)]
    shapes = [task.value(v).type.shape[:-1] for v in (c.data, c.tensor)]
    pointwise = c.rows is None or (c.depth == c.reduce[-1][1] and shapes[0] == shapes[1])
    hopper = target.kind == "cuda" and target.arch == "sm_90a"
    if (
        not (hopper and pointwise and c.groups == 1)
        or dtype_of(task, c, target) not in GROUPED_ITEMS
        or (dtype_of(task, c, target) == "uint8" and target.ptx < _MIXED_PTX)
        or c.depth % terms_of(c)
    ):
        return False
    if any(before or after for v in operands for before, after in v.layout.halo):
        return False
    if c.constant:
        rounded = c.item_bytes == _FLOAT_BYTES
        shared = product_of(task, c).flat
        return shared and (rounded or fetchable(operands[0], rows=True))
    if c.item_bytes == 1:
        return False
    same = {v.type.dtype for v in operands} == {dtype_of(task, c, target)}
    side_by_side = product_of(task, c).transposed
    flat = c.weight_rank == 2
    return (
        same
        and side_by_side
        and all(fetchable(v, rows=flat and v is operands[0]) for v in operands)
    )


def dtype_of(task: Task, c: Contraction, target: Target) -> str:
    """Element type that operands have in shared memory."""
    return task.value(c.data).type.dtype if c.item_bytes < _FLOAT_BYTES else target.precision


def terms_of(c: Contraction) -> int:
    """Terms of a sum in what is fetched of a row."""
    return FETCH_BYTES // min(c.item_bytes, _SHORT_BYTES)


def fetchable(value: TaskValue, *, rows: bool) -> bool:
    """Whether the copy engine can take boxes of a tensor, or of the matrix of its rows."""
    shape, layout = value.type.shape, value.layout
    buffer = Buffer(value.name, value.type.dtype, shape, "param", layout.strides, layout.halo)
    if first_alignment(buffer) < ALIGN_BYTES or layout.strides[-1] != 1:
        return False
    steps = (rows_apart(shape, layout),) if rows else layout.strides[:-1]
    even = all(s and s * ITEM_BYTES[buffer.dtype] % ALIGN_BYTES == 0 for s in steps)
    return even and (rows or len(shape) in FETCH_DIMS)


class WarpGroups(GpuAlgorithm):
    """Products by groups of four warps."""

    name, rank = "gpu_wgmma", 20
    reference = "NVIDIA, Parallel Thread Execution ISA: wgmma, cp.async.bulk.tensor"
    error = 2.0**-6
    fragment = (GROUP_ROWS, GROUP_WIDTH, WARP * WARPGROUP)
    layouts = (PADDED, SWIZZLED)

    def label(self, schedule: Schedule) -> str:
        return self.choice if any(isinstance(step, Warpgroup) for step in schedule) else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        return streams(task, c, target)

    def depths(self, c: Contraction) -> Collection[int]:
        return (terms_of(c),)

    def threads(self, configs: Configs) -> Column:
        """Threads of the groups, and of a warp that fetches."""
        return np.asarray(super().threads(configs) + WARP)

    def item_bytes(self, configs: Configs) -> Column:
        """A step takes 128 bytes of a row."""
        return np.asarray(FETCH_BYTES / configs["depth"])

    def shared_bytes(self, configs: Configs) -> Column:
        (rows, width), depth = self.tile(configs), np.asarray(configs["depth"], np.float64)
        boxes = depth * self.item_bytes(configs) * (rows + width) + BARRIER_BYTES
        return np.asarray(configs["stages"] * boxes + 32, np.float64)

    def valid(self, c: Contraction, configs: Configs) -> Mask:
        """Blocks fetch their operands in one box each."""
        rows, width = self.tile(configs)
        ok = (configs["depth"] == terms_of(c)) & (configs["unroll"] == 1) & (configs["stages"] > 1)
        ok &= configs["layout"] == SWIZZLED
        ok &= (configs["tile_m"] * configs["tile_n"] <= _PIECES) & (configs["tile_m"] <= 2)
        return np.asarray(ok & (rows <= FETCH_LIMIT) & (width <= FETCH_LIMIT))

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        """Fetches hide behind products, but for the time that a block begins and ends; where
        several blocks fit, others work meanwhile."""
        p, blocks, gpu = self.products(task, c), self.blocks(configs), machine.gpu
        n, split = (np.asarray(configs[k], np.float64) for k in ("tile_n", "split"))
        count, held = shared_out(p, machine, blocks, split)
        each, item = p.depth / split, blocks.item_bytes
        rows, width = blocks.rows, blocks.columns
        work = each * rows * width / (gpu.group_matrix_multiply_adds_per_cycle * 2 / item)
        # Operands are read from shared memory once per instruction of 64 x 32 n, and fetched.
        read = rows * width * (1 / GROUP_ROWS + 1 / (GROUP_WIDTH * n))
        shared = each * (read + rows + width) * item / 4 / gpu.shared_words_per_cycle
        move = each * move_cycles(p, c, machine, blocks, configs)
        groups = held * configs["threads_m"] * configs["threads_n"]
        few = np.minimum(1.0, groups / BUSY_GROUPS)
        busy = np.maximum(np.maximum(work / np.sqrt(few), shared), move)
        busy = busy + NOT_OVERLAPPED * (work + shared + move)
        waited = BLOCK_ENDS_CYCLES / held + 2 * gpu.global_latency_cycles / configs["stages"]
        waves = np.ceil(count / (held * machine.target.multiprocessors))
        whole = waves * held * (busy + waited + stored_cycles(machine, blocks))
        whole = whole + _rounding_cycles(p, c, machine)
        return np.asarray(whole + part_cycles(p, machine, split) + gpu.launch_cycles, np.float64)

    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        task, tile = builder.task, Tile.of(config, target)
        p = product_of(task, c)
        output_with_sums(builder, c.tensor, c.channels[0])
        order = tuple(range(c.weight_rank)) if p.transposed else swapped(c.weight_rank)
        dtype = dtype_of(task, c, target)
        if c.constant:
            rounded = dtype if dtype in SHORT_FLOATS else ""
            pack = PackConstant(buffer=c.weights, splits=(), order=order, dtype=rounded)
            builder.apply(pack)
            p = dataclasses.replace(p, transposed=True)
        if c.item_bytes == _FLOAT_BYTES:
            builder.apply(CastMatrix(buffer=c.data, tensor=c.tensor, dtype=dtype))
            loops = [f"{c.data}_n0", f"{c.data}_n1"]
            bind_flat(builder, loops, min(256, target.max_threads), _COPIED)
            builder.apply(Vectorize(loops=builder.present([f"{c.data}_n0_v"])))
        elif p.flat and len(task.value(c.data).type.shape) > 2:
            builder.apply(Flatten(buffer=c.data))
        c = split_reduction(builder, c, tile)
        outer = _split(builder, c, p, tile)
        builder.split("k_i", depth_of(dtype), "k_m", "k_f")
        own = ("m_g", "n_g", "m_q")
        builder.apply(CacheWrite(buffer=c.tensor, loops=(*own, *_OWN)))
        builder.apply(Reorder(loops=(*own, "k_m", *_OWN, "k_f")))
        data, weights = operands_of(builder, c)
        depth = ("k_m", "k_f")
        builder.apply(
            Shared(loop="k_o", buffers=(data, weights),
            axes=((("m_g", "m_i", "m_q", "m_f"), depth), (("n_g", "n_i", "n_f"), depth)),
            pads=(0, 0), dtype="",
        ))  # fmt: skip
        bind_blocks(builder, outer, str(config["order"]), config.number("band"))
        bind_matrices(builder, c, ("m_g", "n_g", "m_q"))
        builder.apply(Warpgroup(loop="n_i"))
        builder.apply(AsyncPipeline(loop="k_o", stages=tile.stages))
        bind_rest(builder, target)


ALGORITHMS.add(WarpGroups.name, WarpGroups())


def _rounding_cycles(p: Product, c: Contraction, machine: Machine) -> float:
    """Cycles of the launch before, which rounds float32 data."""
    if c.item_bytes != _FLOAT_BYTES:
        return 0.0
    speed = machine.gpu.global_bytes_per_cycle * machine.target.multiprocessors
    return ROUNDING_BYTES * p.rows * p.depth / speed + machine.gpu.launch_cycles


def _split(builder: ScheduleBuilder, c: Contraction, p: Product, tile: Tile) -> list[str]:
    batch, row, channel = row_and_channel(builder, c, p)
    builder.split(row, GROUP_ROWS * tile.rows, "m_b", "m_l")
    builder.split("m_l", GROUP_ROWS * tile.tile_m, "m_g", "m_r")
    builder.split("m_r", GROUP_ROWS, "m_i", "m_s")
    builder.split("m_s", MATRIX[0], "m_q", "m_f")
    builder.split(channel, GROUP_WIDTH * tile.columns, "n_b", "n_l")
    builder.split("n_l", GROUP_WIDTH * tile.tile_n, "n_g", "n_r")
    builder.split("n_r", MATRIX[1], "n_i", "n_f")
    builder.apply(Reorder(loops=("m_b", "n_b", "m_g", "n_g", "m_q", *_OWN)))
    return [*batch, "m_b", "n_b"]
