"""Windows sliding over channels-last data: depthwise convolutions, pools, reductions over rows.

Lanes run along the channels. A tile of `tile_h` x `tile_w` output points times `vectors` vectors
is accumulated in registers over the window; neighbouring points share what they read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.graph.plan import task_flops
from autotune.ops import OPS
from autotune.program.ir import Load
from autotune.program.rewrite import value_loads
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import RULES, Column, TileStructure
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
from search_spaces.rules._window import (
    Window,
    accesses,
    joins,
    reduction_of,
    row_bands,
    slides,
    window_of,
)
from search_spaces.rules._window_cost import crowds, cycles, operations, terms_held
from search_spaces.space import Constraint, Space

Columns = Mapping[str, npt.NDArray[Any]]
ORDERS = ("rows_first", "channels_first")
"""Whether the loop over blocks of channels is innermost, or outermost: then a block's weights
stay, and its data come from a few lines of the cache each."""
JOINS = ("none", "rows", "columns")
"""Which terms of a window are combined first, so that windows that overlap share them."""


def _reads_once(task: Task) -> bool:
    """Whether the anchor reads each element once, so that what computes it can be inlined."""
    before = {OPS.get(n.op).kind for n in task.nodes[: task.anchor]}
    return before <= {"elementwise"} and task.op.startswith("reduce_")


def is_window(task: Task) -> bool:
    """Whether the anchor is one reduction of floats or bytes, its last axis the data's last
    dimension."""
    compute = reduction_of(task)
    node = task.nodes[task.anchor]
    if compute is None or not compute.axes or OPS.get(node.op).kind == "elementwise":
        return False
    if compute.dtype not in ("float32", "float64", "int8", "uint8", "int32", "int64"):
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
        sliding = slides(task, w)
        sizes = (1, 2, 3, 4, 6, 8, 12, 16) if sliding else (1, 2, 3, 4, 6, 8)
        params = (
            Param(name="vectors", choices=tuple(v for v in sizes if v <= blocks)),
            Param(name="tile_w", choices=_sizes(w.points[1], 14)),
            Param(name="tile_h", choices=_sizes(w.rows[1], 4)),
            Param(name="order", choices=ORDERS if blocks > 1 and w.rows[0] else ORDERS[:1]),
            *((Param(name="join", choices=JOINS),) if joins(task, w) else ()),
            *((Param(name="slide", choices=(0, 1)),) if sliding else ()),
        )

        def fits(columns: Columns) -> npt.NDArray[Any]:
            points = columns["tile_w"] * columns["tile_h"]
            held = columns["vectors"] * points
            good = (held <= target.vector_registers - 4) & (held * w.body <= 500)
            if "slide" in columns:
                terms = terms_held(w, lanes_of(task, target), columns)
                apart = (points == 1) & (terms <= target.vector_registers - 8)
                good = np.where(columns["slide"] == 1, apart, good & (columns["vectors"] <= 8))
            return np.asarray(good)

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
        if w.body > 1:
            cost = cycles(task, w, target, columns)
        else:
            cost = np.abs(held - 4) + 0.1 * np.abs(columns["vectors"] - 2)
        return space.config(rows[int(np.argmin(cost))])

    def _counted(
        self, task: Task, w: Window, target: Target, columns: Columns
    ) -> dict[str, Column]:
        """What the cost of defaults says of a window that is written out."""
        if w.body <= 1:
            return {}
        vectors = math.prod(extent for _, extent in w.axes) / lanes_of(task, target)
        cost = cycles(task, w, target, columns) * vectors
        return {"counted": np.log2(cost * 2 * target.lanes() / task_flops(task))}

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
        bands = row_bands(w, target.threads, config.number("tile_h"))
        if config["order"] == "channels_first" and bands > 1:
            builder.split("rows", w.rows[1] // config.number("tile_h") // bands, "bands", "strip")
            outer = ["bands", "block", "strip", "points"]
        elif config["order"] == "channels_first":
            outer = ["block", *outer[1:]]
        else:
            outer = [*outer[1:], "block"]
        builder.do("reorder", loops=(*batch, *outer, *tile))
        slide = dict(config.items).get("slide", 0)
        builder.do("cache_write", buffer=w.tensor, loops=tuple(tile[-1:] if slide else tile))
        at = f"{w.tensor}.reg"
        if slide:
            builder.do("slide", loop=w.reduce[0][0], at="vector")
            at += ".terms"
        joined = dict(config.items).get("join", "none")
        if joined != "none":
            builder.do("join", loop=w.reduce[0 if joined == "rows" else 1][0])
        self._annotate(builder, w, tile)
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
        kinds = ("", "_init", "_out", "_terms")
        builder.do("vectorize", loops=builder.present([f"lane{k}" for k in kinds]))
        flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
        flat += [f"{name}{k}" for name, _ in w.inner for k in ("", "_terms")]
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
        alone = first & ~crowds(task, w, columns)
        block = {"channel": np.where(alone, tiles["channel"], w.channels[1] * ones)}
        levels = ({"batch": ones}, block, dict(reversed(tiles.items())))
        lanes = lanes_of(task, target)
        waste = np.ceil(w.channels[1] / lanes) * lanes / w.channels[1] * ones
        held = vectors * columns["tile_w"] * columns["tile_h"]
        return TileStructure(
            extents=extents | window,
            reduce_axes=frozenset(window),
            accesses=accesses(task, w, extents),
            # A window that is written out belongs to the register tile.
            tiles=levels if w.unrolled else (*levels, dict.fromkeys(w.around, ones)),
            flops=task_flops(task),
            accumulators=np.asarray(held, np.float64),
            vector_axis_waste=waste,
            parallel_chunks=chunks,
            unrolled=np.asarray(held * w.body, np.float64),
            extra={
                **{p: columns[p].astype(np.float64) for p in ("vectors", "tile_w", "tile_h")},
                "channels_first": first.astype(np.float64),
                "operations": operations(task, w, columns),
                **self._counted(task, w, target, columns),
            },
            flops_per_lane=2 if task.op.startswith("conv") else 1,
        )


def _sizes(extent: int, most: int) -> tuple[int, ...]:
    """Divisors, and a few sizes that leave a tail."""
    return tuple(
        s for s in range(1, min(extent, most) + 1) if extent % s == 0 or s in (2, 4, 5, 7, 8)
    )


RULES.add(WindowRule.name, WindowRule())
