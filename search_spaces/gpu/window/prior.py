"""The analytical prior of windows on a GPU: depthwise convolutions, pools and sums over rows.

In: a target, sizes of a task, and per config what a thread does. Out: cycles of the device. Blocks
run in waves of as many as a multiprocessor holds by threads and registers. Those take the longest
of: their instructions; the sectors that their warps ask the first-level cache for, more of them
where neighbouring threads read channels of points that lie apart; their share of memory's
bandwidth; one block's wait for its loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.machine import Machine
from autotune.machine.gpu import NEXT_PASS_WAIT, global_bytes_per_cycle, held_blocks
from search_spaces.base import Column

OVERHEAD_REGISTERS = 24.0
"""Registers, and instructions, for addresses and guards (assumed)."""
NOT_OVERLAPPED = 0.1
"""Share of all that a multiprocessor does side by side that takes time of its own (assumed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """A task: `terms` are added up per element, neighbouring points are `stride` points of data
    apart; `moved_bytes` are read and written once. `weighted`: each term has a weight."""

    elements: int
    channels: int
    terms: int
    stride: int
    weighted: bool
    moved_bytes: float


def sectors_of(w: Windows, machine: Machine, vector: Column, tile_w: Column) -> Column:
    """Sectors that a warp's load touches: `vector` channels per thread, then the next tile."""
    asked = 4.0 * vector * machine.target.warp
    apart = tile_w * w.stride > 1
    run = np.where(apart, np.minimum(asked, 4.0 * w.channels), asked)
    return np.asarray(asked / run * np.ceil(run / machine.gpu.sector_bytes))


def resident_blocks(machine: Machine, threads: Column, held: Column) -> Column:
    """Blocks on a multiprocessor whose threads hold so many sums, and as many operands."""
    blocks = held_blocks(machine, threads)
    registers = machine.target.registers
    if registers:
        by_registers = registers // ((2 * held + OVERHEAD_REGISTERS) * threads)
        blocks = np.maximum(1.0, np.minimum(blocks, by_registers))
    return blocks


def window_cycles(
    w: Windows, machine: Machine, *, vector: Column, tile_w: Column, tile_h: Column,
    threads: Column, loads: Column,
) -> Column:  # fmt: skip
    """Cycles where each thread makes `loads` vector loads for its tile."""
    target, gpu = machine.target, machine.gpu
    held = vector * tile_w * tile_h
    blocks = np.ceil(w.elements / held / threads)
    share = np.ceil(blocks / target.multiprocessors)
    most = resident_blocks(machine, threads, held)
    resident = np.minimum(most, share)
    warps = resident * np.ceil(threads / target.warp)
    asked = loads + w.terms * w.weighted
    instructions = w.terms * held + asked + 2 * held / vector + OVERHEAD_REGISTERS
    issued = warps * instructions / gpu.warp_instructions_per_cycle
    sectors = warps * (loads + tile_w * tile_h) * sectors_of(w, machine, vector, tile_w)
    cached = sectors * gpu.sector_bytes / gpu.l1_bytes_per_cycle
    flying = 4.0 * vector * np.minimum(loads, gpu.loads_in_flight) * resident * threads
    moved = resident * w.moved_bytes / blocks / global_bytes_per_cycle(machine, flying)
    again = np.ceil(loads / gpu.loads_in_flight) - 1
    waited = gpu.global_latency_cycles * (1 + NEXT_PASS_WAIT * again)
    lone = waited + instructions * np.maximum(1.0, gpu.add_latency_cycles / held)
    each = np.maximum(np.maximum(issued, cached), np.maximum(moved, lone))
    each = each + NOT_OVERLAPPED * (issued + cached + moved + lone)
    waves = np.ceil(blocks / (most * target.multiprocessors))
    begun = gpu.block_start_cycles * share
    return np.asarray(waves * each + begun + gpu.launch_cycles, np.float64)
