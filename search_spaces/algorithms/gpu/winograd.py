"""Winograd's algorithm on GPUs: three launches, a transform, a product per point, the way back.

Tiles of all images are the rows of the products; a thread transforms one channel of one tile.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from autotune.machine import Machine
from autotune.machine.gpu import EMULATED_BYTES
from autotune.schedule.algorithms.winograd import Winograd
from autotune.schedule.base import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, Mask
from search_spaces.algorithms.filtering_tiles import Tiles
from search_spaces.algorithms.gpu.direct import GpuTiles
from search_spaces.algorithms.winograd import FORMS, can_filter, filtering_flops, form_of
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, output_with_sums
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.gpu.blocks import bind_rest
from search_spaces.gpu.contraction.tiles import Product, Tile, tile_product, vector_of
from search_spaces.params import Config
from search_spaces.space import Configs

MOST_POINTS = 36
"""Points of a tile that a thread holds in registers, at most (of F(4x4, 3x3): 6 by 6)."""


class GpuFiltering(GpuTiles):
    """One form: tiles of so many points on a side."""

    reference = "Winograd 1980; Lavin & Gray, Fast Algorithms for Convolutional Networks, 2016"
    error = 1e-3
    layout_share = 0.6

    def __init__(self, form: str, rank: int) -> None:
        self.name, self.rank = f"gpu_{form}", rank
        self.sides = FORMS[form]
        self.side = float(self.sides[0])

    def label(self, schedule: Schedule) -> str:
        step = next((step for step in schedule if isinstance(step, Winograd)), None)
        own = step is not None and step.together == 1 and form_of(step) == self.choice
        return self.choice if own else ""

    def flops(self, task: Task, schedule: Schedule) -> int:
        return filtering_flops(task, schedule)

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        if target.accuracy != "normal" or c.groups > 1 or not can_filter(task, c, self.choice):
            return False
        return Tiles.of(c, self.sides).points <= MOST_POINTS

    def products(self, task: Task, c: Contraction) -> Product:
        """A product for each point of a tile: tiles by the channels that are summed up."""
        tiles, depth = Tiles.of(c, self.sides), c.reduce[-1][1]
        return Product(
            count=tiles.points, rows=tiles.count, columns=c.channels[1], depth=depth, run=depth,
            flat=False, transposed=False,
        )  # fmt: skip

    def valid(self, c: Contraction, configs: Configs) -> Mask:
        plain = (configs["split"] == 1) & (configs["band"] == 1)
        return np.asarray(super().valid(c, configs) & plain)

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        products = super().cycles(task, c, machine, configs)
        return np.asarray(products + self._transform_cycles(task, c, machine))

    def _transform_cycles(self, task: Task, c: Contraction, machine: Machine) -> float:
        """Cycles of both transforms: what they read and write, from the second-level cache."""
        p, target = self.products(task, c), machine.target
        speed = machine.gpu.l2_bytes_per_cycle * target.multiprocessors
        if target.warp == 1:
            speed = EMULATED_BYTES * target.cores
        points = c.count * c.row_count * c.points[1]
        moved = 4.0 * (p.count * p.rows * (2 * p.depth + 2 * p.columns))
        moved += 4.0 * points * (c.strides[0] * c.strides[1] * p.depth + p.columns)
        return moved / speed + 2 * machine.gpu.launch_cycles

    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        tile = Tile.of(config, target)
        output_with_sums(builder, c.tensor, c.channels[0])
        tiles, p = Tiles.of(c, self.sides), self.products(builder.task, c)
        builder.apply(
            Winograd(buffer=c.tensor, tile_h=tiles.height, tile_w=tiles.width,
            block_h=tiles.rows, block_w=tiles.columns, lanes=1, together=1,
        ))  # fmt: skip
        extents = {"wino_i": builder.extent("wino_i"), "wino_j": builder.extent("wino_j")}
        products = dataclasses.replace(
            c, tensor=f"{c.tensor}.m", batch=tuple(extents.items()), rows=None,
            points=("wino_t", p.rows), reduce=(c.reduce[-1],), data=f"{c.tensor}.v",
        )  # fmt: skip
        along = vector_of(p.run, tile.depth)
        tile_product(builder, products, p, tile, order=str(config["order"]), along=along)
        bind_rest(builder, target)


for _rank, _form in enumerate(("winograd2", "winograd4"), 10):
    ALGORITHMS.add(f"gpu_{_form}", GpuFiltering(_form, _rank))
