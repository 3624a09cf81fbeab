"""What a window's config should cost: good defaults without measuring.

In: a task, its window, the target and columns of configs. Out: cycles per vector of results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.program.ir import Select
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import Access, Column
from search_spaces.rules._builder import lanes_of
from search_spaces.rules._rates import conflict_free, evicted
from search_spaces.rules._window import Window, accesses, reduction_of
from search_spaces.space import Columns

_MASK_CYCLES, _MASK_REGISTERS = 2.0, 7
"""Of a mask that is computed where it is used; how many are kept."""
_STREAMS, _JUMP = 16, 0.02
"""Lines of a tile that cost nothing more; what another one costs, as vectors fetched."""
_CROWDED = 0.7
"""What each accumulator beyond half of the registers adds to the arithmetic, as a share of all."""
_SUMS = 8
"""Registers beside terms that were computed ahead."""
_STORED, _TILE = 0.3, 0.7
"""Cycles per vector of results to store it; of each tile, and of each pass over one."""
_FETCHED, _WRITTEN = 1.2, 4.5
"""Cycles per vector that comes from the outer cache; of a vector of results on its way there."""
_KEPT = 1.2
"""Of the innermost cache: what rows may take that the next tiles read again."""
_COLUMN, _ROWS, _FAR = 0.48, 4, 1.8
"""Of the innermost cache: what a column may take whose lines the next block of channels reads;
rows of it that are on their way at a time. Vectors fetched for one of a column, which jumps, if
they come from further than the next cache, or evict each other; the same along rows."""
_HALVES = 1.6
"""Vectors fetched for one of a column where points begin amid lines: some of these leave before
the next block of channels reads their other halves."""
_AHEAD = 0.5
"""Vectors that come in time where a row's points are read in order, as a prefetcher follows."""
_PAIR = 0.5
"""Vectors that come for nothing beside one of a column that is alone in its block of channels,
where blocks are outermost: lines come in pairs."""
_LINE = 64
"""Bytes of a cache line."""
_TURN, _ALONE = 0.4, 0.85
"""Vectors fetched more where blocks of channels are outermost: as rows begin; for each vector that
the block is short of."""


Spans = tuple[Mapping[str, Column], Mapping[str, float], Mapping[str, float]]
"""Along each axis: of tiles, of the whole, of the window."""
Reach = tuple[int, Column, Column]
"""Of the data along an axis: its step, what a tile spans, what tiles read per result."""


def cycles(task: Task, w: Window, target: Target, columns: Columns) -> Column:
    """Cycles per vector of results of a window that is written out, or rows of which are, about:
    the arithmetic, slower with too many accumulators; the loads; the data from the outer cache."""
    size = {"channel": "vectors", "point": "tile_w", "row": "tile_h"}
    tile = {axis: columns[param].astype(np.float64) for axis, param in size.items()}
    extents = {"channel": np.inf, "point": w.points[1], "row": w.rows[1]}
    held = math.prod(tile.values(), start=np.ones(1))
    often, terms = math.prod(w.around.values()), math.prod(e for _, e in w.reduce)
    outermost = columns["order"] == "channels_first"
    weights = tile["channel"] * terms
    down = columns.get("down", np.ones(len(held)))
    along = columns.get("along", np.zeros(len(held))) == 1
    rolled = _rolled(columns)
    whole = tile | {
        "row": tile["row"] * down,
        "point": np.where(along, w.points[1], tile["point"]),
    }
    fits = rolled & (weights + 2 * held + 2 <= target.vector_registers)
    stay = fits | (~rolled & outermost & w.unrolled & (weights + held <= target.vector_registers))
    width = _width(task, target, columns)
    lines = whole | {"channel": tile["channel"] * width / lanes_of(task, target)}
    *reads, _ = accesses(task, w, dict.fromkeys(("batch", *size), 1))
    loads, fetched = np.zeros(len(held)), np.zeros(len(held))
    window = {f"k{i}": float(e) for i, (_, e) in enumerate(w.reduce)}
    once = window | dict.fromkeys(w.around, 1.0)
    for access in reads:
        taken = often * _spans(access, whole, extents, once)
        if "slide" in columns:
            shared = terms_held(w, lanes_of(task, target), columns) / held
            taken = np.where(columns["slide"] == 1, shared, taken)
        if any("row" in dict(dim) for dim in access.dims):
            split = rolled | ("lanes" in columns)
            loads = loads + taken * np.where(split, 1 + _crossing(task, access, width), 1.0)
            fetched = fetched + _fetched(task, access, target, columns, (lines, extents, window))
        else:
            taken = often * _spans(access, tile, extents, once)
            loads = loads + np.where(stay, 0.0, taken)
    tiles = often * _spans(None, tile, extents, once) * lanes_of(task, target) / width
    live = 2 * held + 1
    if "slide" in columns:
        ahead = terms_held(w, lanes_of(task, target), columns) + _SUMS
        live = np.where(columns["slide"] == 1, ahead, live)
    live = np.where(rolled, 2 * held + np.where(fits, weights, 0) + 2, live)
    crowded = np.maximum(live - target.vector_registers, 0) / target.vector_registers
    first = np.where(along, w.reduce[-1][1] * w.points[1], w.reduce[0][1] * down)
    begun = np.where(rolled, 1 / first, 0.0)
    masked = np.where(rolled & (w.channels[1] % width > 0), width / w.channels[1], 0.0)
    arithmetic = operations(task, w, columns) * (1 + _CROWDED * crowded + begun + masked)
    arithmetic = arithmetic + _masks(task, w, target, columns)
    parts = (arithmetic, loads + _STORED + _TILE * tiles, _WRITTEN + _FETCHED * fetched)
    return np.asarray(sum(part**2.5 for part in parts) ** 0.4, np.float64)


def operations(task: Task, w: Window, columns: Columns) -> Column:
    """Operations per vector of results: the window's terms; fewer where those of its rows or
    columns are combined first, which overlapping windows of a tile share."""
    terms = math.prod(e for _, e in w.reduce) * np.ones(len(columns["tile_w"]))
    if "join" not in columns:
        return terms
    data = accesses(task, w, dict.fromkeys(("batch", "row", "point", "channel"), 1))[0]
    window = {f"k{i}": float(e) for i, (_, e) in enumerate(w.reduce)}
    rows = columns["tile_h"] * columns.get("down", np.ones(1))
    tile = {"point": columns["tile_w"], "row": rows}
    extents = {"point": w.points[1], "row": w.rows[1]}
    across, down = (_along(data, axis, tile, extents, window)[2] for axis in ("point", "row"))
    (_, high), (_, wide) = w.reduce
    joined = columns["join"]
    terms = np.where(joined == "rows", wide + (high - 1) * across, terms)
    return np.asarray(np.where(joined == "columns", high + (wide - 1) * down, terms), np.float64)


def terms_held(w: Window, lanes: int, columns: Columns) -> Column:
    """Vectors of terms that a point holds whose windows slide along the channels."""
    ends = 1 + -(-(w.body - 1) // min(lanes, w.channels[1]))
    return np.asarray(columns["vectors"] + ends, np.float64)


def _spans(
    access: Access | None,
    tile: Mapping[str, Column],
    extents: Mapping[str, float],
    window: Mapping[str, float],
) -> Column:
    """Vectors that tiles read per vector of results, the tiles at the ends being smaller; without
    an access, tiles."""
    out, left = np.ones(1), dict(tile)
    for dim in access.dims if access else ():
        steps = {axis: abs(c) for axis, c in dim}
        reach = sum(c * (window[axis] - 1) for axis, c in steps.items() if axis in window)
        moved = next((axis for axis in steps if axis in tile), "")
        if moved:
            size = left.pop(moved)
            out = out * _mean_span(size, extents[moved], steps[moved], reach)
        else:
            out = out * (1 + reach)
    for axis, size in left.items():
        out = out * _mean_span(size, extents[axis], 0, 0.0)
    return out


def _mean_span(size: Column, extent: float, step: int, reach: float) -> Column:
    """Elements that all tiles along an axis read, per element of it."""
    if extent == np.inf:
        return np.asarray((1 + reach + step * (size - 1)) / size)
    whole, rest = extent // size, extent % size
    last = np.where(rest > 0, 1 + reach + step * (rest - 1), 0.0)
    return np.asarray((whole * (1 + reach + step * (size - 1)) + last) / extent)


def _masks(task: Task, w: Window, target: Target, columns: Columns) -> Column:
    """Cycles per vector of results for masks, where the window runs along the channels: known
    before the loops over points where these are inside, and few enough to stay in registers; and
    before all loops where one block holds all channels."""
    compute = reduction_of(task)
    body = compute.body if compute else None
    channel = compute.axes[-1].name if compute else ""
    if not isinstance(body, Select) or all(channel not in b.index.vars() for b in body.bounds):
        return np.zeros(len(columns["vectors"]))
    terms = math.prod(e for _, e in w.reduce)
    one = columns["vectors"] * lanes_of(task, target) >= w.channels[1]
    held = (columns["order"] == "channels_first") & (columns["vectors"] * terms <= _MASK_REGISTERS)
    slide = columns["slide"] == 1 if "slide" in columns else False
    return np.asarray(np.where(one | held | slide, 0.0, _MASK_CYCLES * terms))


def _fetched(
    task: Task,
    access: Access,
    target: Target,
    columns: Columns,
    spans: Spans,
) -> Column:
    """Vectors of data per vector of results that come from the outer cache: rows that neighbouring
    tiles share twice, unless all points of a block of channels stay from one row to the next."""
    tile, ((across, wide, over), (down, high, deep)) = spans[0], _both_ways(access, spans)
    first = columns["order"] == "channels_first"
    width = access.shape[-2] if len(access.shape) > 1 else 1
    item = access.item_bytes
    reused = (high + down) * width * item * target.lanes() * tile["channel"]
    # Points a power of two apart share few sets of the cache.
    row, step = _steps(task, access)
    kept = high * np.where(first, width, wide) <= conflict_free(step)
    stays = first & kept & (reused <= _KEPT * target.l1_bytes)
    # Blocks of channels inside: whole points of a tile's rows come before the next tile; rows
    # about a multiple of the page size apart share the sets.
    lost = np.where(first, 0.0, evicted(row * item, high, (wide - 1) * step * item))
    lost = np.where(kept, lost, 1.0)
    often = (1 - lost) * np.maximum(down, deep) * across + lost * over * deep
    # Blocks of channels inside: a tile's lines lie apart, and no prefetcher follows so many. Where
    # none lies between a row's points, and the next cache holds all, the row is followed as one.
    between = item * (step - tile["channel"] * target.lanes())
    near = task.value(access.buffer).type.nbytes <= target.l2_bytes
    streams = high * np.where((between < _LINE) & near, 1.0, wide)
    jumps = _JUMP * np.maximum(streams - _STREAMS, 0)
    turns = np.where(stays, 0.0, np.where(first, _TURN, jumps))
    fetched = np.where(stays, down * across, often) + turns * across
    # A block that begins amid a line touches one more, whose other half another block reads.
    split = 1 - math.gcd(step, target.lanes()) / target.lanes()
    apart = _ALONE / tile["channel"] + fetched * split / tile["channel"]
    fetched = fetched + np.where(first, apart, 0.0)
    rolled = _fetched_rolled(task, access, target, columns, spans)
    return np.asarray(np.where(_rolled(columns), rolled, fetched))


def _fetched_rolled(
    task: Task,
    access: Access,
    target: Target,
    columns: Columns,
    spans: Spans,
) -> Column:
    """The same where sums roll down columns, or along rows."""
    tile, ((across, wide, over), (down, high, deep)) = spans[0], _both_ways(access, spans)
    value, first = task.value(access.buffer), columns["order"] == "channels_first"
    row, step = _steps(task, access)
    far, amid = value.type.nbytes > target.l2_bytes, step % target.lanes() != 0
    touched = tile["channel"] + (0.5 if amid else 0.0)
    item, vector = access.item_bytes, access.item_bytes * target.lanes()
    again = first | (high * wide * touched * vector > _COLUMN * target.l1_bytes)
    part = np.maximum(np.where(again, touched / tile["channel"], 1.0), _HALVES if amid else 1.0)
    crowded = far | (_ROWS * wide > conflict_free(step))
    # What the next column of points reads again comes again where rows share the sets, and so does
    # the other line of a pair. Blocks of channels inside: whole points come before that.
    whole = evicted(row * item, high, (wide - 1) * step * item)
    lost = evicted(row * item, high, vector * tile["channel"], step * item, wide)
    alone = tile["channel"] % 2 / tile["channel"]
    anew = np.where(first, lost, whole) * (over - across) * (1 + (0.0 if amid else alone))
    column = down * (across * (1 + _PAIR * alone * first) + anew) * part
    column = column * np.where(crowded, _FAR, 1.0)
    if "along" not in columns:
        return np.asarray(column)
    crowded = amid | (high > conflict_free(row))
    turns = np.where(first, 0.0, _TURN if far else 0.0)
    ordered = (over * deep - _AHEAD + turns) * part * np.where(crowded, _FAR, 1.0)
    return np.asarray(np.where(columns["along"] == 1, ordered, column))


def _rolled(columns: Columns) -> npt.NDArray[Any]:
    """Whether sums roll."""
    none = np.zeros(len(columns["vectors"]), np.int32)
    return np.asarray((columns.get("down", none) > 1) | (columns.get("along", none) == 1))


def _steps(task: Task, access: Access) -> tuple[int, int]:
    """Elements from a row to the next, and from a point."""
    strides = task.value(access.buffer).layout.strides
    return strides[-3] if len(strides) > 2 else 0, strides[-2] if len(strides) > 1 else 1


def _width(task: Task, target: Target, columns: Columns) -> Column:
    """Lanes of vectors."""
    full = np.full(len(columns["vectors"]), float(lanes_of(task, target)))
    return columns["lanes"].astype(np.float64) if "lanes" in columns else full


def _crossing(task: Task, access: Access, width: Column) -> Column:
    """Share of the loads that touch two lines of the cache, and take twice as long."""
    aligned = np.gcd(_steps(task, access)[1], width.astype(np.int64)) / width
    return np.asarray(np.where(width * access.item_bytes < _LINE, 0.0, 1 - aligned))


def _both_ways(access: Access, spans: Spans) -> tuple[Reach, Reach]:
    """Along points and along rows."""
    return _along(access, "point", *spans), _along(access, "row", *spans)


def _along(
    access: Access,
    axis: str,
    tile: Mapping[str, Column],
    extents: Mapping[str, float],
    window: Mapping[str, float],
) -> Reach:
    """See `Reach`; of data that the axis does not move, a single element."""
    for dim in access.dims:
        steps = {name: abs(c) for name, c in dim}
        if axis in steps:
            reach = sum(c * (window[k] - 1) for k, c in steps.items() if k in window)
            size, step = tile[axis], steps[axis]
            span = 1 + reach + step * (size - 1)
            return step, span, _mean_span(size, extents[axis], step, reach)
    return 1, np.ones(1), np.ones(1)


def crowds(task: Task, w: Window, columns: Columns) -> npt.NDArray[Any]:
    """Whether the rows of a tile fall into so few sets of the cache that they evict each other."""
    data = accesses(task, w, dict.fromkeys(("batch", "row", "point", "channel"), 1))[0]
    step = task.value(data.buffer).layout.strides[-2:-1] or (1,)
    width = data.shape[-2] if len(data.shape) > 1 else 1
    size = {"row": columns["tile_h"]} | {f"k{i}": e for i, (_, e) in enumerate(w.reduce)}
    rows = np.ones(len(columns["tile_h"]))
    for dim in data.dims:
        if "row" in dict(dim):
            rows = rows + sum(abs(c) * (size[axis] - 1) for axis, c in dim)
    return np.asarray(rows * width > conflict_free(step[0]))
