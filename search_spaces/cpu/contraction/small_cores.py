"""Cycles of tiles of bytes on cores with instructions for two products (Arm's SMLAD), no caches.

In: a contraction and configs. Out: cycles, as `autotune/codegen/c/dot_tile.py` writes the tiles:
words of the side with fewer rows are widened once. Counts of instructions are specified (Arm's
table of the Cortex-M4); what stands around them was read off compiled kernels.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from autotune.target import Target
from search_spaces.base import Column
from search_spaces.cpu.contraction import plain_products, riscv_vectors
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.space import Configs

REGISTERS = 14
"""Such a core has so many, but for the stack's and the program's own (specified)."""
POINTERS_AND_ONE = 3
"""Registers that are neither sums nor words: two pointers, a word's even bytes."""
BODY_CYCLES = 70.0
"""A loop's body takes about so many."""
BRANCH_CYCLES = 4.0
"""A comparison and a taken branch."""
SPILLED_END_CYCLES = 2.0
"""More where the end of the loop is in memory."""
TILE_CYCLES = 30.0
"""The loops around a tile, for each."""
SUM_CYCLES = 11.0
"""To begin, scale and store a sum."""
CHANNEL_CYCLES = 6.0
"""To load what a channel's sums are scaled by."""
RAGGED_COST = 1.03
"""Times that tiles are counted which leave a rest of the points: its code is a second tile's,
chosen."""
OTHER_ORDER_COST = 1.001
"""Times that orders take other than points outermost, where nothing tells them apart."""
WIDENED_CALL_CYCLES = 11.0
"""A call of the routine of widened points, there and back."""
WIDENED_TURN_CYCLES = 1.5
"""What its loop takes around a word, four of which are written out."""
VECTOR_BYTES = 16
"""Products of one sum by an instruction on vectors (Helium)."""
VECTOR_CYCLES, VECTOR_LOOP_CYCLES = 2.0, 4.0
"""Cycles of such an instruction, and of the loop around those of a vector of all rows."""
VECTOR_SUMS = 7
"""Registers that such an instruction adds to: every other one, but for the stack's (specified)."""
SPILLED_SUM_CYCLES = 8.0
"""Cycles per vector of each sum more (fitted: windows of 64 to 64 channels, assumed table)."""
RUN_CYCLES = 10.0
"""To begin a run of vectors, for each."""
DSP = "+dsp"
"""LLVM's name for instructions on halves and quarters of words."""
MVE = "+mve"
"""LLVM's name for vectors of the M profile (Helium)."""
RISCV_VECTORS = "+zve32x"
"""LLVM's name for RISC-V's vectors of integers."""


def multiplies_pairs(target: Target) -> bool:
    """Whether it is such a core."""
    return target.is_compact and DSP in target.features.split(",")


def has_vectors(target: Target) -> bool:
    """Whether the core has vectors beside these."""
    return MVE in target.features.split(",")


def has_riscv_vectors(target: Target) -> bool:
    """Whether it is a small core with those."""
    return target.is_compact and RISCV_VECTORS in target.features.split(",")


def adds_runs(target: Target) -> bool:
    """Whether a run of products, however long, is one loop there."""
    return multiplies_pairs(target) or has_riscv_vectors(target)


def multiplies_bytes(target: Target) -> bool:
    """Whether it is a small core whose compilers write products one by one."""
    return target.is_compact and not adds_runs(target)


def held_in_registers(configs: Configs, target: Target) -> npt.NDArray[np.bool_]:
    """Whether sums and words of a tile are registers."""
    points, channels = configs["tile_w"] * configs["tile_h"], configs["vectors"]
    if has_riscv_vectors(target):
        return np.asarray(riscv_vectors.fits(points, channels))
    if multiplies_bytes(target):
        return np.asarray(plain_products.fits(points, channels))
    return np.asarray(_free(points, channels) >= 1)


def _free(points: Column, channels: Column) -> Column:
    words = 2 * np.minimum(points, channels)
    return np.asarray(REGISTERS - POINTERS_AND_ONE - points * channels - words)


def tile_cycles(c: Contraction, configs: Configs, target: Target) -> Column:
    """Cycles of all tiles, those at the ends by what they have."""
    one = _vector_tile if has_vectors(target) else _one_tile
    one = riscv_vectors.tile_cycles if has_riscv_vectors(target) else one
    one = plain_products.tile_cycles if multiplies_bytes(target) else one
    total = np.zeros(len(configs["vectors"]))
    sides = (
        _parts(c.row_count, configs["tile_h"]),
        _parts(c.points[1], configs["tile_w"]),
        _parts(c.channels[1], configs["vectors"] * configs["lanes"]),
    )
    for (rows, high), (columns, wide), (blocks, channels) in itertools.product(*sides):
        total = total + rows * columns * blocks * one(c, high * wide, channels)
    other = np.where(configs["order"] == "points_first", 1.0, OTHER_ORDER_COST)
    whole = (c.row_count % configs["tile_h"] == 0) & (c.points[1] % configs["tile_w"] == 0)
    return np.asarray(total * c.count * c.groups * other * np.where(whole, 1.0, RAGGED_COST))


def widened_cycles(c: Contraction, configs: Configs) -> Column:
    """Cycles of all tiles of points that are widened before, by two channels; those at the ends
    by what they have."""
    total = np.zeros(len(configs["vectors"]))
    blocks = c.channels[1] // 2
    sides = _parts(c.row_count, configs["tile_h"]), _parts(c.points[1], configs["tile_w"])
    for (rows, high), (columns, wide) in itertools.product(*sides):
        points = high * wide
        words = c.depth / 4 * np.where(points > 0, 1.0, 0.0)
        # Weights and points are loaded in a row, of four points the last two in one of their own.
        loads = 2 + points + (points > 3)
        word = 2 * (loads + 2 + 2 * points)
        around = TILE_CYCLES + SUM_CYCLES * 2 * points + CHANNEL_CYCLES * 2
        tile = words * (word + WIDENED_TURN_CYCLES) + WIDENED_CALL_CYCLES + around
        widened = words * (5 * points + 7) + 2 * WIDENED_CALL_CYCLES
        total = total + rows * columns * (blocks * tile + widened)
    return np.asarray(total * c.count)


def _parts(extent: int, size: Column) -> tuple[tuple[Column, Column], ...]:
    """(how many, how large): whole ones, and the rest."""
    size = np.minimum(size, extent)
    rest = extent % size
    return (extent // size, size), ((rest > 0).astype(np.float64), np.maximum(rest, 1))


def _one_tile(c: Contraction, points: Column, channels: Column) -> Column:
    held, taken = np.minimum(points, channels), np.maximum(points, channels)
    free = _free(points, channels)
    ahead = np.minimum(np.maximum(free - 1, 1), taken)
    loads = held + taken + np.ceil(taken / ahead)
    word = loads + 2 * (held + taken) + 2 * points * channels
    words = c.depth / 4
    end = BRANCH_CYCLES + np.where(free > ahead, 0.0, SPILLED_END_CYCLES)
    turns = words / np.maximum(BODY_CYCLES // word, 1)
    around = TILE_CYCLES + SUM_CYCLES * points * channels + CHANNEL_CYCLES * channels
    return np.asarray(words * word + turns * end + around)


def _vector_tile(c: Contraction, points: Column, channels: Column) -> Column:
    """A tile by vectors (`autotune/codegen/c/vector_tile.py`): each of a point is loaded and made
    signed, each of a channel loaded and summed."""
    runs = math.prod(e for _, e in c.reduce[:-2])
    vectors = np.ceil(c.depth / runs / VECTOR_BYTES)
    sums = points * channels
    spilled = np.maximum(sums + channels - VECTOR_SUMS, 0.0)
    one = VECTOR_CYCLES * (2 * (points + channels) + sums) + VECTOR_LOOP_CYCLES
    one = one + SPILLED_SUM_CYCLES * spilled
    around = TILE_CYCLES + SUM_CYCLES * sums + CHANNEL_CYCLES * channels
    return np.asarray(runs * (vectors * one + RUN_CYCLES + sums) + around)
