"""The cost of reading operands beside products of tiles, by the order of loops and the tile.

In: a contraction, the machine and configs. Out: shares of the multiply-adds' cycles, per config.
Fitted as in `search_spaces.cpu.contraction.rates`.
"""

from __future__ import annotations

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import beyond_l2
from autotune.types import Task
from search_spaces.base import Column
from search_spaces.cpu.contraction.rates import DATA_COST, NEAR_DATA, RAGGED_COST
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.space import Configs

ORDER_COSTS = {
    "channels_first": (0.0, 0.01), "rows_first": (0.005, 0.01), "points_first": (0.005, 0.02),
}  # fmt: skip
"""Order of loops -> share that it adds where the operand that is read again stays in the L2 cache,
and where it does not."""
FLAT_ROWS_COST = 0.03
"""The latter of `rows_first`, of contractions that have no rows."""
WEIGHT_COST = 0.08
"""Share that weights add which only one point uses."""
FAR_WEIGHTS = 3
"""Times more where what is used again does not stay in the L2 cache."""
WEIGHTS_IN_L2 = 0.75
"""Share of the L2 cache that weights may take which are used again."""
WEIGHT_POINTS = 6
"""Points that share weights and have nothing left of that cost."""
TILE_ROW_COST = 0.002
"""Share that each further row of a tile adds: rows are more places than points side by side."""
SPARSE_COST = 0.03
"""Share that data of which a strided kernel skips points add, where they are read in turns with
others: what a prefetcher brings is not what is needed."""


def order_cost(task: Task, machine: Machine, c: Contraction, configs: Configs) -> Column:
    """Inner operands that leave the L2 cache on every pass are slow."""
    weights, data = (task.value(v).type.nbytes for v in (c.weights, c.data))
    l2_bytes = machine.l2_bytes
    stays = {
        "channels_first": data < l2_bytes // 2,
        "rows_first": data // c.row_count + weights < l2_bytes,
        "points_first": weights < l2_bytes // 2,
    }
    costs = {order: ORDER_COSTS[order][not inside] for order, inside in stays.items()}
    if not stays["rows_first"] and not c.rows:
        costs["rows_first"] = FLAT_ROWS_COST
    return np.asarray([costs[str(o)] for o in configs["order"]], np.float64)


def data_cost(
    task: Task, machine: Machine, c: Contraction, configs: Configs, points: Column
) -> Column:
    """Share that reading adds. Data are read at as many places as a tile has points, again for
    every block of channels; those of a tile that stay in the L1 cache meanwhile are not."""
    far = beyond_l2(machine, task.value(c.data).type.nbytes)
    inside = configs["order"] == "points_first"
    stay = inside & (points * c.depth * c.item_bytes < machine.l1_bytes / 2)
    data = DATA_COST / configs["vectors"] * (1.0 if far else NEAR_DATA) * _touched(c, configs)
    cost = np.where(stay, NEAR_DATA, 1.0) * data + _weight_cost(machine, c, configs, points)
    sparse = far and c.rows is not None and c.strides[1] > c.reduce[1][1]
    cost = cost + np.where(inside, 0.0, SPARSE_COST if sparse else 0.0)
    for extent, size in ((c.points[1], configs["tile_w"]), (c.row_count, configs["tile_h"])):
        cost = cost + RAGGED_COST * (-extent % size) / extent
    return np.asarray(cost + TILE_ROW_COST * (configs["tile_h"] - 1))


def _weight_cost(machine: Machine, c: Contraction, configs: Configs, points: Column) -> Column:
    """Share that weights add which few points of a tile use."""
    panel = configs["vectors"] * configs["lanes"] * (c.depth * c.item_bytes)
    again = np.where(configs["order"] == "points_first", c.weight_bytes, panel)
    alone = 1 / points - 1 / WEIGHT_POINTS
    leaves = again > WEIGHTS_IN_L2 * machine.l2_bytes
    return WEIGHT_COST * np.where(leaves, FAR_WEIGHTS * alone, np.maximum(alone, 0))


def _touched(c: Contraction, configs: Configs) -> Column:
    """Points of the data that a tile reads, over those if a kernel had one row and column."""
    out = np.ones(len(configs["vectors"]))
    if not c.rows:
        return out
    for name, (_, kernel), stride in zip(("tile_h", "tile_w"), c.reduce, c.strides, strict=False):
        size = configs[name]
        out = out * np.minimum((size - 1) * stride + kernel, size * kernel) / size
    return np.asarray(out / c.reduce[0][1])
