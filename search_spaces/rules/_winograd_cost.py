"""What Winograd's algorithm should cost, in cycles of one core.

In: a contraction, the target and columns of configs. Out: cycles, one per config. Transforms take
what their additions, loads and stores do, and results of short sums what storing them does: both
constants were fitted to measured spaces of ten layers. The rest is of kernels in models, whose
weights come from memory and whose tiles share the caches.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.program.winograd import Matrix, transforms
from autotune.target import Target
from search_spaces.base import Column
from search_spaces.rules._contraction import Contraction
from search_spaces.rules._rates import (
    L3_BYTES_PER_CYCLE,
    channel_waste,
    conflict_free,
    from_others,
    imbalance,
    padded,
    stream_cycles,
)
from search_spaces.space import Columns

_HIDDEN = 0.85
"""Share of the shorter of arithmetic and a stream of weights that the longer one hides."""
_LATENCY = 8.0
"""Multiply-adds that hide the latency of one."""
_STEP = 2.0
"""Cycles per step of a reduction that is not one body: its counter, the branch and late loads."""
_STORE, _QUEUED, _BURST = 0.65, 8, 1.2
"""Cycles per result of a tile that is stored, results that wait for that beside arithmetic, and
cycles more for each of the others."""
_POINT, _ADDITION = 1.1, 0.36
"""Per point of a Winograd tile and vector of channels, on either end, and per addition or
multiply-add of its transforms: loads, stores and arithmetic run side by side."""
_SPILLED = 1.75
"""Times that a transform of results takes whose half-way values are more than registers."""
_BACK_AND_FORTH = 1.5
"""Times that transformed tiles which leave the L2 cache move through the next one."""


def winograd_cycles(c: Contraction, target: Target, columns: Columns, form: str) -> Column:
    """Products of all points, transforms of both ends, and streams that miss the L2 cache."""
    area, ic, oc = c.tile_points(form), c.reduce[2][1], c.channels[1] * c.groups
    tiles = c.count * c.tile_rows(form) * c.tile_columns(form)
    block = columns["block"].astype(np.float64)
    blocks = tiles / block
    points = columns["tile_w"].astype(np.float64)
    rate = _product_rate(c, target, columns, block, ic)
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
    spilled = _SPILLED if height * wide > target.vector_registers else 1.0
    return tiles * (data + vectors_out * (each + _ADDITION * after) * spilled)


def _additions(matrix: Matrix) -> int:
    """Of a product of the matrix and a vector."""
    return sum(sum(v != 0 for v in row) - 1 for row in matrix)


def _spill_cycles(c: Contraction, target: Target, block: Column, tiles: int, area: int) -> Column:
    """Cycles for transformed tiles, where those of a block do not stay in the L2 cache."""
    ic, oc = c.reduce[2][1], c.channels[1] * c.groups
    each = area * (ic * c.groups + oc) * 4.0
    spilled = each * block + min(area * ic * oc * 4.0, 1e5) > target.l2_bytes
    return np.asarray(spilled * each * tiles * (_BACK_AND_FORTH / L3_BYTES_PER_CYCLE))


def _product_rate(
    c: Contraction, target: Target, columns: Columns, block: Column, depth: int
) -> Column:
    """Cycles per multiply-add of full width of products of `block` points."""
    points, vectors = (columns[p].astype(np.float64) for p in ("tile_w", "vectors"))
    total = np.ceil(c.channels[1] / columns["lanes"])
    last = total - (np.ceil(total / vectors) - 1) * vectors
    rate = (total - last) * _tile_rate(target, columns, points, vectors, depth)
    rate = (rate + last * _tile_rate(target, columns, points, last, depth)) / total
    # Steps of an unrolled reduction overlap: the weights of two are in registers at once.
    weights = vectors * np.where(columns["unroll"] > 1, 2, 1)
    rate = rate + np.where(points * vectors + weights + 1 > target.vector_registers, 1.0, 0.0)
    rate = rate + np.where((vectors == 1) & (total > 1), 0.02, 0.0)
    rate = rate + np.where(columns["unroll"] > 4, 0.05, 0.0)
    tail = block % points
    lost = np.where((tail > 0) & (tail < points / 2), points / 2 - tail, 0)
    return np.asarray(rate * channel_waste(c, columns) * (1 + lost / block))


def _tile_rate(
    target: Target, columns: Columns, points: Column, vectors: Column, depth: int
) -> Column:
    """Cycles per multiply-add of full width of a tile of `points` x `vectors`."""
    share = columns["lanes"] / target.lanes()
    held = points * vectors
    work, loads = held * share, vectors * share + points / 2
    step = np.maximum(np.maximum(work, _LATENCY * share), loads)
    step = step + np.where(columns["unroll"] < depth, _STEP / columns["unroll"], 0.0)
    stores = share * (_STORE * held + _BURST * np.maximum(held - _QUEUED, 0)) / depth
    return np.asarray((step + stores) / work + np.where(share < 1, 0.05, 0.0))
