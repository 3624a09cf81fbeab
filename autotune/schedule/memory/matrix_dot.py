"""Step that makes instructions for small matrices in vectors compute a product: matrix_dot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.program.ir import Program
from autotune.schedule.base import register
from autotune.schedule.memory.tile_dot import tiled

SIDE = 2
"""Rows and columns of the sums that one instruction adds to."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixDot:
    """Mark a nest of two rows, two lanes, one group of neighbours and neighbours as one product.

    alloc t register: for r in 2: for l in 2: for g in 1: for p in 8 dot:
        t[r, l] += x[r, g, p] * w[g, l, p]
    ->  the same, t in memory of the call and r a `tile` loop

    `loops`: (rows, lanes, groups). While the sums grow they are in vector registers, each of which
    has both rows; memory has them before and after.
    """

    step: ClassVar[str] = "matrix_dot"
    loops: tuple[str, ...]

    def apply(self, program: Program) -> Program:
        return tiled(program, self.loops, (SIDE, SIDE, 1))
