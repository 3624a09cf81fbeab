"""What a contraction's config should cost, in cycles of one core: good defaults without measuring.

In: a contraction, the target and columns of configs. Out: cycles, one per config. The numbers are
rates of present cores (one full-width multiply-add a cycle, caches of 8 ways); only the order that
they give matters, and the tuner corrects it.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from autotune.target import Target
from autotune.types import Task
from search_spaces.base import Column
from search_spaces.rules._contraction import BANDS, Contraction
from search_spaces.rules._contraction_tiles import (
    bands,
    in_band,
    plain,
    strassen_parts,
    together,
)
from search_spaces.rules._rates import (
    L2_BYTES_PER_CYCLE,
    L3_BYTES_PER_CYCLE,
    MEMORY_BYTES_PER_CYCLE,
    channel_waste,
    conflict_free,
    from_others,
    from_writers,
    imbalance,
    stream_cycles,
    tail_waste,
)
from search_spaces.rules._winograd_cost import winograd_cycles
from search_spaces.space import Columns

_PREFETCH_POINTS = 8
"""From which arithmetic takes so long that weights are late unless they are asked for."""
_FEW_TILES = 16
"""Of Winograd's algorithm, up to which its weights are late unless they are asked for."""
_COPY_CYCLES = 8.0
"""Per vector of weights that a kernel packs by itself."""
_CONFLICT = 0.01
"""Share that rows of weights which evict each other from the L1 cache add."""
_DATA, _NEAR = 0.096, 0.3
"""Share that data add which a single vector of weights uses, and the part of it if they lie in the
L2 cache: they are read at as many places as a tile has points, a line of each in turns, while
weights are one stream."""
_WEIGHTS, _FAR_WEIGHTS, _FEW_POINTS = 0.08, 3, 6
"""Share that weights add which only one point uses, and so many times more if what is used again
does not stay in the L2 cache; several points share it, and so many have nothing left of it."""
_TALL = 0.002
"""Share that each further row of a tile adds: rows are more places than points side by side."""
_RAGGED = 0.03
"""Share of a full tile's points that a shorter last one takes for each that it lacks."""
_SPARSE = 0.03
"""Share that data of which a strided kernel skips points add, where they are read in turns with
others: what is fetched ahead is not what is needed."""
_STRIDED_LINE = {"channels_first": 4.0, "rows_first": 3.0, "points_first": 0.0}
"""Cycles per line of results, or of what is added to them, that a tile of one vector of channels
takes where they lie beyond the L2 cache; wider tiles take whole runs of lines."""
_BANDED = 1.03
"""Times what bands are expected to take: small weights, which all threads have in their caches,
are as well used row by row, and bands turned out 2 to 7 % slower there."""
_LATE = 0.7
"""Share of the time that weights take to come from memory which direct code does not hide."""
_SUM_CYCLES = 14.0
"""Per vector of each of the four quarters that Strassen's algorithm combines."""
_SHARED_PATH = 0.1
"""Share of the time that weights take to come, asked for early, in which other data wait."""
_STEP_BYTES, _TILE_BYTES, _CODE_BYTES_PER_CYCLE = 7, 16, 1.0
"""Of code per accumulator: of a step of the reduction, and of a tile; and how fast it comes."""
_SPILL_BYTES_PER_CYCLE = 10.0
"""Of its sums and products, where they leave the L2 cache."""


def cycles(task: Task, c: Contraction, target: Target, columns: Columns) -> Column:
    """Cycles of the whole contraction per config."""
    banded = columns["order"] == BANDS
    columns = {**columns, "order": np.where(banded, "channels_first", columns["order"])}
    total = direct_cycles(task, c, target, columns)
    if banded.any():
        total = np.where(banded, band_cycles(task, c, target, columns), total)
    total = total / together(columns["algorithm"])
    for form in c.winograd:
        chosen = columns["algorithm"] == form
        if chosen.any():
            total = np.where(chosen, winograd_cycles(c, target, columns, form), total)
    chosen = columns["algorithm"] == "strassen"
    if chosen.any():
        total = np.where(chosen, strassen_cycles(c, target, columns), total)
    chosen = columns["algorithm"] == "strassen_runs"
    if chosen.any():
        total = np.where(chosen, strassen_runs_cycles(task, c, target, columns), total)
    early = columns["prefetch"] == "panel"
    gain = np.full(len(early), 0.9 if _prefetch_pays(c, target) else 1.1)
    for form in c.winograd:
        few = c.count * c.tile_rows(form) * c.tile_columns(form) <= _FEW_TILES
        gain[columns["algorithm"] == form] = 0.999 if few else 1.01
    return np.asarray(np.where(early, total * gain, total), np.float64)


def _prefetch_pays(c: Contraction, target: Target) -> bool:
    """Whether weights are worth asking for early. For few points the hardware does so itself, as
    fast as a cache gives them, and what it asks for twice it gets late: steps of recurrent layers
    find their weights in the L2 cache. Single points of huge weights leave it short of memory."""
    points = c.count * c.row_count * c.points[1]
    huge = points == 1 and _weight_bytes(c) > target.l3_bytes / 4
    return c.streams and (points >= _PREFETCH_POINTS or huge)


def _weight_bytes(c: Contraction) -> float:
    return float(c.depth * c.channels[1] * c.groups * c.item_bytes)


def ideal_cycles(c: Contraction, target: Target) -> float:
    """Direct multiply-adds at one full vector a cycle."""
    points = c.count * c.row_count * c.points[1]
    return points * c.channels[1] * c.groups * c.depth / target.lanes()


def waste(c: Contraction, columns: Columns) -> Column:
    """Computed over useful multiply-adds of direct code; tails are cut at vectors and rows."""
    out = channel_waste(c, columns)
    for extent, size in ((c.points[1], columns["tile_w"]), (c.row_count, columns["tile_h"])):
        out = out * tail_waste(extent, size)
    return out


def _tile_efficiency(
    c: Contraction,
    target: Target,
    columns: Columns,
    points: Column,
    depth: int,
    *,
    over: Column | int = 0,
) -> tuple[Column, Column]:
    """(cycles per multiply-add of full width, small preferences) for a reduction depth; `over`:
    registers more than there are that cost nothing yet."""
    vectors = columns["vectors"].astype(np.float64)
    total = np.ceil(c.channels[1] / columns["lanes"])
    blocks = np.ceil(total / vectors)
    last = total - (blocks - 1) * vectors
    rate = (total - last) * tile_rate(target, columns, points, vectors, depth)
    rate = (rate + last * tile_rate(target, columns, points, last, depth)) / total
    held = points * vectors
    # Steps of an unrolled reduction overlap: the weights of two are in registers at once.
    weights = vectors * np.where(columns["unroll"] > 1, 2, 1)
    taste = np.where(held + weights + 1 > target.vector_registers + over, 1.0, 0.0)
    taste = taste + np.where((vectors == 1) & (total > 1), 0.02, 0.0)
    return rate, taste + np.where(columns["unroll"] > 4, 0.05, 0.0)


def tile_rate(
    target: Target, columns: Columns, points: Column, vectors: Column, depth: int
) -> Column:
    """Cycles per multiply-add of full width of a tile of `points` x `vectors`."""
    # Narrow vectors take a share of a cycle each, but as many broadcasts for less work.
    share = columns["lanes"] / target.lanes()
    work = points * vectors * share
    loads = vectors * share + points / 2
    step = np.maximum(np.maximum(work, 8.0 * share), loads) + 2.0 / columns["unroll"]
    narrow = np.where(share < 1, 0.05, 0.0)
    return np.asarray(step / work + (12.0 + 1.5 * points * vectors) / (depth * work) + narrow)


def direct_cycles(task: Task, c: Contraction, target: Target, columns: Columns) -> Column:
    """Direct code: tile efficiency, tails, conflicts, loop order."""
    points = (columns["tile_w"] * columns["tile_h"]).astype(np.float64)
    # Where points share four vectors of weights, one of these may be loaded late.
    over = np.where(columns["vectors"] >= 4, 1, 0)
    rate, taste = _tile_efficiency(c, target, columns, points, c.depth, over=over)
    cost = waste(c, columns) * rate + taste
    strides = task.value(c.data).layout.strides
    free = conflict_free(strides[-2] * c.strides[1])
    cost = cost + np.where(points > free, 0.5, np.where(points > 0.75 * free, 0.01, 0.0))
    cost = cost + _order_cost(task, target, c, columns)
    cost = cost + _data_cost(task, target, c, columns, points)
    chunks = np.ceil(c.points[1] / columns["tile_w"]) * np.ceil(c.row_count / columns["tile_h"])
    chunks = chunks * np.ceil(c.channels[1] / (columns["vectors"] * columns["lanes"]))
    busy = ideal_cycles(c, target) * cost * imbalance(chunks * c.count * c.groups, target)
    busy = busy + _operand_cycles(task, c, target, columns)
    busy = busy + _result_cycles(task, c, target, columns)
    return np.asarray(busy + _crossing(task, c, target, columns), np.float64)


def band_cycles(task: Task, c: Contraction, target: Target, columns: Columns) -> Column:
    """Direct code of threads which share bands: each has its own data, and needs all weights, for
    every band again."""
    count = bands(c, target)
    alone = dataclasses.replace(target, threads=1)
    busy = direct_cycles(task, in_band(c, count), alone, columns) * count / target.threads
    passes = np.asarray([1, count])
    shared, own = stream_cycles(_weight_bytes(c), passes, target) / target.threads
    return np.asarray(_BANDED * busy + _LATE * (own - shared), np.float64)


def _operand_cycles(task: Task, c: Contraction, target: Target, columns: Columns) -> Column:
    """Cycles for weights that are activations: copying them, or reading rows that lie apart."""
    if not c.plain:
        return np.zeros(len(columns["vectors"]))
    copied = task.value(c.weights).type.size / target.lanes() * _COPY_CYCLES / target.threads
    apart = c.depth > conflict_free(c.weight_step)
    conflicts = ideal_cycles(c, target) / target.threads * (_CONFLICT if apart else 0.0)
    return np.asarray(np.where(plain(c, columns), conflicts, copied))


def _crossing(task: Task, c: Contraction, target: Target, columns: Columns) -> Column:
    """Cycles for what lies in other cores' caches. Threads that share the channels need each
    other's data, and their results are needed by the next kernel's threads; threads that share the
    points need all weights."""
    blocks = c.groups * np.ceil(c.channels[1] / (columns["vectors"] * columns["lanes"]))
    if target.threads == 1 or c.count >= target.threads:
        return np.zeros(len(blocks))
    first = ("rows_first", "points_first") if c.rows else ("points_first",)
    extent, size = (c.row_count, "tile_h") if c.rows else (c.points[1], "tile_w")
    near = np.isin(columns["order"], first) & (np.ceil(extent / columns[size]) >= target.threads)
    weights, data, out = (task.value(v).type.nbytes for v in (c.weights, c.data, c.tensor))
    far = (from_others(weights, target), from_writers(data + out, target))
    return np.where(near | (blocks == 1), *far)


def _order_cost(task: Task, target: Target, c: Contraction, columns: Columns) -> Column:
    """Inner operands that leave the L2 cache on every pass are slow."""
    weights, data = (task.value(v).type.nbytes for v in (c.weights, c.data))
    row = data // c.row_count
    costs = {
        "channels_first": 0.0 if data < target.l2_bytes // 2 else 0.01,
        "rows_first": 0.005 if row + weights < target.l2_bytes else 0.01 if c.rows else 0.03,
        "points_first": 0.005 if weights < target.l2_bytes // 2 else 0.02,
    }
    return np.asarray([costs[str(o)] for o in columns["order"]], np.float64)


def _data_cost(
    task: Task, target: Target, c: Contraction, columns: Columns, points: Column
) -> Column:
    """Data are read at as many places as a tile has points, again for every block of channels;
    those of a tile that stay in the L1 cache meanwhile are not."""
    far = task.value(c.data).type.nbytes > target.l2_bytes / 2
    inside = columns["order"] == "points_first"
    stay = inside & (points * c.depth * c.item_bytes < target.l1_bytes / 2)
    data = _DATA / columns["vectors"] * (1.0 if far else _NEAR) * _touched(c, columns)
    panel = columns["vectors"] * columns["lanes"] * (c.depth * c.item_bytes)
    again = np.where(inside, _weight_bytes(c), panel)
    alone = 1 / points - 1 / _FEW_POINTS
    late = np.where(again > 0.75 * target.l2_bytes, _FAR_WEIGHTS * alone, np.maximum(alone, 0))
    cost = np.where(stay, _NEAR, 1.0) * data + _WEIGHTS * late
    sparse = far and c.rows is not None and c.strides[1] > c.reduce[1][1]
    cost = cost + np.where(inside, 0.0, _SPARSE if sparse else 0.0)
    for extent, size in ((c.points[1], columns["tile_w"]), (c.row_count, columns["tile_h"])):
        cost = cost + _RAGGED * (-extent % size) / extent
    return np.asarray(cost + _TALL * (columns["tile_h"] - 1))


def _touched(c: Contraction, columns: Columns) -> Column:
    """Points of the data that a tile reads, over those if a kernel had one row and column."""
    if not c.rows:
        return np.ones(len(columns["vectors"]))
    out = np.ones(len(columns["vectors"]))
    for name, (_, kernel), stride in zip(("tile_h", "tile_w"), c.reduce, c.strides, strict=False):
        size = columns[name]
        out = out * np.minimum((size - 1) * stride + kernel, size * kernel) / size
    return np.asarray(out / c.reduce[0][1])


def _result_cycles(task: Task, c: Contraction, target: Target, columns: Columns) -> Column:
    """Cycles for results, and what is added to them, that lie beyond the L2 cache."""
    out = task.value(c.tensor).type
    alike = [v for v in task.by_role("input") if v.type == out and v.name != c.data]
    nbytes = out.nbytes * (1 + len(alike))
    if nbytes <= target.l2_bytes / 2:
        return np.zeros(len(columns["vectors"]))
    each = np.asarray([_STRIDED_LINE[str(o)] for o in columns["order"]], np.float64)
    return np.asarray(nbytes / 64 * each / columns["vectors"] / target.threads)


def strassen_cycles(c: Contraction, target: Target, columns: Columns) -> Column:
    """Seven products of halves, and the sums at both ends."""
    rows, depth, channels = c.strassen_points, c.depth // 2, c.channels[1] // 2
    run = rows // strassen_parts(c, target)
    product = _strassen_products(c, target, columns, run)
    moved = 7.0 * rows * (depth + channels) * 4
    held = moved + 8.0 * rows * (depth + channels)
    spill = moved / _SPILL_BYTES_PER_CYCLE if held > target.l2_bytes else 0.0
    # In a model, weights come from memory: seven quarters of those of direct code.
    weights = 7.0 * depth * channels * 4
    stream = _LATE * weights / MEMORY_BYTES_PER_CYCLE
    across = from_others(weights, target) if run < rows else from_writers(moved, target)
    busy = (product + stream + _strassen_ends(c, target) + spill) / target.threads
    return np.asarray(busy + across, np.float64)


def strassen_runs_cycles(task: Task, c: Contraction, target: Target, columns: Columns) -> Column:
    """The same in runs of points, each with all weights: these are asked for early, and late only
    where multiplying takes less time than they do."""
    depth, run = c.depth // 2, columns["block"].astype(np.float64)
    runs = c.strassen_points / run
    shares = imbalance(runs, target)
    # As direct code: data are read at as many places as a tile has points.
    near = np.where(run * depth * 4 < target.l2_bytes / 2, _NEAR, 1.0)
    extra = _DATA / columns["vectors"] * near + _RAGGED * (-run % columns["tile_w"]) / run
    steps = {**columns, "unroll": np.maximum(columns["unroll"], 4)}
    product = _strassen_products(c, target, steps, run) * (1 + extra) * shares
    product = (
        product
        * _fed(columns)
        * np.where(columns["tile_w"] > 0.75 * conflict_free(depth), 1.1, 1.0)
    )
    stream = stream_cycles(_weight_bytes(c), np.asarray(np.ceil(runs)), target) / target.threads
    sums = 7.0 * run * depth * 4
    spill = np.where(sums > target.l2_bytes / 2, 2 * sums * runs / _SPILL_BYTES_PER_CYCLE, 0.0)
    busy = np.maximum(product, stream) + _SHARED_PATH * stream
    busy = busy + (_strassen_ends(c, target) + spill) * shares
    busy = busy + _end_bytes(task, c, target) / L3_BYTES_PER_CYCLE / target.threads
    # Other kernels have driven the code of seven products from the caches.
    held = columns["vectors"] * columns["tile_w"]
    code = 7 * held * (_STEP_BYTES * columns["unroll"] + _TILE_BYTES)
    code = code * np.where(run % columns["tile_w"], 2, 1) / _CODE_BYTES_PER_CYCLE
    busy = (busy + code) * (_BANDED if target.threads > 1 else 1.0)
    return np.asarray(busy + from_others(_weight_bytes(c), target))


def _fed(columns: Columns) -> Column:
    """Times what multiplying takes if panels of quarters, mostly two, come from the L2 cache for
    every tile: few points use what comes."""
    cycles = 12 / 7 * 64 / L2_BYTES_PER_CYCLE / columns["tile_w"]
    return np.maximum(1.0, cycles) + 0.02 * cycles


def _end_bytes(task: Task, c: Contraction, target: Target) -> float:
    """Bytes that combining waits for, while nothing is multiplied: data beyond the L2 cache, and
    half of the results there, with what is added to them."""
    data, out = task.value(c.data).type, task.value(c.tensor).type
    alike = [v for v in task.by_role("input") if v.type == out and v.name != c.data]
    results = out.nbytes * (1 + len(alike))
    far = target.l2_bytes / 2
    return data.nbytes * (data.nbytes > far) + results / 2 * (results > far)


def _strassen_products(
    c: Contraction, target: Target, columns: Columns, run: Column | int
) -> Column:
    """Cycles of all cores for the seven products, in runs of so many points."""
    half = dataclasses.replace(c, channels=(c.channels[0], c.channels[1] // 2))
    depth, points = c.depth // 2, columns["tile_w"].astype(np.float64)
    rate, taste = _tile_efficiency(half, target, columns, points, depth)
    rate = (rate + taste) * channel_waste(half, columns) * tail_waste(run, columns["tile_w"])
    product = 7 * c.strassen_points * depth * half.channels[1] / target.lanes() * rate
    return np.asarray(product * np.where(points > conflict_free(depth), 1.5, 1.0))


def _strassen_ends(c: Contraction, target: Target) -> float:
    """Cycles of all cores for combining data and results."""
    lanes = float(target.lanes())
    vectors = math.ceil(c.depth // 2 / lanes) + math.ceil(c.channels[1] // 2 / lanes)
    return c.strassen_points * vectors * _SUM_CYCLES
