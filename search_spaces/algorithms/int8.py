"""Direct code of bytes: an instruction sums four neighbouring products of uint8 and int8."""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.schedule.base import Schedule
from autotune.schedule.memory.cast import Cast, Dot
from autotune.schedule.memory.matrix_dot import MatrixDot
from autotune.schedule.memory.tile_dot import TileDot
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, Mask
from search_spaces.algorithms.direct import Products
from search_spaces.base import Column
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.cpu.contraction.small_cores import (
    held_in_registers,
    tile_cycles,
)
from search_spaces.space import Configs


class Int8(Products):
    """Exact sums of products of bytes, in int32."""

    name, code, rank, neighbours = "int8", 3, 1, 4
    is_plain = True
    error = 0.0

    def label(self, schedule: Schedule) -> str:
        kinds = {type(step) for step in schedule}
        others = {Cast, TileDot, MatrixDot} & kinds
        return self.name if Dot in kinds and not others else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:  # noqa: ARG002
        return c.item_bytes == 1

    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:
        ok = super().valid(c, target, configs)
        if target.is_compact:
            # A run of words is one loop there, however long.
            ok = ok & held_in_registers(configs, target) & (configs["unroll"] == 1)
        return np.asarray(ok)

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        if machine.target.is_compact:
            return tile_cycles(c, configs, machine.target)
        return super().cycles(task, c, machine, configs)


ALGORITHMS.add(Int8.name, Int8())
