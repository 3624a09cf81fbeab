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
from search_spaces.rules._cost import conflict_free
from search_spaces.rules._window import Window, accesses, reduction_of

Columns = Mapping[str, npt.NDArray[Any]]
_CHAINS = 8
"""Independent operations that keep the vector units busy."""
_MASK_CYCLES, _MASK_REGISTERS = 2.0, 7
"""Of a mask that is computed where it is used; how many are kept."""
_STREAMS, _JUMP = 24, 0.02
"""Lines of a tile that cost nothing more; what another one costs, as vectors fetched."""
_IN_FLIGHT = 256
"""Instructions that the core has in flight: the chains of several tiles run side by side."""


def cycles(task: Task, w: Window, target: Target, columns: Columns) -> Column:
    """Cycles per vector of results of a window that is written out, or rows of which are, about:
    the arithmetic, slower with too few or too many accumulators; the loads; the data from the
    outer cache."""
    size = {"channel": "vectors", "point": "tile_w", "row": "tile_h"}
    tile = {axis: columns[param].astype(np.float64) for axis, param in size.items()}
    held = math.prod(tile.values(), start=np.ones(1))
    ones = np.ones(len(held))
    tile |= {"batch": ones} | {f"k{i}": e * ones for i, (_, e) in enumerate(w.reduce)}
    *reads, _ = accesses(task, w, dict.fromkeys(("batch", *size), 1))
    loads, fetched = 0 * ones, 0 * ones
    often = math.prod(w.around.values())
    for access in reads:
        spans = [
            1 + sum((abs(c) * (tile[axis] - 1) for axis, c in dim), 0 * ones)
            for dim in access.dims
        ]
        at_once = [
            1 + sum((abs(c) * (tile[a] - 1) for a, c in dim if a not in w.around), 0 * ones)
            for dim in access.dims
        ]
        loads = loads + often * math.prod(at_once, start=ones) / held
        if any("row" in dict(dim) for dim in access.dims):
            fetched = fetched + _fetched(task, access, target, columns, spans)
    crowded = np.maximum(2 * held + 1 - target.vector_registers, 0) / target.vector_registers
    terms = math.prod(e for _, e in w.reduce)
    chains = np.minimum(np.maximum(held, _IN_FLIGHT / terms) / _CHAINS, 1.0)
    masks = _masks(task, w, target, columns)
    parts = (terms * (1 + 2 * crowded) / chains + masks, loads + 6 * often / held, 2 + 2 * fetched)
    return np.asarray(sum(part**4 for part in parts) ** 0.25, np.float64)


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
    return np.asarray(np.where(one | held, 0.0, _MASK_CYCLES * terms))


def _fetched(
    task: Task, access: Access, target: Target, columns: Columns, spans: list[Column]
) -> Column:
    """Vectors of data per vector of results that come from the outer cache: rows that neighbouring
    tiles share twice, unless all points of a block of channels stay from one row to the next."""
    steps = {axis: abs(c) for dim in access.dims for axis, c in dim}
    across, down = steps.get("point", 1), steps.get("row", 1)
    *_, rows, points, _ = (np.ones(1), np.ones(1), *spans)
    first = columns["order"] == "channels_first"
    width = access.shape[-2] if len(access.shape) > 1 else 1
    plane = math.prod(access.shape[:-1]) * access.item_bytes * target.lanes()
    stays = first & (plane * columns["vectors"] <= 1.5 * target.l1_bytes)
    # Points a power of two apart share few sets of the cache.
    step = task.value(access.buffer).layout.strides[-2:-1] or (1,)
    held = rows * np.where(first, width, points)
    stays = stays & (held <= conflict_free(step[0]))
    twice = np.maximum(down, rows / columns["tile_h"])
    often = np.where(held <= conflict_free(step[0]), twice, rows * points / columns["tile_w"])
    # Blocks of channels inside: a tile's lines lie apart, and no prefetcher follows so many.
    jumps = _JUMP * np.maximum(rows * points - _STREAMS, 0)
    return np.asarray(np.where(stays, down, often + np.where(first, 0.5, jumps)) * across)


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
