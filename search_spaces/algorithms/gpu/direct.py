"""Direct code on GPUs: every product, by threads' register tiles over shared memory.

Constants follow from shared memory's 32 banks of a word, or are assumed where they are times.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from autotune.machine import Machine
from autotune.schedule.base import Schedule
from autotune.schedule.gpu.shared import Shared
from autotune.schedule.memory.copies import PackConstant
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS, DIRECT, Mask
from search_spaces.algorithms.gpu.base import (
    MOST_COPIED,
    PADDED,
    GpuAlgorithm,
    padded_shared_bytes,
)
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, output_with_sums
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.gpu.blocks import bind_rest
from search_spaces.gpu.contraction.prior import BlockStep, tiled_cycles
from search_spaces.gpu.contraction.tiles import (
    Tile,
    data_vector,
    product_of,
    swapped,
    tile_product,
)
from search_spaces.params import Config
from search_spaces.space import Configs

VECTOR = 4
"""Words of shared memory that one read takes; rows of data lie a vector further apart than they
are long."""
READ_LINES = 8
"""Lines of a warp's threads that one read of a vector serves without conflicts."""
TURNED_TERMS = 8
"""Terms of a step whose elements, turned on the way, lie in different banks."""
LOOP_TERMS = 4
"""Terms of a sum for which a loop's counter and branch are counted once."""
UNROLLED_STEPS = 4.0
"""Steps of a sum in a row; more of them only crowd the registers."""
CROWDED_COST = 1.5
"""Times that loops of longer bodies take."""


class GpuTiles(GpuAlgorithm):
    """Multiplication by register tiles of float32."""

    def shared_bytes(self, configs: Configs) -> Column:
        rows, width = self.tile(configs)
        depth = np.asarray(configs["depth"], np.float64)
        gap = np.where(rows > VECTOR, VECTOR, 0)
        return padded_shared_bytes(configs, 4 * depth * (rows + gap + width))

    def valid(self, c: Contraction, configs: Configs) -> Mask:
        return np.asarray((configs["layout"] == PADDED) & (configs["depth"] <= MOST_COPIED))

    def cycles(self, task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
        p, blocks = self.products(task, c), self.blocks(configs)
        step = _step(machine, blocks.rows, configs)
        return tiled_cycles(p, c, machine, blocks, configs, step=step)


class GpuDirect(GpuTiles):
    """Products of float32 operands, or of what is widened to it."""

    name, rank, turn = "gpu_direct", 0, 1
    is_direct = True

    def label(self, schedule: Schedule) -> str:
        return DIRECT if any(isinstance(step, Shared) for step in schedule) else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        return True

    def write(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        task, tile = builder.task, Tile.of(config, target)
        p = product_of(task, c)
        output_with_sums(builder, c.tensor, c.channels[0])
        if c.constant and p.transposed:
            builder.apply(PackConstant(buffer=c.weights, splits=(), order=swapped(c.weight_rank)))
            p = dataclasses.replace(p, transposed=False)
        along = data_vector(task, c, p, tile.depth)
        band = config.number("band")
        tile_product(builder, c, p, tile, order=str(config["order"]), along=along, band=band)
        bind_rest(builder, target)


ALGORITHMS.add(GpuDirect.name, GpuDirect())


def _step(machine: Machine, rows: Column, configs: Configs) -> BlockStep:
    """Columns lie side by side, a word for each thread. Rows are the same for threads in a line: a
    vector of them is one read, of as many banks as there are lines in a warp."""
    m, n, tn, depth, unroll = (
        np.asarray(configs[k], np.float64)
        for k in ("tile_m", "tile_n", "threads_n", "depth", "unroll")
    )
    warp = machine.target.warp
    lines = np.ceil(warp / np.minimum(tn, warp))
    conflicts = np.maximum(1.0, lines / READ_LINES)
    crowded = np.where(unroll > UNROLLED_STEPS, CROWDED_COST, 1.0)
    return BlockStep(
        multiply_adds_per_cycle=machine.gpu.multiply_adds_per_cycle,
        words=np.where(m % VECTOR == 0, m / VECTOR * conflicts, m) + n,
        turned=np.where(rows <= VECTOR, 1.0, np.maximum(1.0, depth / TURNED_TERMS)),
        loops=depth / LOOP_TERMS / np.minimum(unroll, UNROLLED_STEPS) * crowded,
    )
