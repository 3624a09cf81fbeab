"""Reach of a window's tiles: what they span of the data along points and rows.

In: an access, and tiles of many configs. Out: elements, or vectors per vector of results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.cpu import conflict_free_points
from autotune.types import Task
from search_spaces.base import Access, Column
from search_spaces.cpu.window.shape import WindowShape, accesses
from search_spaces.space import Configs

Spans = tuple[Mapping[str, Column], Mapping[str, float], Mapping[str, float]]
"""Along each axis: of tiles, of the whole, of the window."""
Reach = tuple[int, Column, Column]
"""Reach of windows along an axis of the data: its step, what a tile spans, what tiles read per
result."""


def spans(
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
            out = out * mean_span(size, extents[moved], steps[moved], reach)
        else:
            out = out * (1 + reach)
    for axis, size in left.items():
        out = out * mean_span(size, extents[axis], 0, 0.0)
    return out


def mean_span(size: Column, extent: float, step: int, reach: float) -> Column:
    """Elements that all tiles along an axis read, per element of it."""
    if extent == np.inf:
        return np.asarray((1 + reach + step * (size - 1)) / size)
    whole, rest = extent // size, extent % size
    last = np.where(rest > 0, 1 + reach + step * (rest - 1), 0.0)
    return np.asarray((whole * (1 + reach + step * (size - 1)) + last) / extent)


def rolled(configs: Configs) -> npt.NDArray[Any]:
    """Whether sums roll."""
    none = np.zeros(len(configs["vectors"]), np.int32)
    return np.asarray((configs.get("down", none) > 1) | (configs.get("along", none) == 1))


def steps(task: Task, access: Access) -> tuple[int, int]:
    """Elements from a row to the next, and from a point."""
    strides = task.value(access.buffer).layout.strides
    return strides[-3] if len(strides) > 2 else 0, strides[-2] if len(strides) > 1 else 1


def both_ways(access: Access, spans: Spans) -> tuple[Reach, Reach]:
    """Along points and along rows."""
    return along(access, "point", *spans), along(access, "row", *spans)


def along(
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
            return step, span, mean_span(size, extents[axis], step, reach)
    return 1, np.ones(1), np.ones(1)


def crowds(task: Task, w: WindowShape, machine: Machine, configs: Configs) -> npt.NDArray[Any]:
    """Whether the rows of a tile fall into so few sets of the cache that they evict each other."""
    data = accesses(task, w, dict.fromkeys(("batch", "row", "point", "channel"), 1))[0]
    step = task.value(data.buffer).layout.strides[-2:-1] or (1,)
    width = data.shape[-2] if len(data.shape) > 1 else 1
    size = {"row": configs["tile_h"]} | {f"k{i}": e for i, (_, e) in enumerate(w.reduce)}
    rows = np.ones(len(configs["tile_h"]))
    for dim in data.dims:
        if "row" in dict(dim):
            rows = rows + sum(abs(c) * (size[axis] - 1) for axis, c in dim)
    return np.asarray(rows * width > conflict_free_points(machine, step[0]))
