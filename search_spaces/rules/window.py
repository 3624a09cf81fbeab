"""Windows sliding over channels-last data: depthwise convolutions, pools, reductions over rows.

Lanes run along the channels. A tile of `tile_h` x `tile_w` output points times `vectors` vectors
is accumulated in registers over the window; neighbouring points share what they read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.graph.plan import task_flops
from autotune.ops import OPS
from autotune.program.build import loop_var, node_computes
from autotune.program.ir import Clamp, Compute, Index, Load, Select
from autotune.program.rewrite import value_loads
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, TileStructure
from search_spaces.params import Config, Param
from search_spaces.rules._builder import (
    ScheduleBuilder,
    inline_locals,
    lanes_of,
    local_buffers,
    output_name,
    schedule_copies,
    share,
)
from search_spaces.rules._cost import conflict_free
from search_spaces.space import Constraint, Space

Columns = Mapping[str, npt.NDArray[Any]]
ORDERS = ("rows_first", "channels_first")
"""Whether the loop over blocks of channels is innermost, or outermost: then a block's weights
stay, and its data come from a few lines of the cache each."""
_CHAINS = 8
"""Independent operations that keep the vector units busy."""
_MASK_CYCLES, _MASK_REGISTERS = 2.0, 7
"""Of a mask that is computed where it is used; how many are kept."""
_STREAMS, _JUMP = 24, 0.02
"""Lines of a tile that cost nothing more; what another one costs, as vectors fetched."""
_IN_FLIGHT = 256
"""Instructions that the core has in flight: the chains of several tiles run side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The reduction of a task: its loops, outermost first, as (name, extent)."""

    tensor: str
    axes: tuple[tuple[str, int], ...]
    reduce: tuple[tuple[str, int], ...]
    unrolled: bool
    """Whether the window is small enough to be written out."""

    @property
    def points(self) -> tuple[str, int]:
        return self.axes[-2] if len(self.axes) > 1 else ("", 1)

    @property
    def rows(self) -> tuple[str, int]:
        return self.axes[-3] if len(self.axes) > 2 else ("", 1)

    @property
    def channels(self) -> tuple[str, int]:
        return self.axes[-1]


def reduction_of(task: Task) -> Compute | None:
    """The anchor's only reduction; None where it has none or several."""
    found = [c for c in node_computes(task, task.nodes[task.anchor]) if c.combine]
    return found[0] if len(found) == 1 else None


def _reads_once(task: Task) -> bool:
    """Whether the anchor reads each element once, so that what computes it can be inlined."""
    before = {OPS.get(n.op).kind for n in task.nodes[: task.anchor]}
    return before <= {"elementwise"} and task.op.startswith("reduce_")


def window_of(compute: Compute) -> Window:
    """The loops of a reduction."""
    size = math.prod(a.extent for a in compute.reduce)
    return Window(
        tensor=compute.output,
        axes=tuple((loop_var(compute.output, a.name), a.extent) for a in compute.axes),
        reduce=tuple((loop_var(compute.output, a.name), a.extent) for a in compute.reduce),
        unrolled=size <= 32,
    )


def is_window(task: Task) -> bool:
    """Whether the anchor is one reduction of floats or bytes, its last axis the data's last
    dimension."""
    compute = reduction_of(task)
    node = task.nodes[task.anchor]
    if compute is None or not compute.axes or OPS.get(node.op).kind == "elementwise":
        return False
    if compute.dtype not in ("float32", "float64", "int8", "uint8", "int32"):
        return False
    if any(task.value(v).role == "local" for v in node.inputs) and not _reads_once(task):
        return False
    # Lanes must step through the data: the last axis is the data's last dimension.
    loads = list(value_loads(compute.body))
    last = compute.axes[-1].name
    return all(
        isinstance(v, Load) and v.indices and v.indices[-1].coefficient(last) == 1 for v in loads
    )


class WindowRule:
    """See the module."""

    name = "window"
    priority = 8

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and is_window(task)

    def space(self, task: Task, target: Target) -> Space:
        w = self._window(task)
        blocks = -(-w.channels[1] // lanes_of(task, target))
        params = (
            Param(name="vectors", choices=tuple(v for v in (1, 2, 3, 4, 6, 8) if v <= blocks)),
            Param(name="tile_w", choices=_sizes(w.points[1], 14)),
            Param(name="tile_h", choices=_sizes(w.rows[1], 4)),
            Param(name="order", choices=ORDERS if blocks > 1 and w.rows[0] else ORDERS[:1]),
        )
        window = math.prod(e for _, e in w.reduce) if w.unrolled else 1

        def fits(columns: Columns) -> npt.NDArray[Any]:
            held = columns["vectors"] * columns["tile_w"] * columns["tile_h"]
            return np.asarray((held <= target.vector_registers - 4) & (held * window <= 500))

        return Space(params, (Constraint("registers", fits),))

    def _window(self, task: Task) -> Window:
        compute = reduction_of(task)
        if compute is None:
            raise ValueError(f"task {task.key} has no single reduction")
        return window_of(compute)

    def default(self, task: Task, target: Target) -> Config:
        space = self.space(task, target)
        rows = space.rows(20_000, np.random.default_rng(0))
        columns = space.columns(rows)
        w = self._window(task)
        held = columns["vectors"] * columns["tile_w"] * columns["tile_h"]
        if w.unrolled:
            cost = _cost(task, w, target, columns)
        else:
            cost = np.abs(held - 4) + 0.1 * np.abs(columns["vectors"] - 2)
        return space.config(rows[int(np.argmin(cost))])

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        w = self._window(task)
        builder = ScheduleBuilder(task)
        output = output_name(task)
        inline_locals(builder, keep=frozenset((output,)))
        anchor = task.nodes[task.anchor].outputs[0]
        if anchor not in (w.tensor, output) and anchor in local_buffers(builder.program):
            builder.do("inline", buffer=anchor)
        if output != w.tensor:
            builder.do("compute_at", buffer=output, at=w.channels[0])
        lanes = min(lanes_of(task, target), w.channels[1])
        block = lanes * config.number("vectors")
        builder.split(w.channels[0], block, "block", "rest")
        builder.split("rest", lanes, "vector", "lane")
        tile, outer = ["vector", "lane"], ["block"]
        sizes = (("point", "points", w.points, "tile_w"), ("row", "rows", w.rows, "tile_h"))
        for inner, around, (loop, _), param in sizes:
            if loop:
                builder.split(loop, config.number(param), around, inner)
                tile.insert(0, inner)
                outer.insert(1, around)
        batch = [name for name, _ in w.axes[:-3]]
        if config["order"] == "channels_first":
            outer = ["block", *outer[1:]]
        else:
            outer = [*outer[1:], "block"]
        builder.do("reorder", loops=(*batch, *outer, *tile))
        builder.do("cache_write", buffer=w.tensor, loops=tuple(tile))
        self._annotate(builder, w, tile)
        at = f"{w.tensor}.reg"
        for around, (_, extent), size in (
            ("block", w.channels, block),
            ("points", w.points, config.number("tile_w")),
            ("rows", w.rows, config.number("tile_h")),
        ):
            if extent % size:
                builder.do("specialize", loop=around, at=at)
        schedule_copies(builder, target, {output})
        share(builder, target, [*batch, *outer], "shared")
        return builder.schedule

    def _annotate(self, builder: ScheduleBuilder, w: Window, tile: list[str]) -> None:
        kinds = ("", "_init", "_out")
        builder.do("vectorize", loops=builder.present([f"lane{k}" for k in kinds]))
        flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
        if w.unrolled:
            flat += [name for name, _ in w.reduce]
        builder.do("unroll", loops=builder.present(flat))

    def structure(self, task: Task, target: Target, columns: Columns) -> TileStructure:
        w = self._window(task)
        vectors = columns["vectors"].astype(np.float64)
        ones = np.ones(len(vectors))
        tiles = {"channel": np.minimum(vectors * lanes_of(task, target), w.channels[1])}
        extents = {"channel": w.channels[1]}
        for axis, (loop, extent), param in (
            ("point", w.points, "tile_w"), ("row", w.rows, "tile_h"),
        ):  # fmt: skip
            if loop:
                tiles[axis] = columns[param].astype(np.float64)
                extents[axis] = extent
        extents["batch"] = math.prod(e for _, e in w.axes[:-3])
        window = {f"k{i}": e for i, (_, e) in enumerate(w.reduce)}
        chunks = extents["batch"] * ones
        for axis, size in tiles.items():
            chunks = chunks * np.ceil(extents[axis] / size)
        # Rows are around points; blocks of channels around both, or inside.
        first = columns["order"] == "channels_first"
        alone = first & ~_crowds(task, w, columns)
        block = {"channel": np.where(alone, tiles["channel"], w.channels[1] * ones)}
        levels = ({"batch": ones}, block, dict(reversed(tiles.items())))
        lanes = lanes_of(task, target)
        waste = np.ceil(w.channels[1] / lanes) * lanes / w.channels[1] * ones
        held = vectors * columns["tile_w"] * columns["tile_h"]
        written_out = math.prod(window.values()) if w.unrolled else 1
        return TileStructure(
            extents=extents | window,
            reduce_axes=frozenset(window),
            accesses=_accesses(task, w, extents),
            # A window that is written out belongs to the register tile.
            tiles=levels if w.unrolled else (*levels, dict.fromkeys(window, ones)),
            flops=task_flops(task),
            accumulators=np.asarray(held, np.float64),
            vector_axis_waste=waste,
            parallel_chunks=chunks,
            unrolled=np.asarray(held * written_out, np.float64),
            extra={
                **{p: columns[p].astype(np.float64) for p in ("vectors", "tile_w", "tile_h")},
                "channels_first": first.astype(np.float64),
            },
            flops_per_lane=2 if task.op.startswith("conv") else 1,
        )


def _cost(task: Task, w: Window, target: Target, columns: Columns) -> Column:
    """Cycles per vector of results of a window that is written out, about: the arithmetic, slower
    with too few or too many accumulators; the loads; the data from the outer cache."""
    size = {"channel": "vectors", "point": "tile_w", "row": "tile_h"}
    tile = {axis: columns[param].astype(np.float64) for axis, param in size.items()}
    held = math.prod(tile.values(), start=np.ones(1))
    ones = np.ones(len(held))
    tile |= {"batch": ones} | {f"k{i}": e * ones for i, (_, e) in enumerate(w.reduce)}
    *reads, _ = _accesses(task, w, dict.fromkeys(("batch", *size), 1))
    loads, fetched = 0 * ones, 0 * ones
    for access in reads:
        spans = [
            1 + sum((abs(c) * (tile[axis] - 1) for axis, c in dim), 0 * ones)
            for dim in access.dims
        ]
        loads = loads + math.prod(spans, start=ones) / held
        if any("row" in dict(dim) for dim in access.dims):
            fetched = fetched + _fetched(task, access, target, columns, spans)
    crowded = np.maximum(2 * held + 1 - target.vector_registers, 0) / target.vector_registers
    terms = math.prod(e for _, e in w.reduce)
    chains = np.minimum(np.maximum(held, _IN_FLIGHT / terms) / _CHAINS, 1.0)
    masks = _masks(task, w, target, columns)
    parts = (terms * (1 + 2 * crowded) / chains + masks, loads + 6 / held, 2 + 2 * fetched)
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


def _crowds(task: Task, w: Window, columns: Columns) -> npt.NDArray[Any]:
    """Whether the rows of a tile fall into so few sets of the cache that they evict each other."""
    data = _accesses(task, w, dict.fromkeys(("batch", "row", "point", "channel"), 1))[0]
    step = task.value(data.buffer).layout.strides[-2:-1] or (1,)
    width = data.shape[-2] if len(data.shape) > 1 else 1
    size = {"row": columns["tile_h"]} | {f"k{i}": e for i, (_, e) in enumerate(w.reduce)}
    rows = np.ones(len(columns["tile_h"]))
    for dim in data.dims:
        if "row" in dict(dim):
            rows = rows + sum(abs(c) * (size[axis] - 1) for axis, c in dim)
    return np.asarray(rows * width > conflict_free(step[0]))


def _accesses(task: Task, w: Window, extents: Mapping[str, int]) -> tuple[Access, ...]:
    """What the reduction reads and writes, in the axes of the structure."""
    compute = reduction_of(task)
    if compute is None:
        raise ValueError(f"task {task.key} has no single reduction")
    named = [a.name for a in compute.axes]
    axes = dict.fromkeys(named[:-3], "batch")
    axes |= dict(zip(named[-3:], ("row", "point", "channel")[-len(named) :], strict=True))
    axes |= {a.name: f"k{number}" for number, a in enumerate(compute.reduce)}
    out = []
    for load in value_loads(compute.body):
        if isinstance(load, Load):
            shape = task.value(load.buffer).type.shape
            dims = tuple(_dim(index, axes) for index in load.indices)
            out.append(Access(buffer=load.buffer, item_bytes=4, shape=shape, dims=dims))
    order = [a for a in ("batch", "row", "point", "channel") if a in extents]
    written = Access(
        buffer=w.tensor, item_bytes=4, shape=tuple(extents[a] for a in order), written=True,
        dims=tuple(((a, 1),) for a in order),
    )  # fmt: skip
    return (*out, written)


def _dim(index: Index, axes: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """The (axis, coefficient) pairs of an index; a clamped one as if it were not."""
    out: list[tuple[str, int]] = []
    for atom, coefficient in index.terms:
        if isinstance(atom, str):
            out.append((axes[atom], coefficient))
        elif isinstance(atom, Clamp):
            out += _dim(atom.index, axes)
    return tuple(out)


def _sizes(extent: int, most: int) -> tuple[int, ...]:
    """Divisors, and a few sizes that leave a tail."""
    return tuple(
        s for s in range(1, min(extent, most) + 1) if extent % s == 0 or s in (2, 4, 5, 7, 8)
    )


RULES.add(WindowRule.name, WindowRule())
