"""What kernels cost that do little with each byte: the analytical prior of rows and plain nests.

In: a target, and per config what a block does. Out: cycles of the device. A multiprocessor holds
as many blocks as its threads allow, and gets its share of global memory's bandwidth if enough
bytes are on their way at a time; a block by itself waits for memory in every pass, and for its
threads wherever they meet. The last, unfilled wave costs as much as a full one.
"""

from __future__ import annotations

import numpy as np

from autotune.target import Target
from search_spaces.base import Column

THREADS_HELD = 2048.0
BLOCKS_HELD = 32.0
GLOBAL_BYTES = 12.0
"""That one multiprocessor gets from global memory in a cycle, when all ask."""
LATENCY = 600.0
"""Cycles until data from global memory arrive."""
LAUNCH = 3000.0
"""Cycles that a launch takes by itself."""
_SECTOR_BYTES = 32.0
"""The least that is read from global memory."""
_START = 20.0
"""Cycles in which a multiprocessor is given a block."""
_ISSUE = 4.0
"""Warp instructions that a multiprocessor starts in a cycle."""
_EXCHANGE = 130.0
"""Cycles in which a warp adds up what its threads have."""
_MEETING = 60.0
"""Cycles that several warps take to meet, and to pass on what they have."""


def peak_of(target: Target) -> float:
    """Operations of the device in a cycle."""
    return 2.0 * 128 * target.multiprocessors if target.warp > 1 else 32.0 * target.cores


def held_blocks(threads: Column) -> Column:
    """Blocks that a multiprocessor holds at a time."""
    return np.maximum(1.0, np.minimum(BLOCKS_HELD, THREADS_HELD // threads))


def waves(target: Target, blocks: Column | float, threads: Column) -> Column:
    """How often the device is filled with blocks."""
    return np.ceil(blocks / (held_blocks(threads) * target.multiprocessors))


def coalesced(stride: int) -> float:
    """Bytes moved per byte used where neighbouring threads read 4-byte elements that lie `stride`
    elements apart."""
    return min(4.0 * max(stride, 1), _SECTOR_BYTES) / 4.0


def stream_cycles(
    target: Target, *, blocks: Column | float, threads: Column, vector: Column,
    block_bytes: Column | float, passes: int, steps: Column, meetings: int = 0,
) -> Column:  # fmt: skip
    """Cycles of one launch. A block makes `passes` passes of `steps` vectors a thread, in which
    `block_bytes` are moved in all, and its threads meet so often."""
    if target.warp == 1:
        return _single(
            target, blocks=blocks, threads=threads, vector=vector, steps=passes * steps,
            meetings=meetings,
        )  # fmt: skip
    warps = np.ceil(threads / target.warp)
    held = np.minimum(
        held_blocks(threads), np.maximum(1.0, np.ceil(blocks / target.multiprocessors))
    )
    flying = held * threads * vector * 4.0  # a vector of each thread
    speed = np.minimum(GLOBAL_BYTES, flying / LATENCY)
    meet = meetings * (_EXCHANGE + np.where(warps > 1, _MEETING + 8 * warps, 0.0))
    alone = LATENCY * (1 + 0.3 * (passes - 1)) + passes * steps * 24 + meet
    issued = held * warps * passes * steps * (10 + 4 * vector) / _ISSUE
    each = np.maximum(np.maximum(held * block_bytes / speed, issued), alone)
    start = _START * np.ceil(blocks / target.multiprocessors)
    return np.asarray(waves(target, blocks, threads) * each + start + LAUNCH, np.float64)


def _single(
    target: Target, *, blocks: Column | float, threads: Column, vector: Column, steps: Column,
    meetings: int,
) -> Column:  # fmt: skip
    """A processor that plays a GPU: threads are loops of it, barriers end them."""
    lanes = np.minimum(vector, float(target.lanes()))
    work = threads * steps * (2 + vector / lanes)
    tree = meetings * (2 * threads + 30 * np.log2(np.maximum(threads, 2.0)))
    return np.asarray(np.ceil(blocks / target.cores) * (work + tree + 200), np.float64)
