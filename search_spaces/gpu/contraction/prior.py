"""Cycles that a tiled product should take on a GPU, before it is built.

In: a product, the machine and params as columns. Out: cycles of the whole device, per config.
Blocks run in waves of as many as the multiprocessors hold by threads, registers and shared memory.
A block's time is the largest of its arithmetic (slowed where few warps hide its latency), its
loads from shared memory (conflicts included) and its share of global memory's bandwidth; the last,
unfilled wave costs as much as a full one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.program.async_pipeline import BARRIER_BYTES, FETCH_BYTES
from autotune.program.ir import MATRIX, WARP, WARPGROUP
from search_spaces.base import Column
from search_spaces.gpu.contraction.tiles import ITEM
from search_spaces.gpu.contraction.winograd import Sizes
from search_spaces.space import Columns

GROUPED = "wgmma"
"""The algorithm of groups of four warps."""
GROUP_ROWS, GROUP_WIDTH = MATRIX[0] * WARPGROUP, 32
"""Of a group's tile, what `tile_m` and `tile_n` count."""
ADDRESS_REGISTERS = 32
"""Registers of a thread for addresses and counters (assumed, as all constants here)."""
FLOAT_BYTES = 4
BLOCK_ENDS_CYCLES = 2500.0
"""Cycles of a block of warp groups before its first product and after its last."""
HIDING_WARPS = 16.0
"""Warps of a multiprocessor that hide the latency of its arithmetic."""
NOT_OVERLAPPED = 0.2
"""Share of all that a multiprocessor does side by side that takes time of its own."""
UNROLLED_STEPS = 4.0
"""Steps of a sum in a row; more of them only crowd the registers."""
CROWDED_COST = 1.5
"""Times that loops of longer bodies take."""
COPY_CYCLES = 20
"""Cycles of a thread per vector that it copies to shared memory."""
LOOP_CYCLES = 10
"""Cycles of a warp per iteration of a sum's loop."""


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
    return np.asarray(m * n * rows * width / threads + operands + ADDRESS_REGISTERS)


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


def resident_blocks(machine: Machine, columns: Columns) -> Column:
    """Blocks that a multiprocessor holds at a time."""
    threads = threads_of(columns)
    target, gpu = machine.target, machine.gpu
    held = np.minimum(gpu.blocks_held, gpu.threads_held // threads)
    kept = gpu.reserved_shared_bytes if target.kind == "cuda" else 0
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


def move_cycles(p: Sizes, machine: Machine, columns: Columns) -> Column:
    """Cycles of a multiprocessor's share of bandwidth for a block's operands, per term of the sum.

    What blocks that run at the same time read in common comes from memory once, and so does
    everything if it stays in the second-level cache."""
    target, gpu = machine.target, machine.gpu
    (rows, width), (lines, length) = block_tile(columns), lines_of(p, columns)
    item = np.full(len(rows), float(p.item_bytes))
    sizes = rows * item, width * (item_bytes_of(columns) if p.packed else item)
    turned = columns["order"] == "columns_first"
    first = np.where(turned, sizes[1], sizes[0])
    second = np.where(turned, sizes[0], sizes[1])
    wave = np.minimum(resident_blocks(machine, columns) * target.multiprocessors, lines * length)
    across = np.minimum(length, np.ceil(wave / columns["band"]))
    down = np.minimum(lines, np.ceil(wave / across))
    once = p.count * p.depth * (lines * first + length * second) <= target.l2_bytes
    across, down = np.where(once, length, across), np.where(once, lines, down)
    share = (down * first + across * second) / (down * across * (first + second))
    share = np.minimum(share, 1.0)
    from_memory = share / gpu.global_bytes_per_cycle
    from_cache = (1 - share) / gpu.l2_bytes_per_cycle
    return np.asarray((first + second) * (from_memory + from_cache))


def contraction_cycles(p: Sizes, machine: Machine, columns: Columns) -> Column:
    """Cycles of a tiled product."""
    if machine.target.warp == 1:
        return _emulated(p, machine, columns)
    gpu, processors = machine.gpu, machine.target.multiprocessors
    threads, (rows, width) = threads_of(columns), block_tile(columns)
    depth, split = (np.asarray(columns[k], np.float64) for k in ("depth", "split"))
    blocks, held = _shared_out(p, machine, columns)
    steps = np.ceil(p.depth / depth) / split
    work = _work_cycles(machine, columns, held)
    shared = _shared_memory_cycles(machine, columns)
    move = depth * move_cycles(p, machine, columns)
    copies = np.ceil(depth * (rows + width) / (4 * threads))
    step = np.maximum(np.maximum(work, shared), move) + NOT_OVERLAPPED * (work + shared + move)
    hidden = (columns["stages"] - 1) * step
    latency = gpu.global_latency_cycles
    wait = (np.maximum(latency - hidden, 0.1 * latency) + COPY_CYCLES * copies) / held
    each = steps * (step + wait + LOOP_CYCLES * threads / machine.target.warp * _loops(columns))
    each = each + 4 * rows * width / gpu.global_bytes_per_cycle
    waves = np.ceil(blocks / (held * processors))
    whole = waves * held * each + _part_cycles(p, machine, split) + gpu.launch_cycles
    return np.where(groups_of(columns), grouped_cycles(p, machine, columns), whole)


def _shared_out(p: Sizes, machine: Machine, columns: Columns) -> tuple[Column, Column]:
    """Blocks, and how many of them a multiprocessor has at a time."""
    rows, width = block_tile(columns)
    split = np.asarray(columns["split"], np.float64)
    blocks = split * p.count * np.ceil(p.rows / rows) * np.ceil(p.columns / width)
    share = np.ceil(blocks / machine.target.multiprocessors)
    return blocks, np.minimum(resident_blocks(machine, columns), share)


def _work_cycles(machine: Machine, columns: Columns, held: Column) -> Column:
    """Cycles of a block's multiply-adds for a step of the sum, slower where few warps hide their
    latency."""
    m, n, depth = (np.asarray(columns[k], np.float64) for k in ("tile_m", "tile_n", "depth"))
    rows, width = block_tile(columns)
    matrix = machine.gpu.warp_matrix_multiply_adds_per_cycle * 2 / item_bytes_of(columns)
    tensor = matrix_of(columns)[2] > 1
    work = depth * rows * width / np.where(tensor, matrix, machine.gpu.multiply_adds_per_cycle)
    warps = held * np.ceil(threads_of(columns) / machine.target.warp)
    return np.asarray(work / np.minimum(1.0, warps * np.sqrt(m * n) / (4 * HIDING_WARPS)))


def _shared_memory_cycles(machine: Machine, columns: Columns) -> Column:
    """Cycles of a block's reads and writes of shared memory for a step of the sum."""
    m, n, tn, depth = (
        np.asarray(columns[k], np.float64) for k in ("tile_m", "tile_n", "threads_n", "depth")
    )
    (rows, width), item, warp = block_tile(columns), item_bytes_of(columns), machine.target.warp
    tensor = matrix_of(columns)[2] > 1
    # Columns lie side by side, a word for each thread. Rows are the same for threads in a line:
    # four of them are one read, of as many banks as there are lines in a warp.
    lines = np.ceil(warp / np.minimum(tn, warp))
    read = np.where(m % 4 == 0, m / 4 * np.maximum(1.0, lines / 8), m) + n
    words = np.where(tensor, (m * 16 + n * 8) / 32 * item / 4, read)
    # Data are turned on the way: deep steps meet in the same banks.
    turned = np.where(tensor | (rows <= 4), 1.0, np.maximum(1.0, depth / 8))
    total = depth * (words * threads_of(columns) + (rows * turned + width) * item / 4)
    return np.asarray(total / machine.gpu.shared_words_per_cycle)


def _loops(columns: Columns) -> Column:
    """Iterations of a thread's loops for a step of the sum; of tensor cores, loads of matrices:
    small tiles of a warp load nearly as many as they multiply."""
    m, n, depth, unroll = (
        np.asarray(columns[k], np.float64) for k in ("tile_m", "tile_n", "depth", "unroll")
    )
    matrices = depth * item_bytes_of(columns) / 32 * (1 + 4 * (m + n) / (m * n))
    crowded = np.where(unroll > UNROLLED_STEPS, CROWDED_COST, 1.0)
    loops = depth / 4 / np.minimum(unroll, UNROLLED_STEPS) * crowded
    return np.where(matrix_of(columns)[2] > 1, matrices, loops)


def _part_cycles(p: Sizes, machine: Machine, split: Column) -> Column:
    """Cycles of writing, reading and adding up the parts that blocks share a sum in."""
    nbytes = np.where(split > 1, (split + 1) * p.count * p.rows * p.columns * 4.0, 0)
    speed = machine.gpu.l2_bytes_per_cycle * machine.target.multiprocessors
    return np.asarray(nbytes / speed + np.where(split > 1, machine.gpu.launch_cycles, 0))


def grouped_cycles(p: Sizes, machine: Machine, columns: Columns) -> Column:
    """Cycles of a product by groups of four warps: fetches hide behind products, but for the time
    that a block begins and ends; where several blocks fit, others work meanwhile."""
    gpu, processors = machine.gpu, machine.target.multiprocessors
    rows, width = block_tile(columns)
    n, split = (np.asarray(columns[k], np.float64) for k in ("tile_n", "split"))
    blocks, held = _shared_out(p, machine, columns)
    each, item = p.depth / split, item_bytes_of(columns)
    work = each * rows * width / (gpu.group_matrix_multiply_adds_per_cycle * 2 / item)
    # Operands are read from shared memory once per instruction of 64 x 32 n, and fetched to it.
    read = rows * width * (1 / GROUP_ROWS + 1 / (GROUP_WIDTH * n))
    shared = each * (read + rows + width) * item / 4 / gpu.shared_words_per_cycle
    move = each * move_cycles(p, machine, columns)
    few = np.minimum(1.0, held * columns["threads_m"] * columns["threads_n"] / 2)
    busy = np.maximum(np.maximum(work / np.sqrt(few), shared), move)
    busy = busy + NOT_OVERLAPPED * (work + shared + move)
    waited = BLOCK_ENDS_CYCLES / held + 2 * gpu.global_latency_cycles / columns["stages"]
    stored = 4 * rows * width / gpu.global_bytes_per_cycle
    waves = np.ceil(blocks / (held * processors))
    rounded = 6.0 * p.rows * p.depth / (gpu.global_bytes_per_cycle * processors)
    rounded = (rounded + gpu.launch_cycles) * (p.item_bytes == FLOAT_BYTES)
    whole = waves * held * (busy + waited + stored) + rounded
    return np.asarray(whole + _part_cycles(p, machine, split) + gpu.launch_cycles, np.float64)


def _emulated(p: Sizes, machine: Machine, columns: Columns) -> Column:
    """A processor that plays a GPU: threads are loops of it, barriers end them."""
    m, n, tm, tn, depth = (
        np.asarray(columns[k], np.float64)
        for k in ("tile_m", "tile_n", "threads_m", "threads_n", "depth")
    )
    rows, width = m * tm, n * tn
    blocks = p.count * np.ceil(p.rows / rows) * np.ceil(p.columns / width)
    steps = np.ceil(p.depth / depth) + 2.0 * columns["split"]
    lanes = machine.target.lanes()
    work = depth * tm * tn * m * np.ceil(n / lanes) * (1 + 1 / m + 1 / np.ceil(n / lanes))
    copy = 1.5 * depth * (rows + width)
    barrier = 20 * tm * tn * columns["stages"]
    each = steps * (work + copy + 2 * barrier) + 3 * rows * width
    return np.asarray(np.ceil(blocks / machine.target.cores) * each, np.float64)
