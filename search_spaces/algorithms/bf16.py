"""Direct code with operands rounded to bfloat16: an instruction sums two neighbouring products."""

from __future__ import annotations

from autotune.schedule.base import Schedule
from autotune.schedule.memory.cast import Cast
from autotune.schedule.memory.matrix_dot import MatrixDot
from autotune.schedule.memory.tile_dot import TileDot
from autotune.target import Target
from autotune.tasks.build import node_computes
from autotune.types import Task
from search_spaces.algorithms.base import ALGORITHMS
from search_spaces.algorithms.direct import Products
from search_spaces.cpu.contraction.shape import Contraction


class Bf16(Products):
    """Products of bfloat16 values, summed in float32."""

    name, code, rank, neighbours = "bf16", 1, 2, 2
    dtype = "bfloat16"
    error = 2.0**-7

    def label(self, schedule: Schedule) -> str:
        kinds = {type(step) for step in schedule}
        return self.name if Cast in kinds and kinds.isdisjoint((TileDot, MatrixDot)) else ""

    def applies(self, task: Task, c: Contraction, target: Target) -> bool:
        return rounds(task, c, target)


ALGORITHMS.add(Bf16.name, Bf16())


def rounds(task: Task, c: Contraction, target: Target) -> bool:
    """Whether operands may be rounded, and can be: data in a copy, which must be of an input that
    has zeros around it where these are read, and is not the weights too. Pairs need an even
    depth."""
    if c.item_bytes == 1 or target.precision != "bfloat16":
        return False
    data = task.value(c.data)
    read = (
        side
        for compute in node_computes(task, task.nodes[task.anchor])
        for name, pads in compute.pads
        if name == c.data
        for side in zip(pads, data.layout.halo, strict=True)
    )
    covered = all(b <= x and a <= y for (b, a), (x, y) in read)
    pairs = c.reduce[-1][1] % 2 == 0 and not c.one_per_group
    floats = task.value(c.weights).type.dtype != "int8" and c.data != c.weights
    return pairs and covered and floats and data.role == "input"
