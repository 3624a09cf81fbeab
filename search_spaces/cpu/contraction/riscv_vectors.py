"""Cycles of tiles of bytes by RISC-V's vectors on small cores, no caches.

In: a contraction and tiles. Out: cycles, as `autotune/codegen/c/riscv_tile.py` writes tiles: both
sides are widened, and each sum is of as many as a vector has. Instructions were counted; their
cycles are those that simulated cores are given (`autotune/measure/simulator/riscv_vectors.py`).
"""

from __future__ import annotations

import math

import numpy as np

from search_spaces.base import Column
from search_spaces.cpu.contraction.shape import Contraction

VECTOR_BYTES = 16
"""Products of one sum by an instruction."""
MOST_SUMS, MOST_HELD = 6, 2
"""Sums, and rows of the side that has fewer, which registers hold (specified)."""
ROW_CYCLES = 3.0 + 4.0 + 1.0
"""To load a row's bytes, widen them and count to them."""
IN_TURN_CYCLES = 9.0 + 4.0 - 3.0
"""More where two channels' words lie in turn, for both."""
PRODUCT_CYCLES, LOOP_CYCLES = 8.0, 7.0
"""The product of a vector of each sum, and what is around those of a vector of all rows."""
SUM_CYCLES = 8.0 + 10.0 + 24.0
"""To clear a sum, to add up its vector, to scale and store it."""
RUN_CYCLES = 4.0
"""To begin a run of vectors."""
TILE_CYCLES, CHANNEL_CYCLES = 40.0, 6.0
"""The loops around a tile; to load what a channel's sums are scaled by."""


def fits(points: Column, channels: Column) -> Column:
    """Whether registers hold a tile, and channels lie as loads have them."""
    held = np.minimum(points, channels) <= MOST_HELD
    return np.asarray(held & (points * channels <= MOST_SUMS) & (channels <= 2))


def tile_cycles(c: Contraction, points: Column, channels: Column) -> Column:
    """Cycles of tiles of so many points by channels."""
    runs = math.prod(e for _, e in c.reduce[:-2])
    vectors = np.ceil(c.depth / runs / VECTOR_BYTES)
    sums = points * channels
    one = ROW_CYCLES * (points + channels) + PRODUCT_CYCLES * sums + LOOP_CYCLES
    one = one + np.where(channels > 1, IN_TURN_CYCLES, 0.0)
    around = TILE_CYCLES + SUM_CYCLES * sums + CHANNEL_CYCLES * channels
    return np.asarray(runs * (vectors * one + RUN_CYCLES) + around)
