"""Sums of bytes on cores that multiply halves of words (Arm's SMLAD), by tiles of up to four
points in a line and two channels.

Points are widened to halves of words once for all channels, into memory of their own; weights of
two channels lie in turn, so that a word of them, widened, meets two numbers of each point
(`autotune/codegen/c/widened_tile.py`). So eight sums, two pointers and what is loaded just fit the
registers, where a word for each channel leaves room for six sums.
"""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.schedule.base import Schedule
from autotune.schedule.memory.copies import PackConstant
from autotune.sizes import any_size
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, Mask
from search_spaces.algorithms.direct import Products
from search_spaces.base import Column
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.cpu.contraction.small_cores import (
    has_vectors,
    multiplies_pairs,
    widened_cycles,
)
from search_spaces.cpu.contraction.tiles import Packing, pack_plan
from search_spaces.params import Config
from search_spaces.space import Configs

CHANNELS, MOST_POINTS = 2, 4
"""A tile's."""
LARGEST_SHARE = 0.15
"""Share of a kernel's data and results that widened points are less than, chosen: they are
memory beside these, which has to be there in the fullest call only."""
FEW_BYTES = 256
"""Bytes that they may be anyway, chosen."""


class Int8Interleaved(Products):
    """Exact sums of products of bytes, in int32, of points that are widened first."""

    name, code, rank, neighbours = "int8_interleaved", 12, 7, 4
    is_plain = True
    in_registers = False
    error = 0.0
    turn = -1

    def label(self, schedule: Schedule) -> str:
        packs = [step for step in schedule if isinstance(step, PackConstant)]
        return self.name if any(_takes_turns(step) for step in packs) else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:  # noqa: ARG002
        whole = (c.channels[1], c.points[1], c.row_count, c.depth)
        known = c.item_bytes == 1 and c.constant and not any_size(whole)
        pairs = multiplies_pairs(target) and not has_vectors(target)
        return pairs and known and c.groups == 1 and c.channels[1] % CHANNELS == 0

    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:
        points = configs["tile_w"] * configs["tile_h"]
        in_line = (configs["tile_w"] == 1) | (configs["tile_h"] == 1)
        ok = super().valid(c, target, configs) & in_line & (points > 1) & (points <= MOST_POINTS)
        ok &= (configs["vectors"] == CHANNELS) & (configs["lanes"] == 1)
        ok &= (configs["unroll"] == 1) & (configs["order"] == "points_first")
        most = max(LARGEST_SHARE * _moved_bytes(c), FEW_BYTES)
        return np.asarray(ok & (2 * c.depth * points <= most))

    def packing(self, c: Contraction, config: Config) -> Packing:
        dims = tuple(range(c.weight_rank))
        return pack_plan(c, config, dims, self.neighbours, in_turn=True)

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:  # noqa: ARG002
        return widened_cycles(c, configs)


def _takes_turns(step: PackConstant) -> bool:
    """Whether words are packed whose four numbers are two by two."""
    factors = [factor for _, factor in step.splits]
    return factors[-2:] == [Int8Interleaved.neighbours, CHANNELS]


def _moved_bytes(c: Contraction) -> int:
    """Bytes of data and results, by what a convolution of such strides reads."""
    points = c.row_count * c.points[1]
    read = points * c.strides[0] * c.strides[1] * c.reduce[-1][1]
    return c.count * (read + points * c.channels[1])


ALGORITHMS.add(Int8Interleaved.name, Int8Interleaved())
