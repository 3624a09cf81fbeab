"""What Winograd's and Strassen's algorithms should cost, in cycles of one core.

In: a contraction, the target and columns of configs. Out: cycles, one per config. Their products
are of operands that lie packed in caches, so tiles run close to the peak, and transforms are what
their additions, loads and stores take. Constants were fitted to measured spaces of ten layers:
they explain times of configs within a third of the fastest to 4 %.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from autotune.program.winograd import Matrix, transforms
from autotune.target import Target
from search_spaces.base import Column
from search_spaces.rules._contraction import Contraction
from search_spaces.rules._contraction_tiles import strassen_parts
from search_spaces.rules._rates import (
    L3_BYTES_PER_CYCLE,
    MEMORY_BYTES_PER_CYCLE,
    Columns,
    channel_waste,
    conflict_free,
    from_others,
    imbalance,
    padded,
    stream_cycles,
)

_HIDDEN = 0.85
"""Share of the shorter of arithmetic and a stream of weights that the longer one hides."""
_LATENCY = 4.0
"""Cycles until a multiply-add can be added to; cores of vectors below 64 bytes begin two each."""
_AHEAD = 50.0
"""Multiply-adds of the next tiles that run while one waits: short sums overlap."""
_STEP = 0.25
"""Per step of a reduction, unless all of them are one body."""
_RUN = 3.0
"""Per run of tiles along points, the loops around which end one after the other."""
_QUEUED, _BURST = 8, 1.2
"""Results of a tile that are stored beside arithmetic, and cycles for each of the others."""
_CROWDED = 0.1
"""Share that weights add which may not find a register: of a few such configs one is spilled."""
_LONG_BODY = 0.01
"""Share that many copies of a step add."""
_POINT, _ADDITION = 1.1, 0.36
"""Per point of a Winograd tile and vector of channels, on either end, and per addition or
multiply-add of its transforms: loads, stores and arithmetic run side by side."""
_SEEN = 0.5
"""Share of the time in which data that leave a cache move through the next one that transforms do
not hide."""
_LATE = 0.7
"""Share of the time that weights take to come from memory which direct code does not hide."""
_SUM_CYCLES = 20.0
"""Per vector of each of the four quarters that Strassen's algorithm combines."""


def winograd_cycles(c: Contraction, target: Target, columns: Columns, form: str) -> Column:
    """Products of all points, transforms of both ends, and streams that miss the L2 cache."""
    area, ic, oc = c.tile_points(form), c.reduce[2][1], c.channels[1] * c.groups
    tiles = c.count * c.tile_rows(form) * c.tile_columns(form)
    block = columns["block"].astype(np.float64)
    blocks = tiles / block
    points = columns["tile_w"].astype(np.float64)
    rate = _run_rate(c, target, columns, block, ic) * channel_waste(c, columns)
    product = area * tiles * ic * oc / float(target.lanes()) * rate
    product = product * np.where(points > conflict_free(ic * c.groups), 1.5, 1.0)
    weights = area * ic * oc * 4.0
    stream = stream_cycles(weights, blocks, target)
    if weights > 0.75 * target.l3_bytes:
        # From memory, zeros that fill the last block of channels cost as much as weights.
        stream = stream * padded(c, columns)
    # Weights come in while the first tile of points meets them; the others find them in a cache.
    # Several cores are each at another place: what one waits for, another one has asked for.
    first = product / (np.ceil(block / points) if target.threads == 1 else 1.0)
    work = (
        product
        - first
        + np.maximum(first, stream)
        + (1 - _HIDDEN) * np.minimum(first, stream)
        + _transform_cycles(c, target, form)
        + _spill_cycles(c, target, block, tiles, area)
    )
    chunks = np.where(blocks == 1, 8.0 * target.threads, blocks)
    across = np.where(blocks == 1, area * tiles * (ic * c.groups + oc) * 4.0, 0.0)
    return np.asarray(work * imbalance(chunks, target) + from_others(across, target), np.float64)


def _transform_cycles(c: Contraction, target: Target, form: str) -> float:
    """Of both ends: each is two passes over a tile, along its columns and along its rows."""
    lanes = target.lanes()
    tiles = c.count * c.tile_rows(form) * c.tile_columns(form)
    (kh, kw), (height, width) = (e for _, e in c.reduce[:2]), c.tile_sides(form)
    by_row, by_column = (
        transforms(m, k, s) for m, k, s in zip((height, width), (kh, kw), c.strides, strict=True)
    )
    (out_rows, _, in_rows), (out_columns, _, in_columns) = by_row, by_column
    tall, wide = len(in_rows), len(in_columns)
    before = wide * _additions(in_rows) + tall * _additions(in_columns)
    after = wide * _additions(out_rows) + height * _additions(out_columns)
    vectors_in = math.ceil(c.reduce[2][1] * c.groups / lanes)
    vectors_out = math.ceil(c.channels[1] * c.groups / lanes)
    each = _POINT * tall * wide
    data = vectors_in * (each + _ADDITION * before)
    return tiles * (data + vectors_out * (each + _ADDITION * after))


def _additions(matrix: Matrix) -> int:
    """Of a product of the matrix and a vector."""
    return sum(sum(v != 0 for v in row) - 1 for row in matrix)


def _spill_cycles(c: Contraction, target: Target, block: Column, tiles: int, area: int) -> Column:
    """Cycles for transformed tiles of a block that leave the L2 cache, or half of the L3 cache:
    the sooner the fuller it is."""
    each = area * c.groups * (c.reduce[2][1] + c.channels[1]) * 4.0
    held, moved = each * block, _SEEN * each * tiles
    far = moved / L3_BYTES_PER_CYCLE * np.minimum(held / target.l2_bytes, 1)
    out = np.where(held > target.l3_bytes / 2, moved / MEMORY_BYTES_PER_CYCLE, 0.0)
    return np.asarray(far + out)


def _run_rate(
    c: Contraction, target: Target, columns: Columns, run: Column | int, depth: int
) -> Column:
    """Cycles per multiply-add of full width of a product whose points come in runs: tiles, a
    shorter last one, and fewer vectors of channels in the last block."""
    points, vectors = (columns[p].astype(np.float64) for p in ("tile_w", "vectors"))
    total = np.ceil(c.channels[1] / columns["lanes"])
    last = total - (np.ceil(total / vectors) - 1) * vectors
    tail = run % points
    # Every run is of one block of channels, and of the whole sum.
    out = _RUN * target.lanes() / (run * depth * columns["lanes"] * np.minimum(vectors, total))
    for size, share in ((points, run - tail), (np.maximum(tail, 1), tail)):
        rate = (total - last) * _tile_rate(target, columns, size, vectors, depth)
        rate = rate + last * _tile_rate(target, columns, size, last, depth)
        out = out + share / run * rate / total
    return np.asarray(out + np.where(columns["unroll"] > 4, _LONG_BODY, 0.0))


def _tile_rate(
    target: Target, columns: Columns, points: Column, vectors: Column, depth: int
) -> Column:
    """Cycles per multiply-add of full width of a tile of `points` x `vectors`."""
    share = columns["lanes"] / target.lanes()
    held = points * vectors
    work, loads = held * share, vectors * share + points / 2
    latency = _LATENCY * (1 if target.vector_bytes >= 64 else 2)
    step = np.maximum(np.maximum(work, latency / (1 + _AHEAD / (depth * held))), loads)
    burst = _BURST * share * np.maximum(held - _QUEUED, 0) / depth
    narrow = np.where(share < 1, 0.05, 0.0)
    # Steps of an unrolled reduction overlap: the weights of two are in registers at once.
    weights = vectors * np.where(columns["unroll"] > 1, 2, 1)
    crowded = np.where(held + weights + 1 > target.vector_registers, _CROWDED, 0.0)
    step = step + np.where(columns["unroll"] < depth, _STEP, 0)
    return np.asarray((step + burst) / work + narrow + crowded)


def strassen_cycles(c: Contraction, target: Target, columns: Columns) -> Column:
    """Seven products of halves, and the sums at both ends."""
    lanes = float(target.lanes())
    half = dataclasses.replace(c, channels=(c.channels[0], c.channels[1] // 2))
    rows, depth, channels = c.strassen_points, c.depth // 2, half.channels[1]
    points = columns["tile_w"].astype(np.float64)
    run = rows // strassen_parts(c, target)
    rate = _run_rate(half, target, columns, run, depth) * channel_waste(half, columns)
    product = 7 * rows * depth * channels / lanes * rate
    product = product * np.where(points > conflict_free(depth), 1.5, 1.0)
    ends = rows * (math.ceil(depth / lanes) + math.ceil(channels / lanes)) * _SUM_CYCLES
    moved = 7.0 * rows * (depth + channels) * 4
    held = moved + 8.0 * rows * (depth + channels)
    spill = moved / L3_BYTES_PER_CYCLE if held > target.l2_bytes else 0.0
    # In a model, weights come from memory: seven quarters of those of direct code.
    stream = _LATE * 7.0 * depth * channels * 4 / MEMORY_BYTES_PER_CYCLE
    across = 7.0 * depth * channels * 4 if run < rows else moved
    busy = (product + stream + ends + spill) / target.threads
    return np.asarray(busy + from_others(across, target), np.float64)
