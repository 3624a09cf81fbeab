"""Cycles of depthwise convolutions of bytes on cores that multiply halves of words (Arm's SMLAD),
or vectors of them (RISC-V's), no caches.

In: a window and configs. Out: cycles, as `column_tile.py` and `riscv_window.py` of
`autotune/codegen/c` write points of a row, and as compilers write other tiles. Counts of
instructions are specified (Arm's table of the Cortex-M4) or counted; what stands around them was
read off compiled kernels.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from autotune.target import Target
from autotune.types import Task
from search_spaces.base import Column
from search_spaces.cpu.contraction.small_cores import adds_runs, has_riscv_vectors
from search_spaces.cpu.window.reach import rolled
from search_spaces.cpu.window.shape import WindowShape, accesses, reduction_of
from search_spaces.space import Configs

MOST_TAPS, MOST_POINTS = 3, 5
"""What registers of vectors hold: taps of a row of a window, points of a tile (specified)."""
BYTES_CYCLES, PRODUCT_CYCLES, ROW_CYCLES = 8.0, 8.0, 6.0
"""To load and widen a vector, to multiply it; the loop over rows."""
VECTOR_CHANNELS = 16
"""Channels that a vector of 128 bits has sums of."""
GROUP_CYCLES, VECTOR_SUM_CYCLES = 40.0, 18.0
"""To begin sums of vectors of channels and to end them; to clear one and to store it."""
REGISTERS = 14
"""Such a core has so many, but for the stack's and the program's own (specified)."""
OTHER_REGISTERS = 4
"""What no sum or weight has: a pointer, a column's bytes."""
PLAIN_PRODUCT_CYCLES, PLAIN_TAP_CYCLES = 3.0, 3.0
"""Cycles of a product by C, and of loading its weight."""
TILE_CYCLES, SUM_CYCLES, CHANNEL_CYCLES = 30.0, 11.0, 6.0
"""The loops around a tile; to begin, scale and store a sum; to load what a channel's are scaled
by."""
RAGGED_COST = 1.2
"""Times that tiles are counted which leave a rest: its code is a second tile's, chosen."""
OTHER_ORDER_COST = 1.001
"""Times that the other order takes, where nothing tells them apart."""


def is_byte_window(task: Task, target: Target) -> bool:
    """Whether it is such a convolution on such a core."""
    compute = reduction_of(task)
    inputs = {task.value(v).type.dtype for v in task.nodes[task.anchor].inputs}
    sums = compute is not None and compute.dtype == "int32" and compute.combine == "sum"
    return (
        adds_runs(target) and task.op.startswith("conv") and sums and inputs <= {"uint8", "int8"}
    )


def in_columns(w: WindowShape, configs: Configs) -> npt.NDArray[np.bool_]:
    """Whether a tile is one that `column_tile.py` writes: points of a row, one channel."""
    if len(w.reduce) != 2:
        return np.zeros(len(configs["vectors"]), np.bool_)
    rows, taps = (extent for _, extent in w.reduce)
    weights = taps * (rows // 2) + -(-taps * (rows % 2) // 2)
    most = REGISTERS - OTHER_REGISTERS - weights
    alone = (configs["vectors"] == 1) & (configs["tile_h"] == 1) & ~rolled(configs)
    first = configs["order"] == "channels_first"
    return np.asarray(alone & first & (configs["tile_w"] <= most))


def by_channels(w: WindowShape, configs: Configs) -> npt.NDArray[np.bool_]:
    """Whether a tile is one that `riscv_window.py` writes: points of a row, one channel after the
    other."""
    if len(w.reduce) != 2 or w.reduce[-1][1] > MOST_TAPS:
        return np.zeros(len(configs["vectors"]), np.bool_)
    alone = (configs["vectors"] == 1) & (configs["tile_h"] == 1) & ~rolled(configs)
    inside = configs["order"] == "rows_first"
    return np.asarray(alone & inside & (configs["tile_w"] <= MOST_POINTS))


def window_cycles(task: Task, w: WindowShape, configs: Configs, target: Target) -> Column:
    """Cycles of all tiles, those at the ends by what they have."""
    one = _riscv_tile if has_riscv_vectors(target) else _one_tile
    total = np.zeros(len(configs["vectors"]))
    sides = [
        _parts(extent, configs[param])
        for extent, param in (
            (w.rows[1], "tile_h"), (w.points[1], "tile_w"), (w.channels[1], "vectors"),
        )
    ]  # fmt: skip
    steps = [dict(d) for a in accesses(task, w, {})[:-1] for d in a.dims]
    step = max(d.get("point", 1) for d in steps)
    batch = math.prod(e for _, e in w.axes[:-3])
    for (rows, high), (columns, wide), (blocks, channels) in itertools.product(*sides):
        cycles = one(w, configs, step, (high, wide, channels))
        total = total + rows * columns * blocks * cycles
    other = np.where(configs["order"] == "rows_first", 1.0, OTHER_ORDER_COST)
    whole = (w.rows[1] % configs["tile_h"] == 0) & (w.points[1] % configs["tile_w"] == 0)
    return np.asarray(total * batch * other * np.where(whole, 1.0, RAGGED_COST))


def _parts(extent: int, size: Column) -> tuple[tuple[Column, Column], ...]:
    """(how many, how large): whole ones, and the rest."""
    size = np.minimum(size, extent)
    rest = extent % size
    return (extent // size, size), ((rest > 0).astype(np.float64), np.maximum(rest, 1))


def _taps(w: WindowShape) -> tuple[int, int]:
    """(rows, columns) of a window; of one that is no image's a single tap."""
    return (w.reduce[0][1], w.reduce[-1][1]) if len(w.reduce) == 2 else (1, 1)


def _plain_products(w: WindowShape, tile: tuple[Column, Column, Column]) -> Column:
    """Cycles of a tile's products one by one."""
    rows, points, channels = tile
    terms = math.prod(e for _, e in w.reduce)
    return terms * channels * (PLAIN_PRODUCT_CYCLES * rows * points + PLAIN_TAP_CYCLES)


def _one_tile(
    w: WindowShape, configs: Configs, step: int, tile: tuple[Column, Column, Column]
) -> Column:
    """Cycles of a tile of (rows, points, channels); `step`: from a point's window to the next."""
    rows, points, channels = tile
    count, (high, taps) = rows * points * channels, _taps(w)
    plain = _plain_products(w, tile)
    products = -(-high // 2) * taps * points
    sums = ((points - 1) * step + taps) * (high + 1 + high // 2) + products
    sums = np.where(in_columns(w, configs), sums, plain)
    channel = np.where(in_columns(w, configs), 0.0, CHANNEL_CYCLES * channels)
    return np.asarray(sums + TILE_CYCLES + SUM_CYCLES * count + channel)


def _riscv_tile(
    w: WindowShape, configs: Configs, step: int, tile: tuple[Column, Column, Column]
) -> Column:
    """The same of vectors of sixteen channels, each channel's share."""
    rows, points, channels = tile
    count, (high, taps) = rows * points * channels, _taps(w)
    plain = _plain_products(w, tile)
    columns = np.minimum((points - 1) * step + taps, points * taps) + taps
    row = BYTES_CYCLES * columns + PRODUCT_CYCLES * taps * points + ROW_CYCLES
    group = high * row + GROUP_CYCLES + VECTOR_SUM_CYCLES * points
    share = np.ceil(w.channels[1] / VECTOR_CHANNELS) / w.channels[1]
    sums = np.where(by_channels(w, configs), group * share + 3.0 * points, plain)
    return np.asarray(sums + TILE_CYCLES + SUM_CYCLES * count + CHANNEL_CYCLES * channels)
