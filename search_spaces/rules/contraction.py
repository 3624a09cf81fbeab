"""Convolutions and matrix products: a register tile over output points and channels.

The tile is `tile_h` x `tile_w` output points times `vectors` vectors of channels; the reduction runs
inside it, one outer product at a time. Weights are packed in the order of use. The epilogue is
computed on the tile before it is stored. Depthwise convolutions have a rule of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.graph.plan import task_flops
from autotune.program.build import loop_var
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, TileStructure
from search_spaces.params import Config, Param
from search_spaces.rules._builder import (
    ScheduleBuilder,
    inline_locals,
    output_name,
    schedule_copies,
    share,
)
from search_spaces.space import Constraint, Space

Columns = Mapping[str, npt.NDArray[Any]]
ORDERS = ("channels_first", "rows_first", "points_first")
"""Which outer loops come first: channel blocks (weights stay), rows (both), points (inputs stay)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """The loops of a contraction. Extents are of the whole problem, channels of one group."""

    tensor: str
    batch: tuple[tuple[str, int], ...]
    groups: int
    rows: tuple[str, int] | None
    points: tuple[str, int]
    channels: tuple[str, int]
    reduce: tuple[tuple[str, int], ...]
    data: str
    weights: str
    weight_rank: int
    channel_dim: int
    constant: bool
    stride: int
    dilation: tuple[int, int]


def contraction_of(task: Task) -> Contraction:
    """Describe the anchor of a task."""
    node = task.nodes[task.anchor]
    tensor, (data, weights) = node.outputs[0], node.inputs[:2]
    out = task.value(tensor).type.shape
    a, b = task.value(data).type.shape, task.value(weights).type.shape
    attrs: dict[str, Any] = dict(node.attrs)

    def loop(axis: str, extent: int) -> tuple[str, int]:
        return loop_var(tensor, axis), extent

    constant = task.value(weights).role == "constant"
    if node.op == "conv2d":
        groups = attrs.get("groups", 1)
        return Contraction(
            tensor=tensor, batch=(loop("n", out[0]),), groups=groups, rows=loop("oh", out[1]),
            points=loop("ow", out[2]), channels=loop("oc", out[3] // groups),
            reduce=(loop("kh", b[0]), loop("kw", b[1]), loop("ic", b[2])),
            data=data, weights=weights, weight_rank=4, channel_dim=3, constant=constant,
            stride=attrs.get("strides", (1, 1))[1], dilation=attrs.get("dilations", (1, 1)),
        )  # fmt: skip
    transposed = bool(attrs.get("transpose_b", False))
    batch = tuple(loop(f"b{i}", e) for i, e in enumerate(out[:-2]))
    return Contraction(
        tensor=tensor, batch=batch, groups=1, rows=None, points=loop("m", out[-2]),
        channels=loop("n", out[-1]), reduce=(loop("k", a[-1]),), data=data, weights=weights,
        weight_rank=len(b), channel_dim=len(b) - (2 if transposed else 1), constant=constant,
        stride=1, dilation=(1, 1),
    )  # fmt: skip


def _choices(extent: int, most: int) -> tuple[int, ...]:
    """Tile sizes along an axis: divisors, and sizes that leave a small tail."""
    out = []
    for size in range(1, min(extent, most) + 1):
        tail = -extent % size
        if extent % size == 0 or tail / (extent + tail) <= 0.15 or size in (4, 6, 8, 12, 14):
            out.append(size)
    return tuple(out)


class ContractionRule:
    """See the module."""

    name = "contraction"
    priority = 10

    def matches(self, task: Task) -> bool:
        node = task.nodes[task.anchor]
        made_here = any(task.value(v).role == "local" for v in node.inputs)
        if made_here or task.value(node.outputs[0]).type.dtype != "float32":
            return False
        if node.op == "matmul":
            return True
        if node.op != "conv2d":
            return False
        groups = int(dict(node.attrs).get("groups", 1))  # type: ignore[arg-type]
        w = task.value(node.inputs[1]).type.shape
        return not (groups > 1 and w[2] == 1 and groups == w[3])

    # --------------------------------------------------------------------------------------- space

    def space(self, task: Task, target: Target) -> Space:
        c = contraction_of(task)
        lanes = target.lanes()
        registers = target.vector_registers
        widths = [lanes]
        if c.channels[1] % lanes and lanes > 4:
            widths.append(lanes // 2)
        rows = _choices(c.rows[1], 4) if c.rows else (1,)
        inner = c.reduce[-1][1]
        params = (
            Param(name="lanes", choices=tuple(widths)),
            Param(name="vectors", choices=(1, 2, 3, 4, 5, 6, 8)),
            Param(name="tile_w", choices=_choices(c.points[1], 28)),
            Param(name="tile_h", choices=rows),
            Param(name="order", choices=ORDERS),
            Param(name="unroll", choices=tuple(u for u in (1, 2, 3, 4, 8) if inner % u == 0)),
        )

        def fits(columns: Columns) -> npt.NDArray[Any]:
            held = columns["vectors"] * columns["tile_w"] * columns["tile_h"]
            spare = columns["vectors"] + (1 if registers < 32 else 0)
            return np.asarray(held + spare <= registers)

        def not_wider(columns: Columns) -> npt.NDArray[Any]:
            blocks = np.ceil(c.channels[1] / columns["lanes"])
            return np.asarray(columns["vectors"] <= blocks)

        def body(columns: Columns) -> npt.NDArray[Any]:
            return np.asarray(self._unrolled(columns) <= 700)

        return Space(
            params,
            (
                Constraint("registers", fits),
                Constraint("channels", not_wider),
                Constraint("unrolled body", body),
            ),
        )

    def _unrolled(self, columns: Columns) -> Column:
        held = columns["vectors"] * columns["tile_w"] * columns["tile_h"]
        return np.asarray(held * columns["unroll"], np.float64)

    def default(self, task: Task, target: Target) -> Config:
        space = self.space(task, target)
        rows = space.rows(20_000, np.random.default_rng(0))
        cost = self._cost(task, target, space.columns(rows))
        return space.config(rows[int(np.argmin(cost))])

    def _cost(self, task: Task, target: Target, columns: Columns) -> Column:
        """Cycles per useful multiply-add: waste, latency, loads, conflicts, registers, order."""
        c = contraction_of(task)
        points = (columns["tile_w"] * columns["tile_h"]).astype(np.float64)
        vectors = columns["vectors"].astype(np.float64)
        held = points * vectors
        loads = vectors + points / 2
        step = np.maximum(np.maximum(held, 8.0), loads) + 2.0 / columns["unroll"]
        depth = math.prod(e for _, e in c.reduce)
        cost = self._waste(c, columns) * (step / held + 20.0 / (depth * held))
        cost = cost + np.where(held > 0.75 * target.vector_registers, 0.03, 0.0)
        cost = (
            cost + np.where(vectors == 1, 0.02, 0.0) + np.where(columns["unroll"] > 4, 0.05, 0.0)
        )
        cost = cost + np.where(points > self._conflict_free(task, c), 0.5, 0.0)
        return np.asarray(cost + self._order_cost(task, target, c, columns), np.float64)

    def _conflict_free(self, task: Task, c: Contraction) -> float:
        """Points side by side whose data do not evict each other from an 8-way L1 cache: rows a
        multiple of the page size apart all fall into one set."""
        strides = task.value(c.data).layout.strides
        step = strides[-2] * 4 * c.stride
        return 8.0 * 4096 / math.gcd(step, 4096)

    def _order_cost(self, task: Task, target: Target, c: Contraction, columns: Columns) -> Column:
        """Inner operands that leave the L2 cache on every pass are slow."""
        weights = task.value(c.weights).type.nbytes
        data = task.value(c.data).type.nbytes
        row = data // (c.rows[1] if c.rows else 1)
        costs = {
            "channels_first": 0.0 if data < target.l2_bytes // 2 else 0.03,
            "rows_first": 0.01 if row + weights < target.l2_bytes or c.rows else 0.03,
            "points_first": 0.02 if weights < target.l2_bytes // 2 else 0.1,
        }
        return np.asarray([costs[str(o)] for o in columns["order"]], np.float64)

    def _waste(self, c: Contraction, columns: Columns) -> Column:
        """Computed over useful multiply-adds; tails are cut at whole vectors and tile rows."""
        lanes = columns["lanes"].astype(np.float64)
        waste = np.ceil(c.channels[1] / lanes) * lanes / c.channels[1]
        rows = c.rows[1] if c.rows else 1
        for extent, size in ((c.points[1], columns["tile_w"]), (rows, columns["tile_h"])):
            # A short tail has too few accumulators to hide the latency.
            tail = extent % size
            lost = np.where((tail > 0) & (tail < size / 2), size / 2 - tail, 0)
            waste = waste * (1 + lost / extent)
        return np.asarray(waste, np.float64)

    # ------------------------------------------------------------------------------------ schedule

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        c = contraction_of(task)
        builder = ScheduleBuilder(task)
        inline_locals(builder, keep=frozenset((output_name(task),)))
        output = output_name(task)
        if output != c.tensor:
            builder.do("compute_at", buffer=output, at=loop_var(c.tensor, self._last_axis(task)))
        names = self._split(builder, c, config)
        if c.constant:
            self._pack(builder, c, config)
        outer = self._outer(c, names, str(config["order"]))
        tile = names.tile
        builder.do("reorder", loops=(*[n for n, _ in c.batch], *outer, *tile))
        builder.do("cache_write", buffer=c.tensor, loops=tile)
        self._annotate(builder, c, config, tile)
        self._tails(builder, c, config)
        batch = [n for n, _ in c.batch]
        whole = c.constant or self._cache_weights(task, builder, c, config, target)
        schedule_copies(builder, target, {output})
        share(builder, target, [*batch, *outer] if whole else batch, "shared")
        return builder.schedule

    def _last_axis(self, task: Task) -> str:
        return "oc" if task.op == "conv2d" else "n"

    def _split(self, builder: ScheduleBuilder, c: Contraction, config: Config) -> _Names:
        lanes, vectors = config.number("lanes"), config.number("vectors")
        channels = c.channels[0]
        if c.groups > 1:
            builder.split(channels, c.channels[1], "group", "channel")
            channels = "channel"
        builder.split(channels, lanes * vectors, "block", "rest")
        builder.split("rest", lanes, "vector", "lane")
        builder.split(c.points[0], config.number("tile_w"), "points", "point")
        tile = ["point", "vector", "lane"]
        if c.rows:
            builder.split(c.rows[0], config.number("tile_h"), "rows", "row")
            tile.insert(0, "row")
        return _Names(tile=tuple(tile), grouped=c.groups > 1, rows=c.rows is not None)

    def _outer(self, c: Contraction, names: _Names, order: str) -> list[str]:
        channels = ["group", "block"] if names.grouped else ["block"]
        rows = ["rows"] if names.rows else []
        if order == "channels_first":
            return [*channels, *rows, "points"]
        if order == "rows_first":
            return [*rows, *channels, "points"]
        return [*rows, "points", *channels]

    def _pack_plan(
        self, c: Contraction, config: Config, dims: tuple[int, ...]
    ) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """(splits, order) that put the channels of a tile last; `dims` are the dimensions kept."""
        block = config.number("lanes") * config.number("vectors")
        at = dims.index(c.channel_dim)
        if c.groups == 1:
            rest = [d + (1 if d > at else 0) for d in range(len(dims)) if d != at]
            return ((at, block),), (at, *rest, at + 1)
        splits = ((at, c.channels[1]), (at + 1, block))
        rest = [d + (2 if d > at else 0) for d in range(len(dims)) if d != at]
        return splits, (at, at + 1, *rest, at + 2)

    def _pack(self, builder: ScheduleBuilder, c: Contraction, config: Config) -> None:
        splits, order = self._pack_plan(c, config, tuple(range(c.weight_rank)))
        builder.do("pack", buffer=c.weights, splits=splits, order=order)

    def _cache_weights(
        self, task: Task, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> bool:
        """Pack weights that are activations: whole at the start where batch elements share them or
        are too few for the threads (gives True), else each batch element's own."""
        shape = task.value(c.weights).type.shape
        count = math.prod(e for _, e in c.batch)
        own = c.rows is None and math.prod(shape[:-2]) == count
        whole = not own or (target.threads > 1 and count < 4 * target.threads)
        rank = c.weight_rank
        dims = tuple(range(rank)) if whole else (rank - 2, rank - 1)
        splits, order = self._pack_plan(c, config, dims)
        builder.do(
            "cache_read", buffer=c.weights, loop="" if whole or not c.batch else c.batch[-1][0],
            dims=dims, splits=splits, order=order,
        )  # fmt: skip
        last = f"{c.weights}_p{len(order) - 1}"
        builder.split(last, config.number("lanes"), f"{last}_o", f"{last}_v")
        builder.do("vectorize", loops=(f"{last}_v",))
        if whole:
            outer = [f"{c.weights}_p{i}" for i in range(len(order) - 1)]
            share(builder, target, outer, f"{c.weights}_shared")
        return whole or not c.batch

    def _annotate(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, tile: tuple[str, ...]
    ) -> None:
        lane = [f"lane{s}" for s in ("", "_init", "_out")]
        builder.do("vectorize", loops=builder.present(lane))
        flat = [f"{t}{s}" for t in tile[:-1] for s in ("", "_init", "_out")]
        last = c.reduce[-1][0]
        unroll = config.number("unroll")
        if unroll > 1:
            builder.split(last, unroll, "step", "part")
            flat.append("part")
        builder.do("unroll", loops=builder.present(flat))

    def _tails(self, builder: ScheduleBuilder, c: Contraction, config: Config) -> None:
        """Copies of the tile for last iterations that a guard cuts."""
        at = f"{c.tensor}.reg"
        if c.channels[1] % (config.number("lanes") * config.number("vectors")):
            builder.do("specialize", loop="block", at=at)
        if c.points[1] % config.number("tile_w"):
            builder.do("specialize", loop="points", at=at)
        if c.rows and c.rows[1] % config.number("tile_h"):
            builder.do("specialize", loop="rows", at=at)

    # ----------------------------------------------------------------------------------- structure

    def structure(self, task: Task, target: Target, columns: Columns) -> TileStructure:
        c = contraction_of(task)
        ones = np.ones(len(columns["vectors"]))
        extents = {"batch": math.prod(e for _, e in c.batch), "point": c.points[1]}
        extents |= {"channel": c.channels[1] * c.groups}
        if c.rows:
            extents["row"] = c.rows[1]
        reduce = {self._axis(n, c): e for n, e in c.reduce}
        block = np.minimum(columns["lanes"] * columns["vectors"], c.channels[1]).astype(np.float64)
        tile = {
            "channel": block,
            "point": columns["tile_w"].astype(np.float64),
            "row": columns["tile_h"].astype(np.float64),
        }
        if not c.rows:
            del tile["row"]
        waste = self._waste(c, columns)
        chunks = math.prod(e for _, e in c.batch) * ones
        for axis, size in tile.items():
            chunks = chunks * np.ceil(extents[axis] / size)
        return TileStructure(
            extents=extents | reduce,
            reduce_axes=frozenset(reduce),
            accesses=self._accesses(task, c),
            tiles=self._levels(c, columns, tile, ones),
            flops=task_flops(task),
            accumulators=np.asarray(
                columns["vectors"] * columns["tile_w"] * columns["tile_h"], np.float64
            ),
            vector_axis_waste=waste,
            parallel_chunks=chunks,
            unrolled=self._unrolled(columns),
            extra={
                "lanes": columns["lanes"].astype(np.float64),
                "vectors": columns["vectors"].astype(np.float64),
                "tile_w": columns["tile_w"].astype(np.float64),
                "tile_h": columns["tile_h"].astype(np.float64),
                "tail_w": c.points[1] % columns["tile_w"].astype(np.float64),
            },
        )

    def _axis(self, loop: str, c: Contraction) -> str:
        return loop.removeprefix(loop_var(c.tensor, ""))

    def _levels(
        self, c: Contraction, columns: Columns, tile: Mapping[str, Column], ones: Column
    ) -> tuple[Mapping[str, Column], ...]:
        """Tiles inside the batch loop, then inside each outer loop, then one reduction step."""
        order = columns["order"]
        inner: list[dict[str, Column]] = [{"batch": ones}]
        full = {"channel": c.channels[1] * c.groups, "point": c.points[1]}
        if c.rows:
            full["row"] = c.rows[1]
        depth = {
            "channels_first": {"channel": 0, "row": 1, "point": 2},
            "rows_first": {"row": 0, "channel": 1, "point": 2},
            "points_first": {"row": 0, "point": 1, "channel": 2},
        }
        for level in range(3):
            now: dict[str, Column] = {}
            for axis, size in tile.items():
                reached = np.zeros(len(ones), bool)
                for name, at in depth.items():
                    reached |= (order == name) & (at[axis] <= level)
                now[axis] = np.where(reached, size, full[axis] * ones)
            inner.append(now)
        inner.append({self._axis(n, c): ones for n, _ in c.reduce})
        return tuple(inner)

    def _accesses(self, task: Task, c: Contraction) -> tuple[Access, ...]:
        data, weights = (task.value(v).type.shape for v in (c.data, c.weights))
        out = task.value(c.tensor).type.shape
        if c.rows:
            s, d = c.stride, c.dilation
            window = (
                (("batch", 1),), (("row", s), ("kh", d[0])), (("point", s), ("kw", d[1])),
                (("ic", 1),),
            )  # fmt: skip
            return (
                Access(buffer="data", item_bytes=4, shape=data, dims=window),
                Access(
                    buffer="weights", item_bytes=4, shape=weights,
                    dims=((("kh", 1),), (("kw", 1),), (("ic", 1),), (("channel", 1),)),
                ),
                Access(
                    buffer="out", item_bytes=4, shape=out, written=True,
                    dims=((("batch", 1),), (("row", 1),), (("point", 1),), (("channel", 1),)),
                ),
            )  # fmt: skip
        count = math.prod(e for _, e in c.batch)
        k = c.reduce[0][1]
        shared = len(weights) == 2
        return (
            Access(
                buffer="data", item_bytes=4, shape=(count, c.points[1], k),
                dims=((("batch", 1),), (("point", 1),), (("k", 1),)),
            ),
            Access(
                buffer="weights", item_bytes=4,
                shape=(1 if shared else count, k, c.channels[1]),
                dims=(() if shared else (("batch", 1),), (("k", 1),), (("channel", 1),)),
            ),
            Access(
                buffer="out", item_bytes=4, shape=(count, c.points[1], c.channels[1]),
                dims=((("batch", 1),), (("point", 1),), (("channel", 1),)), written=True,
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    tile: tuple[str, ...]
    grouped: bool
    rows: bool


RULES.add(ContractionRule.name, ContractionRule())
