"""Products of small matrices in vectors (Arm's bfmmla, smmla, usmmla): tiles, schedule.

One instruction adds the product of two points by a run of neighbours, and of that run by two
channels, to 2 x 2 sums in one register: twice what a dot product of the same operands does. A
register tile is as direct code's; its sums go to memory that stays in the L1 cache before the
epilogue uses them. Data are read where they lie, weights as they are packed.
"""

from __future__ import annotations

import numpy as np

from autotune.schedule.base import Schedule
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.memory.cast import Dot
from autotune.schedule.memory.matrix_dot import SIDE, MatrixDot
from autotune.target import Target
from search_spaces.algorithms.base import Mask
from search_spaces.algorithms.direct import Products
from search_spaces.builder import ScheduleBuilder
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.params import Config
from search_spaces.space import Configs

LANES = 4
"""32-bit sums of a register."""


class Matrix(Products):
    """Products of small matrices, of operands that fields name."""

    feature: str
    """LLVM's name for the instructions."""

    def label(self, schedule: Schedule) -> str:
        return self.name if self.is_written(schedule, MatrixDot) else ""

    def exists(self, c: Contraction, target: Target) -> bool:
        """Whether the target has the instructions, and the task has two points and whole runs."""
        has = self.feature in target.features.split(",") and not target.has_tiles
        whole = c.reduce[-1][1] % self.neighbours == 0 and not c.one_per_group
        wide = target.lanes() == LANES or target.sve_granules > 0
        return has and whole and wide and c.points[1] >= SIDE

    def may_prefetch(self, c: Contraction) -> bool:  # noqa: ARG002
        return False

    def valid(self, c: Contraction, target: Target, configs: Configs) -> Mask:
        """Whole pairs of points, and registers for operands beside the sums."""
        strips = np.ceil(configs["tile_w"] / SIDE) * configs["tile_h"]
        couples = configs["vectors"] * (LANES / SIDE)
        ok = super().valid(c, target, configs) & (configs["unroll"] == 1)
        ok &= (configs["lanes"] == LANES) & (configs["tile_w"] % SIDE == 0)
        return np.asarray(ok & (strips * couples + strips + couples <= target.vector_registers))

    def split_product(
        self,
        builder: ScheduleBuilder,
        c: Contraction,
        config: Config,  # noqa: ARG002
        tile: tuple[str, ...],
    ) -> tuple[str, ...]:
        builder.split("point", SIDE, "strip", "at")
        builder.split("lane", SIDE, "couple", "member")
        builder.split(c.reduce[-1][0], self.neighbours, "pairs", "pair")
        builder.split("pairs", 1, "run", "group")
        parts = {"point": ("strip", "at"), "lane": ("couple", "member")}
        return tuple(n for name in tile for n in parts.get(name, (name,)))

    def annotate(
        self,
        builder: ScheduleBuilder,
        c: Contraction,  # noqa: ARG002
        config: Config,  # noqa: ARG002
        tile: tuple[str, ...],
    ) -> None:
        rows = tile[: tile.index("strip")]
        outside = (*rows, "strip", "vector", "couple")
        builder.apply(Reorder(loops=(*outside, "at", "member", "group", "pair")))
        flat = [*outside, *(f"{n}_out" for n in (*rows, "strip", "at", "vector"))]
        for end in ("_init", "_out"):
            if builder.present([f"couple{end}"]):
                builder.fuse([f"couple{end}", f"member{end}"], f"lane{end}")
        builder.apply(Unroll(loops=builder.present(flat)))
        builder.apply(Vectorize(loops=builder.present(["lane_init", "lane_out"])))
        builder.apply(Dot(loop="pair"))
        builder.apply(MatrixDot(loops=("at", "member", "group")))
