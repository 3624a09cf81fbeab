"""Rate of multiply-adds in a register tile, and shares that its operands add.

In: the machine and configs. Out: cycles per multiply-add of full width, or shares of
them. Constants were fitted so that surveys of contractions (benchmarks/data, Zen 4) and kernels in
models are ranked as measured, unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import (
    RUNS,
    adds_apart,
    clocks,
    outer_product_cycles,
    padding_waste,
    tail_waste,
)
from autotune.target import Target
from search_spaces.base import Column
from search_spaces.cpu.contraction.shape import Contraction
from search_spaces.space import Configs

Rate = Callable[[Machine, Configs, Column, Column, int], Column]
"""Cycles per multiply-add of full width of tiles of points x vectors, of a reduction so deep."""
TILE_CYCLES = 12.0
"""Cycles of the loops around a register tile."""
ACCUMULATOR_CYCLES = 1.5
"""Cycles per accumulator to begin and to store it."""
STEP_CYCLES = 2.0
"""Cycles of a reduction's counter and branch. With half of it surveys of three machines are ranked
as well, networks are not: shufflenet's groups of 60 channels take 40 % longer (Emerald Rapids)."""
NARROW_VECTOR_COST = 0.05
"""Share of the time that vectors of less than full width add."""
LONE_VECTOR_COST = 0.02
"""The same of tiles of one vector of channels where there are more."""
LONG_BODY_COST = 0.05
"""The same of reductions unrolled more than four times."""
LONG_TILED_BODY_COST = 0.015
"""The same of products of transformed tiles for which no panels are asked for: requests of a long
body come in bursts (fitted: surveys of three machines)."""
SPILL_COST = 0.2
"""The same of more accumulators and operands than registers."""
ENGINE_SPILL_COST = 0.8
"""The same of WebAssembly, where an operand that is in no register is stored and loaded again
(node and Chromium on Zen 4: 0.3 to 0.8)."""
SPILL_RISK = 0.03
"""The same where operands of two steps side by side would be."""
SETTLED_SUMS, WANDERING_SUM_COST = 7, 0.03
"""Share that each sum of a single vector beyond these adds in unrolled steps, where an element is
in all lanes of a register that nothing else uses: LLVM puts the sum into that one, and so all of
them wander from register to register, some through memory (fitted: Emerald Rapids held to
AVX2)."""
RUN_SPILL_RISK = 0.1
"""The same where they are loaded for several steps at once (fitted on llvm-mca's cycles)."""
CONFLICT_FACTOR = 1.5
"""Times that products of Winograd's and Strassen's algorithms take whose points evict each other
from the L1 cache."""
PANEL_SHARE_OF_L1 = 0.5
"""Share of the L1 cache that a panel of weights may take and stay there."""
DATA_COST = 0.096
"""Share that data add which a single vector of weights uses: they are read at as many places as a
tile has points, a line of each in turns, while weights are one stream."""
NEAR_DATA = 0.3
"""Part of that where data lie in the L2 cache."""
RAGGED_COST = 0.03
"""Share of a full tile's points that a shorter last one takes for each that it lacks."""
STRIP_COST = 1.03
"""Times what strips are expected to take: small weights, which all threads have in their caches,
are as well used row by row, and strips turned out 2 to 7 % slower there."""
EXPOSED_STREAM = 0.7
"""Share of the time that weights take to come from memory which direct code does not hide."""


def tile_efficiency(
    c: Contraction, machine: Machine, configs: Configs, points: Column, depth: int,
    *, over: Column | int = 0, rate: Rate | None = None,
) -> tuple[Column, Column]:  # fmt: skip
    """(cycles per multiply-add of full width, small preferences) for a reduction depth; `over`:
    registers more than there are that cost nothing yet; `rate`: of another algorithm's tiles."""
    vectors = configs["vectors"].astype(np.float64)
    total = np.ceil(c.channels[1] / configs["lanes"])
    cycles = row_cycles(
        machine, configs, points, vectors, total=total, depth=depth, rate=rate or tile_rate
    )
    cycles = np.maximum(cycles, total * panel_cycles(machine, configs, points, vectors, depth))
    lanes = machine.target.takes_lanes
    # Where no operand comes from memory, none is late. Nor where steps are unrolled: LLVM mixes
    # them, and in a third of the tiles what would just fit lies on the stack.
    late = 0 if lanes else over
    registers = machine.target.vector_registers + np.where(configs["unroll"] > 1, 0, late)
    one = points * vectors + vectors + 1 > registers
    taste = np.where(one, SPILL_COST, 0.0)
    if broadcasts_apart(machine.target):
        wander = (vectors == 1) & (configs["unroll"] > 1)
        sums = np.maximum(points - SETTLED_SUMS, 0)
        taste = taste + np.where(wander, WANDERING_SUM_COST * sums, 0.0)
    live = live_registers(configs, points, vectors, target=machine.target)
    several = live > machine.target.vector_registers + late
    risk = RUN_SPILL_RISK if lanes else SPILL_RISK
    risk = ENGINE_SPILL_COST if machine.target.is_wasm else risk
    taste = taste + np.where(several, risk, 0.0)
    taste = taste + np.where((vectors == 1) & (total > 1), LONE_VECTOR_COST, 0.0)
    return cycles / total, taste


def long_bodies(configs: Configs) -> Column:
    """Share of the time that long loop bodies add."""
    return np.where(configs["unroll"] > 4, LONG_BODY_COST, 0.0)


def panel_cycles(
    machine: Machine, configs: Configs, points: Column, vectors: Column, depth: int
) -> Column:
    """Cycles per multiply-add of full width until a panel of weights that the L1 cache does not
    keep beside data has come from the L2 cache, for each tile of points again."""
    nbytes = vectors * configs["lanes"] * (4.0 * depth)
    away = nbytes > PANEL_SHARE_OF_L1 * machine.l1_bytes
    each = machine.target.vector_bytes / machine.cpu.l2_stream_bytes_per_cycle / points
    return np.where(away, each, 0.0)


def row_cycles(
    machine: Machine, configs: Configs, points: Column, vectors: Column,
    *, total: Column | int, depth: int, rate: Rate,
) -> Column:  # fmt: skip
    """Cycles per point and step of the reduction of `total` vectors of channels, the last tile of
    which may be narrower."""
    last = total - (np.ceil(total / vectors) - 1) * vectors
    whole = (total - last) * rate(machine, configs, points, vectors, depth)
    return whole + last * rate(machine, configs, points, last, depth)


def broadcasts_apart(target: Target) -> bool:
    """Whether an element of memory is put into all lanes of a register before vectors are
    multiplied by it: x86-64 without AVX-512."""
    wide = not {"+avx512f", "+avx512vl"}.isdisjoint(target.features.split(","))
    return target.kind == "cpu" and target.triple.startswith("x86_64") and not wide


def live_registers(configs: Configs, points: Column, vectors: Column, *, target: Target) -> Column:
    """Registers of a tile. Steps of an unrolled reduction overlap: the weights of two are in
    registers at once, or what the points of several are multiplied by where that is lanes of
    registers; not where every product waits for a register with an element in all lanes."""
    if broadcasts_apart(target):
        return np.asarray(points * vectors + vectors + 1)
    if target.is_wasm:
        # Engines may load all operands of an iteration before they multiply.
        steps = configs["unroll"] * (points + vectors)
        return np.asarray(points * vectors + steps + adds_apart(target))
    if target.takes_lanes:
        runs = np.ceil(configs["unroll"] / max(RUNS))
        ahead = np.where(configs["unroll"] > 1, points * runs, 1)
        return np.asarray(points * vectors + vectors + ahead + 1)
    weights = vectors * np.where(configs["unroll"] > 1, 2, 1)
    return np.asarray(points * vectors + weights + 1)


def tile_rate(
    machine: Machine, configs: Configs, points: Column, vectors: Column, depth: int
) -> Column:
    """Cycles per multiply-add of full width of a tile of `points` x `vectors`."""
    # Narrow vectors take a share of a cycle each, but as many broadcasts for less work.
    share = configs["lanes"] / machine.target.lanes()
    work = points * vectors * share
    step = (
        outer_product_cycles(machine, points, vectors, share, configs["unroll"])
        + clocks(machine, STEP_CYCLES) / configs["unroll"]
    )
    ends = clocks(machine, TILE_CYCLES) + clocks(machine, ACCUMULATOR_CYCLES) * points * vectors
    narrow = np.where(share < 1, NARROW_VECTOR_COST, 0.0)
    return np.asarray(step / work + ends / (depth * work) + narrow)


def ideal_cycles(c: Contraction, target: Target) -> float:
    """Direct multiply-adds at one full vector a cycle."""
    points = c.count * c.row_count * c.points[1]
    return points * c.channels[1] * c.groups * c.depth / target.lanes()


def waste(c: Contraction, configs: Configs) -> Column:
    """Computed over useful multiply-adds of direct code; tails are cut at vectors and rows."""
    out = padding_waste(c.channels[1], configs["lanes"].astype(np.float64))
    for extent, size in ((c.points[1], configs["tile_w"]), (c.row_count, configs["tile_h"])):
        out = out * tail_waste(extent, size)
    return out
