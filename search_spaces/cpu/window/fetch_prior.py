"""Vectors that a window's config fetches from the outer cache.

In: a task, what a window reads, the machine and configs. Out: vectors of data per
vector of results. Fitted as in `search_spaces.cpu.window.prior`.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import conflict_free_points, evicted_share
from autotune.types import Task
from search_spaces.base import Access, Column
from search_spaces.cpu.window.reach import Spans, both_ways, rolled, steps
from search_spaces.space import Configs

FREE_STREAMS = 16
"""Lines of a tile that a prefetcher follows."""
STREAM_COST = 0.02
"""Vectors fetched more for each other line."""
KEPT_L1_SHARE = 1.2
"""Share of the L1 cache that rows may take which the next tiles read again."""
COLUMN_L1_SHARE = 0.48
"""Share of the L1 cache that a column may take whose lines the next block of channels reads."""
ROWS_IN_FLIGHT = 4
"""Rows of a column that are on their way at a time."""
FAR_COST = 1.8
"""Vectors fetched for one of a column, which jumps, if they come from further than the next cache,
or evict each other; the same along rows."""
SPLIT_LINE_COST = 1.6
"""Vectors fetched for one of a column where points begin amid lines: some of these leave before
the next block of channels reads their other halves."""
PREFETCHED = 0.5
"""Vectors that come in time where a row's points are read in order, as a prefetcher follows."""
PAIRED_LINE_COST = 0.5
"""Vectors that come for nothing beside one of a column that is alone in its block of channels,
where blocks are outermost: lines come in pairs."""
ROW_START_COST = 0.4
"""Vectors fetched more as rows begin, where blocks of channels are outermost."""
SHORT_BLOCK_COST = 1.3
"""Vectors fetched more for each vector that a block of channels is short of."""


def fetched_vectors(
    task: Task,
    access: Access,
    machine: Machine,
    configs: Configs,
    spans: Spans,
) -> Column:
    """Vectors of data per vector of results that come from the outer cache: rows that neighbouring
    tiles share twice, unless all points of a block of channels stay from one row to the next."""
    tile, ((across, wide, over), (down, high, deep)) = spans[0], both_ways(access, spans)
    target = machine.target
    first = configs["order"] == "channels_first"
    width = access.shape[-2] if len(access.shape) > 1 else 1
    item = access.item_bytes
    reused = (high + down) * width * item * target.lanes() * tile["channel"]
    # Points a power of two apart share few sets of the cache.
    row, step = steps(task, access)
    kept = high * np.where(first, width, wide) <= conflict_free_points(machine, step)
    stays = first & kept & (reused <= KEPT_L1_SHARE * machine.l1_bytes)
    # Blocks of channels inside: whole points of a tile's rows come before the next tile; rows
    # about a multiple of the page size apart share the sets.
    lost = np.where(first, 0.0, evicted_share(machine, row * item, high, (wide - 1) * step * item))
    lost = np.where(kept, lost, 1.0)
    often = (1 - lost) * np.maximum(down, deep) * across + lost * over * deep
    # Blocks of channels inside: a tile's lines lie apart, and no prefetcher follows so many. Where
    # none lies between a row's points, and the next cache holds all, the row is followed as one.
    between = item * (step - tile["channel"] * target.lanes())
    near = task.value(access.buffer).type.nbytes <= machine.l2_bytes
    streams = high * np.where((between < machine.cpu.line_bytes) & near, 1.0, wide)
    jumps = STREAM_COST * np.maximum(streams - FREE_STREAMS, 0)
    turns = np.where(stays, 0.0, np.where(first, ROW_START_COST, jumps))
    fetched = np.where(stays, down * across, often) + turns * across
    # A block that begins amid a line touches one more, whose other half another block reads.
    split = 1 - math.gcd(step, target.lanes()) / target.lanes()
    apart = SHORT_BLOCK_COST / tile["channel"] + fetched * split / tile["channel"]
    fetched = fetched + np.where(first, apart, 0.0)
    again = _fetched_rolled(task, access, machine, configs, spans)
    return np.asarray(np.where(rolled(configs), again, fetched))


def _fetched_rolled(
    task: Task,
    access: Access,
    machine: Machine,
    configs: Configs,
    spans: Spans,
) -> Column:
    """The same where sums roll down columns, or along rows."""
    tile, ((across, wide, over), (down, high, deep)) = spans[0], both_ways(access, spans)
    target = machine.target
    value, first = task.value(access.buffer), configs["order"] == "channels_first"
    row, step = steps(task, access)
    far, amid = value.type.nbytes > machine.l2_bytes, step % target.lanes() != 0
    touched = tile["channel"] + (0.5 if amid else 0.0)
    item, vector = access.item_bytes, access.item_bytes * target.lanes()
    again = first | (high * wide * touched * vector > COLUMN_L1_SHARE * machine.l1_bytes)
    part = np.maximum(
        np.where(again, touched / tile["channel"], 1.0), SPLIT_LINE_COST if amid else 1.0
    )
    crowded = far | (ROWS_IN_FLIGHT * wide > conflict_free_points(machine, step))
    # What the next column of points reads again comes again where rows share the sets, and so does
    # the other line of a pair. Blocks of channels inside: whole points come before that.
    whole = evicted_share(machine, row * item, high, (wide - 1) * step * item)
    lost = evicted_share(
        machine, row * item, high, vector * tile["channel"], apart=step * item, points=wide
    )
    alone = tile["channel"] % 2 / tile["channel"]
    anew = np.where(first, lost, whole) * (over - across) * (1 + (0.0 if amid else alone))
    column = down * (across * (1 + PAIRED_LINE_COST * alone * first) + anew) * part
    column = column * np.where(crowded, FAR_COST, 1.0)
    if "along" not in configs:
        return np.asarray(column)
    crowded = amid | (high > conflict_free_points(machine, row))
    turns = np.where(first, 0.0, ROW_START_COST if far else 0.0)
    ordered = (over * deep - PREFETCHED + turns) * part * np.where(crowded, FAR_COST, 1.0)
    return np.asarray(np.where(configs["along"] == 1, ordered, column))
