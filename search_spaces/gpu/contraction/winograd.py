"""Winograd's algorithm on GPUs: three launches, a transform, a product per point, the way back.

In: a convolution and a tile of the products. Out: steps; sizes and cycles for the prior. Tiles of
all images are the rows of the products; a thread transforms one channel of one tile.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from autotune.machine import Machine
from autotune.schedule.algorithms.winograd import Winograd
from autotune.schedule.loops.compute import ComputeAt
from autotune.target import Target
from autotune.types import Task
from search_spaces.algorithms.winograd import FORMS as SIDES
from search_spaces.algorithms.winograd import Tiles, can_filter
from search_spaces.base import Column
from search_spaces.builder import ScheduleBuilder, inline_locals, output_name
from search_spaces.cpu.contraction.shape import Contraction, contraction_of
from search_spaces.gpu.blocks import bind_rest
from search_spaces.gpu.contraction.tiles import Product, Tile, product_of, tile_product, vector_of
from search_spaces.params import Config
from search_spaces.space import Columns

FORMS = ("winograd2", "winograd4")
_POINTS = 36
"""Of a tile, which a thread holds in registers."""
EMULATED_BYTES = 4.0
"""Bytes per cycle of a core that plays a multiprocessor."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The products of many configs, which algorithms have different ones of."""

    count: Column
    rows: Column
    columns: Column
    depth: Column
    item_bytes: int
    """Of an element in global memory."""
    packed: bool
    """Whether the columns' operand lies there as the algorithm wants it."""


def winograd_algorithms(task: Task, target: Target) -> tuple[str, ...]:
    """Those that can compute a task, and may."""
    c = contraction_of(task)
    if target.accuracy != "normal" or c.groups > 1:
        return ()
    return tuple(f for f in FORMS if can_filter(task, c, f) and tiles_of(c, f).points <= _POINTS)


def tiles_of(c: Contraction, form: str) -> Tiles:
    return Tiles.of(c, SIDES[form])


def _product(c: Contraction, form: str) -> Product:
    """A product for each point of a tile: tiles by the channels that are summed up."""
    tiles, depth = tiles_of(c, form), c.reduce[-1][1]
    return Product(
        count=tiles.points, rows=tiles.count, columns=c.channels[1], depth=depth, run=depth,
        flat=False, transposed=False,
    )  # fmt: skip


def sizes_of(task: Task, columns: Columns) -> Sizes:
    """The products of each config."""
    c = contraction_of(task)
    p, algorithm = product_of(task, c), columns["algorithm"]
    out = {name: np.full(len(algorithm), float(getattr(p, name))) for name in _FIELDS}
    for form in FORMS:
        if can_filter(task, c, form):
            chosen = np.asarray(algorithm == form)
            for field in _FIELDS:
                out[field][chosen] = getattr(_product(c, form), field)
    return Sizes(**out, item_bytes=c.item_bytes, packed=c.constant)


_FIELDS = ("count", "rows", "columns", "depth")


def transform_cycles(task: Task, machine: Machine, columns: Columns) -> Column:
    """Cycles of the transforms: what they read and write, from the second-level cache."""
    c, algorithm = contraction_of(task), columns["algorithm"]
    out, target = np.zeros(len(algorithm)), machine.target
    speed = machine.gpu.l2_bytes_per_cycle * target.multiprocessors
    if target.warp == 1:
        speed = EMULATED_BYTES * target.cores
    points = c.count * c.row_count * c.points[1]
    for form in FORMS:
        if not can_filter(task, c, form):
            continue
        p = _product(c, form)
        moved = 4.0 * (p.count * p.rows * (2 * p.depth + 2 * p.columns))
        moved += 4.0 * points * (c.strides[0] * c.strides[1] * p.depth + p.columns)
        out[np.asarray(algorithm == form)] = moved / speed + 2 * machine.gpu.launch_cycles
    return out


def schedule_winograd(builder: ScheduleBuilder, c: Contraction, config: Config, t: Target) -> None:
    """The whole schedule of a convolution."""
    tile, output = Tile.of(config, t), output_name(builder.task)
    inline_locals(builder, keep=frozenset((output, c.tensor)))
    if output != c.tensor:
        builder.apply(ComputeAt(buffer=output, at=c.channels[0]))
    form = str(config["algorithm"])
    tiles = tiles_of(c, form)
    builder.apply(
        Winograd(buffer=c.tensor, tile_h=tiles.height, tile_w=tiles.width, block_h=tiles.rows,
        block_w=tiles.columns, lanes=1, together=1,
    ))  # fmt: skip
    p = _product(c, form)
    extents = {"wino_i": builder.extent("wino_i"), "wino_j": builder.extent("wino_j")}
    products = dataclasses.replace(
        c, tensor=f"{c.tensor}.m", batch=tuple(extents.items()), rows=None,
        points=("wino_t", p.rows), reduce=(c.reduce[-1],), data=f"{c.tensor}.v",
    )  # fmt: skip
    along = vector_of(p.run, tile.depth)
    tile_product(builder, products, p, tile, order=str(config["order"]), along=along)
    bind_rest(builder, t)
