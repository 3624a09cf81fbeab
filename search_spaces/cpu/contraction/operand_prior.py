"""The cost of weights that are activations: copied into panels, or read where they lie.

In: a contraction, the machine and configs. Out: cycles, per config. Fitted to products whose right
operand comes from the L3 cache (6 MB) and from memory (16 MB), Zen 4.
"""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import beyond_l2, beyond_l3, conflict_free_points, stream_cycles
from autotune.types import Task
from search_spaces.base import Column
from search_spaces.cpu.contraction.rates import ideal_cycles
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.cpu.contraction.tiles import plain
from search_spaces.space import Configs

COPY_CYCLES = 8.0
"""Cycles per vector of weights that a kernel packs by itself."""
L1_CONFLICT_COST = 0.01
"""Share that rows of weights which evict each other from the L1 cache add."""
UNFORESEEN_LINES = 12
"""Lines of a stream from beyond the L2 cache in the time until a row's part of a panel begins to
come, where every row begins elsewhere (fitted: products of 128 x 64 and 256 x 1024, Zen 4)."""
FORESEEN_PART = 0.25
"""Share of that time which is left where the next parts of rows in memory are asked for next, once
(fitted: products of 8 to 28 points with 16 MB, Zen 4)."""
FAR_COPY_STREAMS = 3
"""Streams of weights from memory that copying them adds to the one that reads them: lines of the
copy come, go, and come again."""


def operand_cycles(task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Cycles for weights that are activations: copying them, or reading rows that lie apart."""
    if not c.plain:
        return np.zeros(len(configs["vectors"]))
    target = machine.target
    far = beyond_l3(machine, c.weight_bytes)
    copied = np.full(1, task.value(c.weights).type.size / target.lanes() * COPY_CYCLES)
    if far:
        copied += FAR_COPY_STREAMS * stream_cycles(machine, c.weight_bytes, np.ones(1))
    apart = c.depth > conflict_free_points(machine, c.weight_step)
    conflicts = ideal_cycles(c, target) * (L1_CONFLICT_COST if apart else 0.0)
    waits = _waits(c, machine, configs)
    return np.where(plain(c, configs), conflicts / target.threads + waits, copied / target.threads)


def _waits(c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Cycles of waiting for rows' parts. Where panels are outside, a row's part is used up before
    the next part is asked for. Inside, the next part is: in time from a cache, not from memory."""
    passes, far = passes_of(c, machine, configs), beyond_l3(machine, c.weight_bytes)
    inside = np.where(passes > 1, passes, FORESEEN_PART) if far else 0.0
    times = np.where(configs["order"] == "points_first", inside, 1.0)
    return np.asarray(times * _unforeseen(c, machine, configs))


def _unforeseen(c: Contraction, machine: Machine, configs: Configs) -> Column | float:
    """Cycles until the rows' parts in all panels of weights have begun to come."""
    if not beyond_l2(machine, c.weight_bytes):
        return 0.0
    panels = np.ceil(c.channels[1] / (configs["vectors"] * configs["lanes"]))
    nbytes = UNFORESEEN_LINES * machine.cpu.line_bytes * (panels * c.depth * c.groups)
    return np.asarray(nbytes / machine.first_stream_bytes_per_cycle(c.weight_bytes))


def passes_of(c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Times that all weights are gone through: once where channels are outside and a panel stays,
    else for every row of tiles, or for every tile."""
    rows, tiles = tiles_of(c, configs)
    by_row = rows if c.rows else tiles
    panel = configs["vectors"] * configs["lanes"] * (c.depth * c.item_bytes)
    stays = panel <= machine.cpu.own_share_of_l2 * machine.l2_bytes
    order = configs["order"]
    passes = np.where(order == "points_first", tiles, np.where(order == "rows_first", by_row, 1.0))
    return np.where((order == "channels_first") & ~stays, tiles, passes)


def tiles_of(c: Contraction, configs: Configs) -> tuple[Column, Column]:
    """Rows of tiles of points, and tiles."""
    rows = np.ceil(c.row_count / configs["tile_h"]) * c.count
    return rows, rows * np.ceil(c.points[1] / configs["tile_w"])
