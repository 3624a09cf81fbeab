"""What costs of contractions are made of: speeds of memory, tails, threads that wait.

In: a contraction, the target and columns of configs. Out: bytes and cycles, or shares of them.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from autotune.target import Target
from search_spaces.base import Column
from search_spaces.rules._contraction import Contraction
from search_spaces.space import Columns

L2_BYTES_PER_CYCLE = 24.0
L3_BYTES_PER_CYCLE = 10.0
MEMORY_BYTES_PER_CYCLE = 9.0
"""Of all cores together; the caches' are of each."""
_OTHERS_BYTES_PER_CYCLE = 6.0
"""From the cache of another core, which may be on another die."""
_WRITTEN_BYTES_PER_CYCLE = 1.0
"""The same of what that core has just written, and may be on its way to writing."""
_AGAIN = 1.5
"""Times that weights come from memory which all cores need, each at its own pace."""


def conflict_free(step: int) -> float:
    """Points side by side whose data do not evict each other from an 8-way L1 cache: addresses a
    multiple of the page size apart all fall into one set."""
    return 8.0 * 4096 / math.gcd(max(1, step) * 4, 4096)


def evicted(
    step: int,
    rows: Column | float,
    span: Column | float,
    apart: int = 0,
    points: Column | float = 1,
) -> Column:
    """Share of data that evict each other from such a cache: of so many rows that begin `step`
    bytes apart, of so many points of each that begin `apart` bytes apart, `span` bytes."""
    given = np.broadcast_arrays(np.atleast_1d(rows), points, span)  # may be the same for all
    kinds, places = np.unique(np.stack(given), axis=1, return_inverse=True)
    shares = [
        _evicted((step, int(high)), (apart, int(wide)), math.ceil(size))
        for high, wide, size in kinds.T
    ]
    return np.asarray(shares, np.float64)[places.reshape(-1)]


@functools.cache
def _evicted(rows: tuple[int, int], points: tuple[int, int], span: int) -> float:
    (step, high), (apart, wide) = rows, points
    begins = np.add.outer(np.arange(high) * step, np.arange(wide) * apart).reshape(-1, 1)
    ends = begins + max(1, span) - 1
    lines = begins // 64 + np.arange(max(1, span) // 64 + 2)
    touched = np.zeros((lines.max() // 64 + 1) * 64, np.bool_)
    touched[lines[lines <= ends // 64]] = True
    held = touched.reshape(-1, 64).sum(axis=0)
    return float(held[held > 8].sum() / held.sum())


def imbalance(chunks: Column, target: Target) -> Column:
    """Time of the busiest thread over the time of a single one."""
    return np.asarray(np.ceil(chunks / target.threads) / np.maximum(chunks, 1), np.float64)


def channel_waste(c: Contraction, columns: Columns) -> Column:
    """Lanes that vectors of channels have, over the channels that there are."""
    lanes = columns["lanes"].astype(np.float64)
    return np.asarray(np.ceil(c.channels[1] / lanes) * lanes / c.channels[1], np.float64)


def tail_waste(extent: Column | int, size: Column) -> Column:
    """A short tail has too few accumulators to hide the latency."""
    tail = extent % size
    lost = np.where((tail > 0) & (tail < size / 2), size / 2 - tail, 0)
    return np.asarray(1 + lost / extent, np.float64)


def padded(c: Contraction, columns: Columns) -> Column:
    """Channels that packed weights have, whole blocks of them, over those that there are."""
    block = columns["lanes"] * columns["vectors"]
    return np.asarray(np.ceil(c.channels[1] / block) * block / c.channels[1], np.float64)


def stream_cycles(weights: float, passes: Column, target: Target) -> Column:
    """Cycles of all cores while weights come in: from memory first, in a model, then from the
    cache that they fit into. Those of a single pass are shared among the cores."""
    alone = target.threads == 1
    first = weights / MEMORY_BYTES_PER_CYCLE * np.where((passes == 1) | alone, 1.0, _AGAIN)
    again = np.ceil(passes / target.threads) - 1
    return np.asarray(target.threads * (first + again * weights / _speed(weights, target)))


def _speed(nbytes: float, target: Target) -> float:
    """Bytes a cycle that weights of this size come in at, over and over."""
    if nbytes <= target.l2_bytes / 2:
        return L2_BYTES_PER_CYCLE
    if nbytes <= target.l3_bytes * 0.75:
        return L3_BYTES_PER_CYCLE
    return MEMORY_BYTES_PER_CYCLE / target.threads


def from_others(nbytes: Column | float, target: Target) -> Column | float:
    """Cycles of each core for its share of so many bytes, if others hold theirs of them."""
    return nbytes * (1 - 1 / target.threads) / _OTHERS_BYTES_PER_CYCLE


def from_writers(nbytes: Column | float, target: Target) -> Column | float:
    """Cycles of each core for its share of so many bytes, if others have just written theirs."""
    return nbytes * (1 - 1 / target.threads) / _WRITTEN_BYTES_PER_CYCLE
