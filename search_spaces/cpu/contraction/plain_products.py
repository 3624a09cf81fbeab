"""Cycles of tiles of bytes on small cores that multiply one by one, no caches.

In: a contraction and tiles. Out: cycles, as compilers write the plain C of a tile: four products
of each sum, whose weights stay in registers. Instructions were counted in compiled kernels; their
cycles are those that simulated cores are given (`autotune/measure/simulator/riscv.py`).
"""

from __future__ import annotations

import math

import numpy as np

from search_spaces.base import Column
from search_spaces.cpu.contraction.shape import Contraction

REGISTERS = 20
"""A core has so many, but for the stack's, pointers and the loops around (specified, of 32)."""
WORD_BYTES = 4
"""Bytes of each row whose products are written out."""
LOAD_CYCLES, PRODUCT_CYCLES, LOOP_CYCLES = 2.0, 2.0, 5.0
"""To load a byte; to multiply and to add; the loop around those of a word of all rows."""
SUM_CYCLES = 25.0
"""To begin, scale and store a sum."""
RUN_CYCLES = 8.0
"""To begin a run of words."""
TILE_CYCLES, CHANNEL_CYCLES = 30.0, 6.0
"""The loops around a tile; to load what a channel's sums are scaled by."""


def fits(points: Column, channels: Column) -> Column:
    """Whether registers hold a tile's sums, the weights of a word and the bytes of a row."""
    several = np.where(channels > 1, WORD_BYTES, 1)
    return np.asarray(points * channels + WORD_BYTES * channels + several <= REGISTERS)


def tile_cycles(c: Contraction, points: Column, channels: Column) -> Column:
    """Cycles of tiles of so many points by channels."""
    runs, sums = math.prod(e for _, e in c.reduce[:-2]), points * channels
    word = WORD_BYTES * (LOAD_CYCLES * (points + channels) + PRODUCT_CYCLES * sums) + LOOP_CYCLES
    around = TILE_CYCLES + SUM_CYCLES * sums + CHANNEL_CYCLES * channels
    return np.asarray(c.depth / WORD_BYTES * word + runs * RUN_CYCLES + around)
