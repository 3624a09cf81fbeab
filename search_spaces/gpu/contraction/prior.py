"""Cycles that a tiled product should take on a GPU, before it is built.

In: a product, the machine, blocks and configs. Out: cycles of the whole device, per
config. Blocks run in waves of as many as the multiprocessors hold by threads, registers and shared
memory. A block's time is the largest of its arithmetic (slowed where few warps hide its latency),
its loads from shared memory (conflicts included) and its share of global memory's bandwidth; the
last, unfilled wave costs as much as a full one. Constants are assumed unless they say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.machine import Machine
from search_spaces.algorithms.gpu.base import Blocks
from search_spaces.base import Column
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.gpu.contraction.tiles import Product
from search_spaces.space import Configs

HIDING_WARPS = 16.0
"""Warps of a multiprocessor that hide the latency of its arithmetic."""
NOT_OVERLAPPED = 0.2
"""Share of all that a multiprocessor does side by side that takes time of its own."""
COPY_CYCLES = 20
"""Cycles of a thread per vector that it copies to shared memory."""
COPY_FLOATS = 4
"""Elements of such a vector."""
LOOP_CYCLES = 10
"""Cycles of a warp per iteration of a sum's loop."""
LEAST_WAIT = 0.1
"""Share of the latency of global memory that is waited for however many steps copies run ahead."""
RESULT_BYTES = 4
"""Bytes of an element of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStep:
    """The work of a block in a step of `depth` terms of the sum, an entry per config."""

    multiply_adds_per_cycle: Column | float
    """Multiply-adds per multiprocessor and cycle."""
    words: Column
    """Words of shared memory that a thread reads in a term."""
    turned: Column
    """Times that a row of data is written to shared memory, by conflicts of banks on the way."""
    loops: Column
    """Iterations of a thread's loops."""


def resident_blocks(machine: Machine, blocks: Blocks) -> Column:
    """Blocks that a multiprocessor holds at a time."""
    target, gpu = machine.target, machine.gpu
    held = np.minimum(gpu.blocks_held, gpu.threads_held // blocks.threads)
    kept = gpu.reserved_shared_bytes if target.kind == "cuda" else 0
    held = np.minimum(held, (target.shared_bytes + kept) // (blocks.shared_bytes + kept))
    if target.registers:
        held = np.minimum(held, target.registers // (blocks.registers * blocks.threads))
    return np.maximum(held, 1.0)


def lines_of(p: Product, blocks: Blocks, configs: Configs) -> tuple[Column, Column]:
    """Lines of blocks, and blocks of a line: those of a line follow each other."""
    down, along = np.ceil(p.rows / blocks.rows), np.ceil(p.columns / blocks.columns)
    turned = configs["order"] == "columns_first"
    return np.where(turned, along, down), np.where(turned, down, along)


def shared_out(
    p: Product, machine: Machine, blocks: Blocks, split: Column
) -> tuple[Column, Column]:
    """Blocks, and how many of them a multiprocessor has at a time."""
    tiles = np.ceil(p.rows / blocks.rows) * np.ceil(p.columns / blocks.columns)
    count = split * p.count * tiles
    share = np.ceil(count / machine.target.multiprocessors)
    return count, np.minimum(resident_blocks(machine, blocks), share)


def move_cycles(
    p: Product, c: Contraction, machine: Machine, blocks: Blocks, configs: Configs
) -> Column:
    """Cycles of a multiprocessor's share of bandwidth for a block's operands, per term of the sum.

    What blocks that run at the same time read in common comes from memory once, and so does
    everything if it stays in the second-level cache."""
    target, gpu = machine.target, machine.gpu
    lines, length = lines_of(p, blocks, configs)
    item = np.full(len(lines), float(c.item_bytes))
    sizes = blocks.rows * item, blocks.columns * (blocks.item_bytes if c.constant else item)
    turned = configs["order"] == "columns_first"
    first = np.where(turned, sizes[1], sizes[0])
    second = np.where(turned, sizes[0], sizes[1])
    held = resident_blocks(machine, blocks)
    wave = np.minimum(held * target.multiprocessors, lines * length)
    across = np.minimum(length, np.ceil(wave / configs["band"]))
    down = np.minimum(lines, np.ceil(wave / across))
    once = p.count * p.depth * (lines * first + length * second) <= target.l2_bytes
    across, down = np.where(once, length, across), np.where(once, lines, down)
    share = (down * first + across * second) / (down * across * (first + second))
    share = np.minimum(share, 1.0)
    from_memory = share / gpu.global_bytes_per_cycle
    from_cache = (1 - share) / gpu.l2_bytes_per_cycle
    return np.asarray((first + second) * (from_memory + from_cache))


def tiled_cycles(
    p: Product,
    c: Contraction,
    machine: Machine,
    blocks: Blocks,
    configs: Configs,
    *,
    step: BlockStep,
) -> Column:
    """Cycles of a product by blocks whose threads copy both operands, step by step."""
    if machine.target.warp == 1:
        return emulated_cycles(p, machine, configs)
    gpu, threads = machine.gpu, blocks.threads
    depth, split = (np.asarray(configs[k], np.float64) for k in ("depth", "split"))
    count, held = shared_out(p, machine, blocks, split)
    steps = np.ceil(p.depth / depth) / split
    work = _work_cycles(machine, blocks, configs, step, held)
    shared = _shared_memory_cycles(machine, blocks, depth, step)
    move = depth * move_cycles(p, c, machine, blocks, configs)
    copies = np.ceil(depth * (blocks.rows + blocks.columns) / (COPY_FLOATS * threads))
    busy = np.maximum(np.maximum(work, shared), move) + NOT_OVERLAPPED * (work + shared + move)
    hidden = (configs["stages"] - 1) * busy
    latency = gpu.global_latency_cycles
    wait = np.maximum(latency - hidden, LEAST_WAIT * latency) + COPY_CYCLES * copies
    loops = LOOP_CYCLES * threads / machine.target.warp * step.loops
    each = steps * (busy + wait / held + loops) + stored_cycles(machine, blocks)
    waves = np.ceil(count / (held * machine.target.multiprocessors))
    return np.asarray(waves * held * each + part_cycles(p, machine, split) + gpu.launch_cycles)


def stored_cycles(machine: Machine, blocks: Blocks) -> Column:
    """Cycles of a multiprocessor's share of bandwidth for a block's results."""
    nbytes = RESULT_BYTES * blocks.rows * blocks.columns
    return np.asarray(nbytes / machine.gpu.global_bytes_per_cycle)


def part_cycles(p: Product, machine: Machine, split: Column) -> Column:
    """Cycles of writing, reading and adding up the parts that blocks share a sum in."""
    nbytes = np.where(split > 1, (split + 1) * p.count * p.rows * p.columns * 4.0, 0)
    speed = machine.gpu.l2_bytes_per_cycle * machine.target.multiprocessors
    return np.asarray(nbytes / speed + np.where(split > 1, machine.gpu.launch_cycles, 0))


def _work_cycles(
    machine: Machine, blocks: Blocks, configs: Configs, step: BlockStep, held: Column
) -> Column:
    """Cycles of a block's multiply-adds for a step of the sum, slower where few warps hide their
    latency."""
    m, n, depth = (np.asarray(configs[k], np.float64) for k in ("tile_m", "tile_n", "depth"))
    work = depth * blocks.rows * blocks.columns / step.multiply_adds_per_cycle
    warps = held * np.ceil(blocks.threads / machine.target.warp)
    return np.asarray(work / np.minimum(1.0, warps * np.sqrt(m * n) / (4 * HIDING_WARPS)))


def _shared_memory_cycles(
    machine: Machine, blocks: Blocks, depth: Column, step: BlockStep
) -> Column:
    """Cycles of a block's reads and writes of shared memory for a step of the sum."""
    written = (blocks.rows * step.turned + blocks.columns) * blocks.item_bytes / 4
    total = depth * (step.words * blocks.threads + written)
    return np.asarray(total / machine.gpu.shared_words_per_cycle)


# ------------------------------------------------------------------------- a processor as a GPU

EMULATED_COPY_CYCLES = 1.5
"""Cycles of a core per element of an operand that it copies."""
EMULATED_BARRIER_CYCLES = 20
"""Cycles of a core per thread and stage where the threads of a block meet."""
EMULATED_PART_STEPS = 2.0
"""Steps of a sum that a part of it costs beside its own."""
EMULATED_RESULT_CYCLES = 3
"""Cycles of a core per element of the result."""


def emulated_cycles(p: Product, machine: Machine, configs: Configs) -> Column:
    """A processor that plays a GPU: threads are loops of it, barriers end them."""
    m, n, tm, tn, depth = (
        np.asarray(configs[k], np.float64)
        for k in ("tile_m", "tile_n", "threads_m", "threads_n", "depth")
    )
    rows, width = m * tm, n * tn
    blocks = p.count * np.ceil(p.rows / rows) * np.ceil(p.columns / width)
    steps = np.ceil(p.depth / depth) + EMULATED_PART_STEPS * configs["split"]
    vectors = np.ceil(n / machine.target.lanes())
    work = depth * tm * tn * m * vectors * (1 + 1 / m + 1 / vectors)
    copy = EMULATED_COPY_CYCLES * depth * (rows + width)
    barrier = EMULATED_BARRIER_CYCLES * tm * tn * configs["stages"]
    each = steps * (work + copy + 2 * barrier) + EMULATED_RESULT_CYCLES * rows * width
    return np.asarray(np.ceil(blocks / machine.target.cores) * each, np.float64)
