"""What a tile costs on a GPU, before it is built: the analytical prior of the rules for GPUs.

In: a product, a target and params as columns. Out: cycles of the whole device, per config. Blocks
run in waves of as many as the multiprocessors hold by threads, registers and shared memory. A
block's time is the largest of its arithmetic (slowed where few warps hide its latency), its loads
from shared memory (conflicts included) and its share of global memory's bandwidth; the last,
unfilled wave costs as much as a full one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.program.ir import MATRIX, WARP, WARPGROUP
from autotune.program.stream import BARRIER_BYTES, FETCH_BYTES
from autotune.target import Target
from search_spaces.base import Column
from search_spaces.rules._gpu_tiles import ITEM
from search_spaces.rules._gpu_winograd import Sizes
from search_spaces.space import Columns

GROUPED = "wgmma"
"""The algorithm of groups of four warps."""
GROUP_ROWS, GROUP_WIDTH = MATRIX[0] * WARPGROUP, 32
"""Of a group's tile, what `tile_m` and `tile_n` count."""
_THREADS_HELD = 2048.0
_BLOCKS_HELD = 32.0
_KEPT_BYTES = 1024
"""Of shared memory, that CUDA takes for itself per block; no block may ask for the last ones."""
_MULTIPLY_ADDS = 128.0
"""Of one multiprocessor in a cycle."""
_TENSOR_ADDS = 1024.0
"""The same by tensor cores, of 16-bit operands."""
_SHARED_WORDS = 32.0
"""Read from shared memory by one multiprocessor in a cycle."""
_GLOBAL_BYTES = 12.0
"""That one multiprocessor gets from global memory in a cycle, when all ask."""
_CACHED_BYTES = 40.0
"""The same from the second-level cache."""
_FLOAT_BYTES = 4
_GROUP_ADDS = 2048.0
"""By tensor cores when groups of four warps ask them."""
_FILL = 2500.0
"""Cycles of a block before its first product and after its last."""
_LATENCY = 600.0
"""Cycles until data from global memory arrive."""
_HIDING_WARPS = 16.0
"""Warps of a multiprocessor that hide the latency of its arithmetic."""
_BESIDE = 0.2
"""Of what a multiprocessor does at the same time, the share that takes time of its own."""
_UNROLLED = 4.0
"""Steps of a sum in a row; more of them only crowd the registers."""
_LAUNCH = 3000.0
"""Cycles that a launch takes by itself."""


def matrix_of(columns: Columns) -> tuple[Column, Column, Column]:
    """Rows and columns of what `tile_m` and `tile_n` count, and threads of what `threads_` do."""
    tensor = np.zeros(len(columns["algorithm"]))
    for name in ITEM:
        tensor[np.asarray(columns["algorithm"] == name)] = 1
    rows, width = (1 + tensor * (side - 1) for side in MATRIX)
    grouped = groups_of(columns)
    return (
        np.where(grouped, GROUP_ROWS, rows), np.where(grouped, GROUP_WIDTH, width),
        np.where(grouped, WARP * WARPGROUP, 1 + tensor * (WARP - 1)),
    )  # fmt: skip


def groups_of(columns: Columns) -> npt.NDArray[Any]:
    """Where groups of four warps multiply."""
    return np.asarray(columns["algorithm"] == GROUPED)


def block_tile(columns: Columns) -> tuple[Column, Column]:
    """Rows and columns of a block's tile."""
    rows, width, _ = matrix_of(columns)
    return (
        np.asarray(rows * columns["tile_m"] * columns["threads_m"], np.float64),
        np.asarray(width * columns["tile_n"] * columns["threads_n"], np.float64),
    )


def threads_of(columns: Columns) -> Column:
    """Threads of a block."""
    threads = matrix_of(columns)[2] * columns["threads_m"] * columns["threads_n"]
    return np.asarray(threads + WARP * groups_of(columns))


def item_bytes_of(columns: Columns) -> Column:
    """Bytes of an operand's element in shared memory. Groups of warps take 128 bytes of a row."""
    out = np.where(groups_of(columns), FETCH_BYTES / columns["depth"], 4.0)
    for name, size in ITEM.items():
        out[np.asarray(columns["algorithm"] == name)] = size
    return out


def registers_of(columns: Columns) -> Column:
    """Registers of a thread: its part of the tile, a row and a column of operands, addresses."""
    m, n = (np.asarray(columns[p], np.float64) for p in ("tile_m", "tile_n"))
    rows, width, threads = matrix_of(columns)
    operands = np.where(threads > 1, 4 * m + 2 * n, 2 * (m + n))
    return np.asarray(m * n * rows * width / threads + operands + 32)


def shared_bytes_of(columns: Columns) -> Column:
    """Shared memory of a block: steps of both operands, padded."""
    rows, width = block_tile(columns)
    depth = np.asarray(columns["depth"], np.float64)
    direct = 4 * depth * (rows + np.where(rows > 4, 4, 0) + width)
    gap = np.where(columns["layout"] == "padded", 16.0, 0.0)
    matrices = (depth * item_bytes_of(columns) + gap) * (rows + width)
    tensor = matrix_of(columns)[2] > 1
    each = np.where(tensor, matrices, direct) + np.where(columns["stages"] > 1, 128, 16)
    boxes = depth * item_bytes_of(columns) * (rows + width) + BARRIER_BYTES
    each = np.where(groups_of(columns), boxes, each)
    return np.asarray(columns["stages"] * each + 32, np.float64)


def resident_blocks(target: Target, columns: Columns) -> Column:
    """Blocks that a multiprocessor holds at a time."""
    threads = threads_of(columns)
    held = np.minimum(_BLOCKS_HELD, _THREADS_HELD // threads)
    kept = _KEPT_BYTES if target.kind == "cuda" else 0
    whole, each = target.shared_bytes + kept, shared_bytes_of(columns) + kept
    held = np.minimum(held, whole // each)
    if target.registers:
        held = np.minimum(held, target.registers // (registers_of(columns) * threads))
    return np.maximum(held, 1.0)


def lines_of(p: Sizes, columns: Columns) -> tuple[Column, Column]:
    """Lines of blocks, and blocks of a line: those of a line follow each other."""
    rows, width = block_tile(columns)
    down, along = np.ceil(p.rows / rows), np.ceil(p.columns / width)
    turned = columns["order"] == "columns_first"
    return np.where(turned, along, down), np.where(turned, down, along)


def move_cycles(p: Sizes, target: Target, columns: Columns) -> Column:
    """Cycles of a multiprocessor's share of bandwidth for a block's operands, per term of the sum.

    What blocks that run at the same time read in common comes from memory once, and so does
    everything if it stays in the second-level cache."""
    (rows, width), (lines, length) = block_tile(columns), lines_of(p, columns)
    item = np.full(len(rows), float(p.item_bytes))
    sizes = rows * item, width * (item_bytes_of(columns) if p.packed else item)
    turned = columns["order"] == "columns_first"
    first = np.where(turned, sizes[1], sizes[0])
    second = np.where(turned, sizes[0], sizes[1])
    wave = np.minimum(resident_blocks(target, columns) * target.multiprocessors, lines * length)
    across = np.minimum(length, np.ceil(wave / columns["band"]))
    down = np.minimum(lines, np.ceil(wave / across))
    once = p.count * p.depth * (lines * first + length * second) <= target.l2_bytes
    across, down = np.where(once, length, across), np.where(once, lines, down)
    share = (down * first + across * second) / (down * across * (first + second))
    share = np.minimum(share, 1.0)
    return np.asarray((first + second) * (share / _GLOBAL_BYTES + (1 - share) / _CACHED_BYTES))


def contraction_cycles(p: Sizes, target: Target, columns: Columns) -> Column:
    """Cycles of a tiled product."""
    if target.warp == 1:
        return _single(p, target, columns)
    m, n, tn, depth = (
        np.asarray(columns[k], np.float64) for k in ("tile_m", "tile_n", "threads_n", "depth")
    )
    threads, (rows, width), item = threads_of(columns), block_tile(columns), item_bytes_of(columns)
    tensor = matrix_of(columns)[2] > 1
    split = np.asarray(columns["split"], np.float64)
    blocks = split * p.count * np.ceil(p.rows / rows) * np.ceil(p.columns / width)
    steps = np.ceil(p.depth / depth) / split
    held = np.minimum(resident_blocks(target, columns), np.ceil(blocks / target.multiprocessors))
    warps = held * np.ceil(threads / target.warp)
    work = depth * rows * width / np.where(tensor, _TENSOR_ADDS * 2 / item, _MULTIPLY_ADDS)
    work = work / np.minimum(1.0, warps * np.sqrt(m * n) / (4 * _HIDING_WARPS))
    # Columns lie side by side, a word for each thread. Rows are the same for threads in a line:
    # four of them are one read, of as many banks as there are lines in a warp.
    lines = np.ceil(target.warp / np.minimum(tn, target.warp))
    read = np.where(m % 4 == 0, m / 4 * np.maximum(1.0, lines / 8), m) + n
    words = np.where(tensor, (m * 16 + n * 8) / 32 * item / 4, read)
    # Data are turned on the way: deep steps meet in the same banks.
    turned = np.where(tensor | (rows <= 4), 1.0, np.maximum(1.0, depth / 8))
    shared = depth * (words * threads + (rows * turned + width) * item / 4) / _SHARED_WORDS
    move = depth * move_cycles(p, target, columns)
    copies = np.ceil(depth * (rows + width) / (4 * threads))
    step = np.maximum(np.maximum(work, shared), move) + _BESIDE * (work + shared + move)
    hidden = (columns["stages"] - 1) * step
    wait = (np.maximum(_LATENCY - hidden, 0.1 * _LATENCY) + 20 * copies) / held
    # Small tiles of a warp load nearly as many matrices as they multiply.
    matrices = depth * item / 32 * (1 + 4 * (m + n) / (m * n))
    unroll = np.asarray(columns["unroll"], np.float64)
    crowded = np.where(unroll > _UNROLLED, 1.5, 1.0)
    loops = np.where(tensor, matrices, depth / 4 / np.minimum(unroll, _UNROLLED) * crowded)
    each = steps * (step + wait + 10 * threads / target.warp * loops)
    each = each + 4 * rows * width / _GLOBAL_BYTES
    waves = np.ceil(blocks / (held * target.multiprocessors))
    parts = np.where(split > 1, (split + 1) * p.count * p.rows * p.columns * 4.0, 0)
    parts = parts / (_CACHED_BYTES * target.multiprocessors) + np.where(split > 1, _LAUNCH, 0)
    whole = waves * held * each + parts + _LAUNCH
    return np.where(groups_of(columns), grouped_cycles(p, target, columns), whole)


def grouped_cycles(p: Sizes, target: Target, columns: Columns) -> Column:
    """Cycles of a product by groups of four warps: fetches hide behind products, but for the time
    that a block begins and ends; where several blocks fit, others work meanwhile."""
    rows, width = block_tile(columns)
    n = np.asarray(columns["tile_n"], np.float64)
    split = np.asarray(columns["split"], np.float64)
    blocks = split * p.count * np.ceil(p.rows / rows) * np.ceil(p.columns / width)
    held = np.minimum(resident_blocks(target, columns), np.ceil(blocks / target.multiprocessors))
    each, item = p.depth / split, item_bytes_of(columns)
    work = each * rows * width / (_GROUP_ADDS * 2 / item)
    # Operands are read from shared memory once per instruction of 64 x 32 n, and fetched to it.
    read = rows * width * (1 / GROUP_ROWS + 1 / (GROUP_WIDTH * n))
    shared = each * (read + rows + width) * item / 4 / _SHARED_WORDS
    move = each * move_cycles(p, target, columns)
    few = np.minimum(1.0, held * columns["threads_m"] * columns["threads_n"] / 2)
    busy = np.maximum(np.maximum(work / np.sqrt(few), shared), move)
    busy = busy + _BESIDE * (work + shared + move)
    waited = _FILL / held + 2 * _LATENCY / columns["stages"]
    stored = 4 * rows * width / _GLOBAL_BYTES
    waves = np.ceil(blocks / (held * target.multiprocessors))
    rounded = 6.0 * p.rows * p.depth / (_GLOBAL_BYTES * target.multiprocessors) + _LAUNCH
    rounded = rounded * (p.item_bytes == _FLOAT_BYTES)
    parts = np.where(split > 1, (split + 1) * p.count * p.rows * p.columns * 4.0, 0)
    parts = parts / (_CACHED_BYTES * target.multiprocessors) + np.where(split > 1, _LAUNCH, 0)
    whole = waves * held * (busy + waited + stored) + rounded + parts + _LAUNCH
    return np.asarray(whole, np.float64)


def _single(p: Sizes, target: Target, columns: Columns) -> Column:
    """A processor that plays a GPU: threads are loops of it, barriers end them."""
    m, n, tm, tn, depth = (
        np.asarray(columns[k], np.float64)
        for k in ("tile_m", "tile_n", "threads_m", "threads_n", "depth")
    )
    rows, width = m * tm, n * tn
    blocks = p.count * np.ceil(p.rows / rows) * np.ceil(p.columns / width)
    steps = np.ceil(p.depth / depth) + 2.0 * columns["split"]
    lanes = target.lanes()
    work = depth * tm * tn * m * np.ceil(n / lanes) * (1 + 1 / m + 1 / np.ceil(n / lanes))
    copy = 1.5 * depth * (rows + width)
    barrier = 20 * tm * tn * columns["stages"]
    each = steps * (work + copy + 2 * barrier) + 3 * rows * width
    return np.asarray(np.ceil(blocks / target.cores) * each, np.float64)
