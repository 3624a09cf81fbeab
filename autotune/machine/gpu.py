"""Parts of a predicted time on GPUs: waves of blocks, bandwidth, coalescing, barriers.

In: a machine, and what a block does in many configs. Out: cycles of the device. A multiprocessor
holds as many blocks as its threads allow, and gets its share of global memory's bandwidth if
enough bytes are on their way at a time; a block by itself waits for memory in every pass, and for
its threads wherever they meet. The last, unfilled wave costs as much as a full one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.machine.value import Column, Machine

EMULATED_FLOPS = 32.0
"""Float operations per cycle of a core that plays a multiprocessor (assumed, as all constants
here: only the order of configs matters)."""
EMULATED_BYTES = 4.0
"""Bytes per cycle of such a core."""
EMULATED_STEP_CYCLES = 2
"""Cycles of such a core per thread and step beside its arithmetic."""
EMULATED_MEETING_CYCLES = 2
"""Cycles of such a core per thread that meets the others."""
EMULATED_LEVEL_CYCLES = 30
"""Cycles of such a core per level of a tree of sums."""
EMULATED_BLOCK_CYCLES = 200
"""Cycles of such a core per block."""
ADDRESS_INSTRUCTIONS = 10
"""Instructions of a step beside its loads and arithmetic: address, guard, counter, branch."""
LANE_INSTRUCTIONS = 4
"""Instructions per element of a step's vector."""
STEP_CYCLES = 24
"""Cycles of a lone block's step, its loads being on their way."""
NEXT_PASS_WAIT = 0.3
"""Share of the latency of global memory that each pass after the first waits for."""
WARP_MEETING_CYCLES = 8
"""Cycles that each warp adds to a barrier."""


def peak_flops_per_cycle(machine: Machine) -> float:
    """Float operations of the device in a cycle."""
    target = machine.target
    if target.warp > 1:
        return 2.0 * machine.gpu.multiply_adds_per_cycle * target.multiprocessors
    return EMULATED_FLOPS * target.cores


def held_blocks(machine: Machine, threads: Column) -> Column:
    """Blocks that a multiprocessor holds at a time."""
    gpu = machine.gpu
    return np.maximum(1.0, np.minimum(gpu.blocks_held, gpu.threads_held // threads))


def waves(machine: Machine, blocks: Column | float, threads: Column) -> Column:
    """How often the device is filled with blocks."""
    return np.ceil(blocks / (held_blocks(machine, threads) * machine.target.multiprocessors))


def coalescing_factor(machine: Machine, stride: int) -> float:
    """Bytes moved per byte used where neighbouring threads read 4-byte elements that lie `stride`
    elements apart."""
    return min(4.0 * max(stride, 1), machine.gpu.sector_bytes) / 4.0


def global_bytes_per_cycle(machine: Machine, in_flight: Column) -> Column:
    """Bandwidth of a multiprocessor with so many bytes on their way (Little's law)."""
    gpu = machine.gpu
    return np.minimum(gpu.global_bytes_per_cycle, in_flight / gpu.global_latency_cycles)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchShape:
    """One launch of a kernel, in many configs."""

    blocks: Column | float
    threads: Column
    """Threads of a block."""
    vector: Column
    """Elements that a thread takes at a time."""
    block_bytes: Column | float
    """Bytes that a block moves in all its passes."""
    passes: int
    """Times that a block goes over its data."""
    steps: Column
    """Vectors of a thread in a pass."""
    meetings: int = 0
    """Times that a block's threads add up what they have."""


def launch_cycles(machine: Machine, launch: LaunchShape) -> Column:
    """Cycles of one launch."""
    target, gpu = machine.target, machine.gpu
    if target.warp == 1:
        return _emulated(machine, launch)
    blocks, threads, vector = launch.blocks, launch.threads, launch.vector
    steps = launch.passes * launch.steps
    warps = np.ceil(threads / target.warp)
    share = np.ceil(blocks / target.multiprocessors)
    held = np.minimum(held_blocks(machine, threads), np.maximum(1.0, share))
    speed = global_bytes_per_cycle(machine, held * threads * vector * 4.0)
    wait = gpu.global_latency_cycles * (1 + NEXT_PASS_WAIT * (launch.passes - 1))
    lone = wait + steps * STEP_CYCLES + _meeting_cycles(machine, launch.meetings, warps)
    instructions = steps * (ADDRESS_INSTRUCTIONS + LANE_INSTRUCTIONS * vector)
    issued = held * warps * instructions / gpu.warp_instructions_per_cycle
    shared = np.maximum(held * launch.block_bytes / speed, issued)
    # Blocks that wait leave what they share idle unless another one comes: close to the queue's
    # exact solution (mean value analysis) for 2 to 32 blocks.
    each = np.cbrt(shared**3 + (lone + shared / held) ** 3)
    begun = gpu.block_start_cycles * share
    return np.asarray(
        waves(machine, blocks, threads) * each + begun + gpu.launch_cycles, np.float64
    )


def _meeting_cycles(machine: Machine, meetings: int, warps: Column) -> Column:
    """Cycles in which a block's threads add up what they have: within warps, then among them."""
    among = machine.gpu.barrier_cycles + WARP_MEETING_CYCLES * warps
    return meetings * (machine.gpu.warp_sum_cycles + np.where(warps > 1, among, 0.0))


def _emulated(machine: Machine, launch: LaunchShape) -> Column:
    """A processor that plays a GPU: threads are loops of it, barriers end them."""
    threads, vector = launch.threads, launch.vector
    lanes = np.minimum(vector, float(machine.target.lanes()))
    work = threads * (launch.passes * launch.steps) * (EMULATED_STEP_CYCLES + vector / lanes)
    levels = np.log2(np.maximum(threads, 2.0))
    tree = launch.meetings * (EMULATED_MEETING_CYCLES * threads + EMULATED_LEVEL_CYCLES * levels)
    each = work + tree + EMULATED_BLOCK_CYCLES
    return np.asarray(np.ceil(launch.blocks / machine.target.cores) * each, np.float64)
