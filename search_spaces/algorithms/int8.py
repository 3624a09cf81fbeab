"""Direct code of bytes: an instruction sums four neighbouring products of uint8 and int8."""

from __future__ import annotations

from autotune.schedule.base import Schedule
from autotune.schedule.memory.cast import Cast, Dot
from autotune.schedule.memory.matrix_dot import MatrixDot
from autotune.schedule.memory.tile_dot import TileDot
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.algorithms.direct import Products
from search_spaces.cpu.contraction.shape import Contraction


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


ALGORITHMS.add(Int8.name, Int8())
