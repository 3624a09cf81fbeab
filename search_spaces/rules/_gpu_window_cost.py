"""What windows cost on a GPU, before they are built: the analytical prior of depthwise
convolutions, pools and sums over rows.

In: a target, sizes of a task, and per config what a thread does. Out: cycles of the device. Blocks
run in waves of as many as a multiprocessor holds by threads and registers. Those take the longest
of: their instructions; the sectors that their warps ask the first-level cache for, more of them
where neighbouring threads read channels of points that lie apart; their share of memory's
bandwidth; one block's wait for its loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.target import Target
from search_spaces.base import Column
from search_spaces.rules._gpu_rows_cost import (
    GLOBAL_BYTES,
    LATENCY,
    LAUNCH,
    held_blocks,
)

_CACHE_BYTES = 64.0
"""That a multiprocessor gets from its first-level cache in a cycle."""
_SECTOR_BYTES = 32.0
_ISSUE = 4.0
"""Warp instructions that a multiprocessor starts in a cycle."""
_START = 20.0
"""Cycles in which a multiprocessor is given a block."""
_AHEAD = 8.0
"""Loads of a thread that are on their way at a time."""
_BESIDE = 24.0
"""Registers, and instructions, for addresses and guards."""
_CROWDED = 0.1
"""What does not overlap, of all of them."""
_DEPENDENT = 4.0
"""Cycles from one addition to the next that needs it."""


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


def sectors_of(w: Windows, target: Target, vector: Column, tile_w: Column) -> Column:
    """Sectors that a warp's load touches: `vector` channels per thread, then the next tile."""
    asked = 4.0 * vector * target.warp
    apart = tile_w * w.stride > 1
    run = np.where(apart, np.minimum(asked, 4.0 * w.channels), asked)
    return np.asarray(asked / run * np.ceil(run / _SECTOR_BYTES))


def resident_blocks(target: Target, threads: Column, held: Column) -> Column:
    """Blocks on a multiprocessor whose threads hold so many sums, and as many operands."""
    blocks = held_blocks(threads)
    if target.registers:
        by_registers = target.registers // ((2 * held + _BESIDE) * threads)
        blocks = np.maximum(1.0, np.minimum(blocks, by_registers))
    return blocks


def window_cycles(
    w: Windows, target: Target, *, vector: Column, tile_w: Column, tile_h: Column,
    threads: Column, loads: Column,
) -> Column:  # fmt: skip
    """Cycles where each thread makes `loads` vector loads for its tile."""
    held = vector * tile_w * tile_h
    blocks = np.ceil(w.elements / held / threads)
    share = np.ceil(blocks / target.multiprocessors)
    most = resident_blocks(target, threads, held)
    resident = np.minimum(most, share)
    warps = resident * np.ceil(threads / target.warp)
    asked = loads + w.terms * w.weighted
    instructions = w.terms * held + asked + 2 * held / vector + _BESIDE
    issued = warps * instructions / _ISSUE
    touched = loads + tile_w * tile_h
    cached = warps * touched * sectors_of(w, target, vector, tile_w) * _SECTOR_BYTES / _CACHE_BYTES
    flying = 4.0 * vector * np.minimum(loads, _AHEAD) * resident * threads
    speed = np.minimum(GLOBAL_BYTES, flying / LATENCY)
    moved = resident * w.moved_bytes / blocks / speed
    waited = LATENCY * (1 + 0.3 * (np.ceil(loads / _AHEAD) - 1))
    alone = waited + instructions * np.maximum(1.0, _DEPENDENT / held)
    each = np.maximum(np.maximum(issued, cached), np.maximum(moved, alone))
    each = each + _CROWDED * (issued + cached + moved + alone)
    waves = np.ceil(blocks / (most * target.multiprocessors))
    return np.asarray(waves * each + _START * share + LAUNCH, np.float64)
