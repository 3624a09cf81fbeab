"""Cycles that an attention's config should take: good defaults without measuring.

In: an attention, the machine and columns of configs. Out: cycles of all threads, one per config.
Constants were fitted on Zen 4; the layers that were measured for it were not written down.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.target import Target
from autotune.tasks.flops import causal_share
from search_spaces.base import Column
from search_spaces.cpu.attention.shape import AttentionTask, split_rows
from search_spaces.cpu.contraction.rates import live_registers, row_cycles, tile_rate
from search_spaces.space import Columns

SOFTMAX_CYCLES = 14.0
"""Cycles per vector of scores: the largest, the exponential, the sum."""
ROW_CYCLES = 60.0
"""Cycles per row and block of keys: reductions over lanes."""
RAGGED_COST = 1.06
"""Time of a product whose last tile is smaller than the others, over that of whole ones."""
SPILL_COST = 2.0
"""The same of a tile with more accumulators and operands than registers."""
EXPOSED_STREAM = 0.3
"""Share of a stream from a cache that arithmetic does not hide."""
SCORE_PASSES = 4.0
"""Times that scores are written and read."""


def cycles(a: AttentionTask, machine: Machine, columns: Columns) -> Column:
    """Cycles of the whole task per config, on all threads together."""
    lanes = float(machine.target.lanes())
    rows, keys = (columns[p].astype(np.float64) for p in ("rows", "keys"))
    blocks = np.ceil(a.rows / rows)
    computed = a.count * blocks * rows * _share_seen(a, rows, keys)
    total = _product(machine, columns, "score", a.keys, a.depth) * a.depth
    total = total + _product(machine, columns, "mix", a.width, a.keys) * a.keys
    total = total * computed + computed * math.ceil(a.keys / lanes) * SOFTMAX_CYCLES
    total = total + computed * (a.keys / keys) * ROW_CYCLES
    total = total + _score_cycles(a, machine, rows, keys, computed * a.keys * 4.0 * SCORE_PASSES)
    total = total + _operand_cycles(a, machine, rows * keys * 4.0, a.count * blocks)
    chunks = a.count * (blocks if split_rows(a, machine.target) else 1.0) + 0 * rows
    return np.asarray(total * busiest_share(chunks, machine.target.threads), np.float64)


def ideal_cycles(a: AttentionTask, target: Target) -> float:
    """Cycles of the multiply-adds alone."""
    return a.count * a.rows * a.keys * (a.depth + a.width) / target.lanes()


def _score_cycles(
    a: AttentionTask, machine: Machine, rows: Column, keys: Column, moved: Column
) -> Column:
    """Cycles of waiting for blocks of scores that do not stay in the innermost cache, and for
    those that leave the next one too."""
    target, cpu = machine.target, machine.cpu
    block = rows * keys * 4.0
    held = block + np.minimum(keys * (a.depth + a.width) * 4.0, _operand_bytes(a))
    near = np.where(block > target.l1_bytes / 2, moved / cpu.l2_stream_bytes_per_cycle, 0)
    far = np.where(held > target.l2_bytes, moved / cpu.l3_stream_bytes_per_cycle, 0)
    return np.asarray(near * EXPOSED_STREAM + far * EXPOSED_STREAM)


def _operand_cycles(a: AttentionTask, machine: Machine, block: Column, times: Column) -> Column:
    """Cycles of waiting for keys and values, which come once per block of rows."""
    cpu, nbytes = machine.cpu, _operand_bytes(a)
    far = nbytes + block > 0.75 * machine.target.l2_bytes
    speed = np.where(far, cpu.l3_stream_bytes_per_cycle, cpu.l2_stream_bytes_per_cycle)
    return np.asarray(times * nbytes / speed * EXPOSED_STREAM)


def _operand_bytes(a: AttentionTask) -> float:
    """Keys and values of an element of the batch."""
    return a.keys * (a.depth + a.width) * 4.0


def _share_seen(a: AttentionTask, rows: Column, keys: Column) -> Column:
    """Of all blocks of keys, those that are not left out."""
    if a.seen is None:
        return np.ones(len(rows))
    pairs, which = np.unique(np.stack([rows, keys]), axis=1, return_inverse=True)
    shares = [
        causal_share(a.rows, a.keys, a.seen, int(size), int(block)) for size, block in pairs.T
    ]
    return np.asarray(np.asarray(shares)[which.reshape(-1)], np.float64)


def _product(machine: Machine, columns: Columns, which: str, channels: int, depth: int) -> Column:
    """Cycles per row and step of the reduction of a product."""
    lanes = machine.target.lanes()
    vectors = columns[f"{which}_vectors"].astype(np.float64)
    points = columns[f"{which}_tile"].astype(np.float64)
    given = {"lanes": np.full(len(points), lanes), "unroll": columns["unroll"]}
    count = math.ceil(channels / lanes)
    total = row_cycles(machine, given, points, vectors, total=count, depth=depth, rate=tile_rate)
    ragged = np.where(count % vectors != 0, RAGGED_COST, 1.0)
    ragged = ragged * np.where(columns["rows"] % points != 0, RAGGED_COST, 1.0)
    live = live_registers(columns, points, vectors)
    spilled = np.where(live > machine.target.vector_registers, SPILL_COST, 1.0)
    return np.asarray(total * ragged * spilled)
