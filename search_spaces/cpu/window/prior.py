"""Cycles that a window's config should take: good defaults without measuring.

In: a task, its window, the machine and configs. Out: cycles per vector of results. The
constants were fitted to surveys of depthwise convolutions and pools (benchmarks/data, Zen 4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.cpu import clocks, store_cycles
from autotune.program.ir import Select
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import Access, Column
from search_spaces.builder import lanes_of
from search_spaces.cpu.window.fetch_prior import fetched_vectors
from search_spaces.cpu.window.reach import along, both_ways, rolled, spans, steps
from search_spaces.cpu.window.shape import WindowShape, accesses, reduction_of
from search_spaces.space import Configs

PAIR_L1_SHARE = 0.5
"""Share of the L1 cache that a block may take whose lines' other halves the next one reads."""
MASK_CYCLES = 2.0
"""Cycles to compute a mask where it is used."""
MASK_REGISTERS = 7
"""Masks that are kept."""
CROWDED_COST = 1.4
"""Share of the arithmetic that each register too many adds, over all registers."""
SLIDING_REGISTERS = 8
"""Registers beside terms that were computed ahead."""
STORE_CYCLES = 0.3
"""Cycles per vector of results to store it."""
TILE_CYCLES = 0.7
"""Cycles of each tile, and of each pass over one."""
FETCHES = 0.45
"""Times that a vector takes which comes from the outer cache, of what a stream of them takes."""
WRITES = 2.2
"""Times that a vector of results takes on its way to the outer cache."""
OVERLAP_NORM = 2.5
"""Arithmetic, ports and the outer cache work side by side, but not perfectly: their times are
combined by this norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiles:
    """Tiles of many configs, by axis."""

    tile: Mapping[str, Column]
    """Vectors of channels, points and rows that registers hold."""
    whole: Mapping[str, Column]
    """The same with what sums roll on to."""
    extents: Mapping[str, float]
    width: Column
    """Lanes of a vector."""
    full: int
    """Lanes of a register."""
    rolled: npt.NDArray[Any]
    along: npt.NDArray[Any]
    """Whether sums roll at all; along rows."""
    down: Column
    """Rows that sums roll down."""
    weights_kept: npt.NDArray[Any]
    """Whether the weights of sums that roll stay in registers."""

    @property
    def sums(self) -> Column:
        """Vectors of results that a tile has."""
        return math.prod(self.tile.values(), start=np.ones(1))


def _tiles(task: Task, w: WindowShape, target: Target, configs: Configs) -> _Tiles:
    size = {"channel": "vectors", "point": "tile_w", "row": "tile_h"}
    tile = {axis: configs[param].astype(np.float64) for axis, param in size.items()}
    down = configs.get("down", np.ones(len(configs["vectors"])))
    along = configs.get("along", np.zeros(len(down))) == 1
    wide = np.where(along, w.points[1], tile["point"])
    live = tile["channel"] * math.prod(e for _, e in w.reduce)
    live = live + 2 * math.prod(tile.values(), start=np.ones(1)) + 2
    return _Tiles(
        tile=tile,
        whole=tile | {"row": tile["row"] * down, "point": wide},
        extents={"channel": np.inf, "point": w.points[1], "row": w.rows[1]},
        width=_width(task, target, configs),
        full=lanes_of(task, target),
        rolled=rolled(configs),
        along=along,
        down=down,
        weights_kept=rolled(configs) & (live <= target.vector_registers),
    )


def cycles(task: Task, w: WindowShape, machine: Machine, configs: Configs) -> Column:
    """Cycles per vector of results of a window that is written out, or rows of which are, about:
    the arithmetic, slower with too many accumulators; the ports; the data from the outer cache."""
    t = _tiles(task, w, machine.target, configs)
    arithmetic = _arithmetic_cycles(task, w, machine.target, configs, t)
    loads = _loaded(task, w, machine, configs, t)
    once = {f"k{i}": float(e) for i, (_, e) in enumerate(w.reduce)} | dict.fromkeys(w.around, 1.0)
    often = math.prod(w.around.values())
    tiles = often * spans(None, t.tile, t.extents, once) * t.full / t.width
    ports = loads + STORE_CYCLES + clocks(machine, TILE_CYCLES) * tiles
    held = sum(v.type.nbytes for role in ("input", "output") for v in task.by_role(role))
    moved = WRITES * store_cycles(machine, max(held, machine.l1_bytes + 1))
    fetch = FETCHES * machine.target.vector_bytes / machine.cpu.l2_stream_bytes_per_cycle
    moved = moved + fetch * _all_fetched(task, w, machine, configs, t)
    moved = moved * _lone_lines(task, w, machine, configs, t)
    parts = (arithmetic, ports, moved)
    return np.asarray(sum(p**OVERLAP_NORM for p in parts) ** (1 / OVERLAP_NORM), np.float64)


def _arithmetic_cycles(
    task: Task, w: WindowShape, target: Target, configs: Configs, t: _Tiles
) -> Column:
    """Cycles of a window's terms, of beginning sums that roll, and of masks."""
    weights = t.tile["channel"] * math.prod(e for _, e in w.reduce)
    live = 2 * t.sums + 1
    if "slide" in configs:
        ahead = terms_held(w, t.full, configs) + SLIDING_REGISTERS
        live = np.where(configs["slide"] == 1, ahead, live)
    live = np.where(t.rolled, 2 * t.sums + np.where(t.weights_kept, weights, 0) + 2, live)
    crowded = np.maximum(live - target.vector_registers, 0) / target.vector_registers
    first = np.where(t.along, w.reduce[-1][1] * w.points[1], w.reduce[0][1] * t.down)
    begun = np.where(t.rolled, 1 / first, 0.0)
    masked = np.where(t.rolled & (w.channels[1] % t.width > 0), t.width / w.channels[1], 0.0)
    terms = operations(task, w, configs) * (1 + CROWDED_COST * crowded + begun + masked)
    return np.asarray(terms + _masks(task, w, target, configs))


def _loaded(task: Task, w: WindowShape, machine: Machine, configs: Configs, t: _Tiles) -> Column:
    """Vectors loaded per vector of results: data, and weights that do not stay in registers."""
    often = math.prod(w.around.values())
    once = {f"k{i}": float(e) for i, (_, e) in enumerate(w.reduce)} | dict.fromkeys(w.around, 1.0)
    loads = np.zeros(len(t.down))
    for access in _reads(task, w):
        if not _moves_by_row(access):
            taken = often * spans(access, t.tile, t.extents, once)
            # LLVM loads them again for each tile, wherever the loops over these are.
            loads = loads + np.where(t.weights_kept, 0.0, taken)
            continue
        taken = often * spans(access, t.whole, t.extents, once)
        if "slide" in configs:
            taken = np.where(configs["slide"] == 1, terms_held(w, t.full, configs) / t.sums, taken)
        split = t.rolled | ("lanes" in configs)
        loads = loads + taken * np.where(split, 1 + _crossing(task, machine, access, t.width), 1.0)
    return loads


def _all_fetched(
    task: Task, w: WindowShape, machine: Machine, configs: Configs, t: _Tiles
) -> Column:
    """Vectors of data per vector of results that come from the outer cache."""
    window = {f"k{i}": float(e) for i, (_, e) in enumerate(w.reduce)}
    lines = {**t.whole, "channel": t.tile["channel"] * t.width / t.full}
    fetched = np.zeros(len(t.down))
    for access in filter(_moves_by_row, _reads(task, w)):
        fetched = fetched + fetched_vectors(
            task, access, machine, configs, (lines, t.extents, window)
        )
    return fetched


def _lone_lines(
    task: Task, w: WindowShape, machine: Machine, configs: Configs, t: _Tiles
) -> Column:
    """Times that data come, of what is needed. Where the rest of a line, or the other one of a
    pair, is needed by another block of channels, after this one has left the innermost cache, it
    comes in vain."""
    window = {f"k{i}": float(e) for i, (_, e) in enumerate(w.reduce)}
    times, cpu = np.ones(len(t.down)), machine.cpu
    for data in filter(_moves_by_row, _reads(task, w)):
        (_, wide, _), (_, high, _) = both_ways(data, (t.whole, t.extents, window))
        lines = t.width * data.item_bytes * t.tile["channel"] / cpu.line_bytes
        away = high * wide * lines * cpu.line_bytes > PAIR_L1_SHARE * machine.l1_bytes
        whole = np.ceil(lines)
        alone = np.where(whole % 2 == 1, 1 / whole, 0.0)
        away = away | (configs["order"] == "channels_first")
        vain = whole / lines * (1 + cpu.paired_line_waste * alone)
        times = np.maximum(times, np.where(away, vain, 1.0))
    return times


def _reads(task: Task, w: WindowShape) -> tuple[Access, ...]:
    """What a window reads."""
    return accesses(task, w, dict.fromkeys(("batch", "channel", "point", "row"), 1))[:-1]


def _moves_by_row(access: Access) -> bool:
    """Whether the rows of results move it: data, and no weights."""
    return any("row" in dict(dim) for dim in access.dims)


def operations(task: Task, w: WindowShape, configs: Configs) -> Column:
    """Operations per vector of results: the window's terms; fewer where those of its rows or
    columns are combined first, which overlapping windows of a tile share."""
    terms = math.prod(e for _, e in w.reduce) * np.ones(len(configs["tile_w"]))
    if "join" not in configs:
        return terms
    data = accesses(task, w, dict.fromkeys(("batch", "row", "point", "channel"), 1))[0]
    window = {f"k{i}": float(e) for i, (_, e) in enumerate(w.reduce)}
    rows = configs["tile_h"] * configs.get("down", np.ones(1))
    tile = {"point": configs["tile_w"], "row": rows}
    extents = {"point": w.points[1], "row": w.rows[1]}
    across, down = (along(data, axis, tile, extents, window)[2] for axis in ("point", "row"))
    (_, high), (_, wide) = w.reduce
    joined = configs["join"]
    terms = np.where(joined == "rows", wide + (high - 1) * across, terms)
    return np.asarray(np.where(joined == "columns", high + (wide - 1) * down, terms), np.float64)


def terms_held(w: WindowShape, lanes: int, configs: Configs) -> Column:
    """Vectors of terms that a point holds whose windows slide along the channels."""
    ends = 1 + -(-(w.body - 1) // min(lanes, w.channels[1]))
    return np.asarray(configs["vectors"] + ends, np.float64)


def _masks(task: Task, w: WindowShape, target: Target, configs: Configs) -> Column:
    """Cycles per vector of results for masks, where the window runs along the channels: known
    before the loops over points where these are inside, and few enough to stay in registers; and
    before all loops where one block holds all channels."""
    compute = reduction_of(task)
    body = compute.body if compute else None
    channel = compute.axes[-1].name if compute else ""
    if not isinstance(body, Select) or all(channel not in b.index.vars() for b in body.bounds):
        return np.zeros(len(configs["vectors"]))
    terms = math.prod(e for _, e in w.reduce)
    one = configs["vectors"] * lanes_of(task, target) >= w.channels[1]
    held = (configs["order"] == "channels_first") & (configs["vectors"] * terms <= MASK_REGISTERS)
    slide = configs["slide"] == 1 if "slide" in configs else False
    return np.asarray(np.where(one | held | slide, 0.0, MASK_CYCLES * terms))


def _width(task: Task, target: Target, configs: Configs) -> Column:
    """Lanes of vectors."""
    full = np.full(len(configs["vectors"]), float(lanes_of(task, target)))
    return configs["lanes"].astype(np.float64) if "lanes" in configs else full


def _crossing(task: Task, machine: Machine, access: Access, width: Column) -> Column:
    """Share of the loads that touch two lines of the cache, and take twice as long."""
    aligned = np.gcd(steps(task, access)[1], width.astype(np.int64)) / width
    return np.asarray(
        np.where(width * access.item_bytes < machine.cpu.line_bytes, 0.0, 1 - aligned)
    )
