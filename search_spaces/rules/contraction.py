"""Convolutions and matrix products: a register tile over output points and channels.

`algorithm` says how: `direct`; `bf16`, the same with operands rounded to bfloat16, two products an
instruction; `int8`, four products of uint8 data and int8 weights an instruction; `winogradM` and
`winogradMxN`, a convolution over tiles of M x M or M x N output points with fewer multiplications,
`block` tiles at a time (see `autotune.schedule.winograd`); or `strassen`, seven products of halves
(see `autotune.schedule.strassen`). The register tile is `tile_h` x `tile_w` points (with Winograd:
`tile_w` tiles) times `vectors` vectors of channels; the reduction runs inside it, one outer
product at a time. Weights are packed in the order of use; those that few points use are asked for
a panel ahead (`prefetch`); those that are activations are packed by the kernel, or read where they
lie (`weights`). The epilogue is computed on the tile before it is stored. Depthwise convolutions
have a rule of their own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.graph.plan import task_flops
from autotune.program.build import loop_var
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import RULES, TileStructure
from search_spaces.params import Config, Param
from search_spaces.rules._builder import (
    ScheduleBuilder,
    inline_locals,
    output_name,
    schedule_copies,
    share,
)
from search_spaces.rules._contraction import (
    BANDS,
    Contraction,
    accesses_of,
    contraction_of,
    is_contraction,
    levels_of,
)
from search_spaces.rules._contraction_tiles import (
    DIRECT,
    ORDERS,
    PACKED,
    PLAIN,
    TOGETHER,
    algorithms,
    bands,
    copies,
    in_band,
    outer_loops,
    pack_plan,
    plain,
    sizes,
    strassen_parts,
    together,
    unrolled,
)
from search_spaces.rules._cost import cycles, ideal_cycles, waste
from search_spaces.space import Columns, Constraint, Space

Mask = npt.NDArray[Any]
_CODES = {
    "direct": 0, "bf16": 1, "int8": 3, "winograd2": 2, "winograd4": 4, "strassen": 5,
    "winograd4x2": 6, "winograd5": 7, "winograd6": 8,
}  # fmt: skip
_UNROLLED = 480
"""Multiply-adds of all unrolled bodies: more takes long to build and gains nothing."""


class ContractionRule:
    """See the module."""

    name = "contraction"
    priority = 10

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and is_contraction(task, short=False)

    # --------------------------------------------------------------------------------------- space

    def space(self, task: Task, target: Target) -> Space:
        c = contraction_of(task)
        lanes, inner = target.lanes(), c.reduce[-1][1]
        forms = c.winograd if target.accuracy == "normal" else ()
        widths = [lanes]
        if c.channels[1] % lanes and lanes > 4:
            widths.append(lanes // 2)
        band = in_band(c, bands(c, target))
        columns = set(sizes(c.points[1], 28)) | set(range(1, 17) if forms else ())
        columns |= set(sizes(band.points[1], 28))
        rows = {*sizes(c.row_count, 4), *sizes(band.row_count, 4)}
        orders = (*ORDERS, BANDS) if bands(c, target) > 1 else ORDERS
        if c.strassen and target.accuracy == "normal":
            columns |= set(sizes(c.strassen_points // strassen_parts(c, target), 28))
        blocks = {1}.union(*(c.blocks(f) for f in forms))
        read = (Param(name="weights", choices=(PACKED, PLAIN)),) if c.plain else ()
        params = (
            Param(name="algorithm", choices=algorithms(task, c, target)),
            Param(name="lanes", choices=tuple(widths)),
            Param(name="vectors", choices=(1, 2, 3, 4, 5, 6, 8)),
            Param(name="tile_w", choices=tuple(sorted(columns))),
            Param(name="tile_h", choices=tuple(sorted(rows))),
            Param(name="order", choices=orders),
            Param(name="unroll", choices=tuple(u for u in (1, 2, 3, 4, 8) if inner % u == 0)),
            Param(name="block", choices=tuple(sorted(blocks))),
            Param(name="prefetch", choices=("none", "panel") if c.streams else ("none",)),
            *read,
        )
        return Space(params, self._constraints(c, target))

    def _constraints(self, c: Contraction, target: Target) -> tuple[Constraint, ...]:
        registers = target.vector_registers

        def fits(columns: Columns) -> Mask:
            held = columns["vectors"] * columns["tile_w"] * columns["tile_h"]
            spare = columns["vectors"] + (1 if registers < 32 else 0)
            return np.asarray(held + spare <= registers)

        def not_wider(columns: Columns) -> Mask:
            return np.asarray(columns["vectors"] <= np.ceil(c.channels[1] / columns["lanes"]))

        def body(columns: Columns) -> Mask:
            return np.asarray(unrolled(columns) * copies(c, columns) <= _UNROLLED)

        band = in_band(c, bands(c, target))

        def tiled(columns: Columns) -> Mask:
            """Whether tiles divide well what they are cut of."""
            banded = columns["order"] == BANDS

            def divides(name: str, whole: int, part: int, most: int) -> Mask:
                in_whole, in_part = (np.isin(columns[name], sizes(e, most)) for e in (whole, part))
                return np.where(banded, in_part, in_whole)

            return np.asarray(
                divides("tile_w", c.points[1], band.points[1], 28)
                & divides("tile_h", c.row_count, band.row_count, 4)
            )

        def algorithm(columns: Columns) -> Mask:
            direct = np.isin(columns["algorithm"], DIRECT)
            ok = direct & (columns["block"] == 1) & tiled(columns)
            depth = c.reduce[-1][1] // together(columns["algorithm"])
            ok &= depth % columns["unroll"] == 0
            ok &= (columns["algorithm"] == "direct") | ~plain(c, columns)
            several = c.channels[1] > columns["lanes"] * columns["vectors"]
            ok &= (several & (columns["algorithm"] == "direct")) | (columns["prefetch"] == "none")
            for form in c.winograd:
                own = np.flatnonzero(columns["algorithm"] == form)
                ok[own] = self._winograd(c, columns, own, form)
            if c.strassen:
                ok |= (columns["algorithm"] == "strassen") & self._halves(c, columns, target)
            return np.asarray(ok)

        return (
            Constraint("registers", fits),
            Constraint("channels", not_wider),
            Constraint("unrolled body", body),
            Constraint("algorithm", algorithm),
        )

    def _winograd(self, c: Contraction, columns: Columns, own: Mask, form: str) -> Mask:
        """Params that mean nothing to Winograd have their first value; blocks are whole."""
        tiles, side = columns["block"][own], columns["tile_w"][own]
        ok = (columns["tile_h"][own] == 1) & (columns["order"][own] == ORDERS[0])
        ok &= columns["prefetch"][own] == "none"
        ok &= np.isin(tiles, c.blocks(form)) & (side <= tiles)
        tail = (-tiles) % side
        return np.asarray(ok & (tail / (tiles + tail) <= 0.2))

    def _halves(self, c: Contraction, columns: Columns, target: Target) -> Mask:
        """As for Winograd; tiles lie in the halves."""
        ok = (columns["tile_h"] == 1) & (columns["order"] == ORDERS[0]) & (columns["block"] == 1)
        points = c.strassen_points // strassen_parts(c, target)
        ok &= np.isin(columns["tile_w"], sizes(points, 28))
        ok &= columns["prefetch"] == "none"
        ok &= c.reduce[-1][1] // 2 % columns["unroll"] == 0
        return np.asarray(ok & (columns["vectors"] * columns["lanes"] <= c.channels[1] // 2))

    def default(self, task: Task, target: Target) -> Config:
        space, c = self.space(task, target), contraction_of(task)
        rows = space.rows(20_000, np.random.default_rng(0))
        best = rows[int(np.argmin(cycles(task, c, target, space.columns(rows))))]
        if str(space.config(best)["algorithm"]) in c.winograd:
            # The sample holds few tiles of each of its forms: better ones are near.
            best = space.descend(best, lambda columns: cycles(task, c, target, columns))
        return space.config(best)

    # ------------------------------------------------------------------------------------ schedule

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        c = contraction_of(task)
        builder = ScheduleBuilder(task)
        output = output_name(task)
        inline_locals(builder, keep=frozenset((output, c.tensor)))
        if output != c.tensor:
            builder.do("compute_at", buffer=output, at=c.channels[0])
        if config["algorithm"] in DIRECT:
            self._direct(task, builder, c, config, target)
        elif config["algorithm"] == "strassen":
            self._strassen(builder, c, config, target)
        else:
            self._tiled(builder, c, config, target)
        return builder.schedule

    def _direct(
        self, task: Task, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        narrow = config["algorithm"] == "bf16"
        neighbours = TOGETHER.get(str(config["algorithm"]), 1)
        if narrow:
            builder.do("narrow", buffer=c.data, tensor=c.tensor)
        if c.groups > 1:
            builder.split(c.channels[0], c.channels[1], "group", "channel")
        if c.constant:
            # Before the channels are split: a guard on the last block would hide that they stay
            # inside their group.
            splits, order = pack_plan(c, config, tuple(range(c.weight_rank)))
            dtype = "bfloat16" if narrow else ""
            builder.do("pack", buffer=c.weights, splits=splits, order=order, dtype=dtype)
        count = bands(c, target) if config["order"] == BANDS else 1
        tile = self._split(builder, c, config, count)
        if neighbours > 1:
            builder.split(c.reduce[-1][0], neighbours, "pairs", "pair")
        outer = outer_loops(c, str(config["order"]))
        batch = [n for n, _ in c.batch]
        builder.do("reorder", loops=(*batch, *outer, *tile))
        builder.do("cache_write", buffer=c.tensor, loops=tile)
        self._annotate(builder, c, config, tile)
        if neighbours > 1:
            builder.do("reorder", loops=(*tile, "pair"))
            builder.do("dot", loop="pair")
        if config["prefetch"] == "panel":
            last = "step" if config.number("unroll") > 1 else c.reduce[-1][0]
            builder.do("prefetch", buffer=c.weights, panel="block", loop=last)
        at, part = f"{c.tensor}.reg", in_band(c, count)
        for loop, extent, size in (
            ("block", c.channels[1], config.number("lanes") * config.number("vectors")),
            ("points", part.points[1], config.number("tile_w")),
            ("rows", part.row_count, config.number("tile_h")),
        ):
            if extent % size:
                builder.do("specialize", loop=loop, at=at)
        as_it_is = c.constant or dict(config.items).get("weights") == PLAIN
        whole = as_it_is or self._cache_weights(task, builder, c, config, target)
        schedule_copies(builder, target, {output_name(task)})
        share(builder, target, [*batch, *outer] if whole else batch, "shared")

    def _tiled(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        form, block = str(config["algorithm"]), config.number("block")
        height, width = c.tile_sides(form)
        block_h, block_w = c.block_shape(form, block)
        builder.do(
            "winograd", buffer=c.tensor, tile_h=height, tile_w=width, block_h=block_h,
            block_w=block_w, lanes=target.lanes(),
        )  # fmt: skip
        size = config.number("lanes") * config.number("vectors")
        if c.groups > 1:
            builder.split(c.channels[0], c.channels[1], "group", "channel")
            splits: tuple[tuple[int, int], ...] = ((3, c.channels[1]), (4, size))
            order: tuple[int, ...] = (0, 1, 3, 4, 2, 5)
            outer = ["wino_i", "wino_j", "group", "block", "points"]
        else:
            splits, order = ((3, size),), (0, 1, 3, 2, 4)
            outer = ["wino_i", "wino_j", "block", "points"]
        builder.do("pack", buffer=c.weights, splits=splits, order=order)
        self._split_channels(builder, "channel" if c.groups > 1 else c.channels[0], config)
        builder.split("wino_t", config.number("tile_w"), "points", "point")
        tile = ("point", "vector", "lane")
        builder.do("reorder", loops=(*outer, *tile))
        products = f"{c.tensor}.m"
        builder.do("cache_write", buffer=products, loops=tile)
        self._annotate(builder, c, config, tile)
        if c.channels[1] % size:
            builder.do("specialize", loop="block", at=f"{products}.reg")
        if block % config.number("tile_w"):
            builder.do("specialize", loop="points", at=f"{products}.reg")
        schedule_copies(builder, target, {output_name(builder.task), products, f"{c.tensor}.v"})
        if c.count * c.tile_rows(form) * c.tile_columns(form) > block:
            share(builder, target, [c.batch[0][0], "wino_tb", "wino_cb"], "shared")
            return
        share(builder, target, ["vin_tr", "vin_tc", "vin_c"], "vin_shared")
        share(builder, target, outer[:-1], "shared")
        share(builder, target, ["vout_tr", "vout_tc", "vout_c"], "vout_shared")

    def _strassen(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> None:
        builder.do("strassen", buffer=c.tensor, rows=c.halved, lanes=target.lanes())
        self._split_channels(builder, c.channels[0], config)
        # Every thread has its own points, in all seven products as before and after them.
        parts = strassen_parts(c, target)
        count = c.strassen_points // parts
        builder.split("stra_t", count, "run", "stra_r")
        builder.split("stra_r", config.number("tile_w"), "points", "point")
        splits, order = pack_plan(c, config, tuple(range(c.weight_rank)))
        (dim, size), *_ = splits
        moved = (0, *(d + 1 for d in order))
        builder.do("pack", buffer=c.weights, splits=((dim + 1, size),), order=moved)
        tile, outer = ("point", "vector", "lane"), ["run", "stra_i", "block", "points"]
        builder.do("reorder", loops=(*outer, *tile))
        products = f"{c.tensor}.m"
        builder.do("cache_write", buffer=products, loops=tile)
        self._annotate(builder, c, config, tile)
        if c.channels[1] // 2 % size:
            builder.do("specialize", loop="block", at=f"{products}.reg")
        if count % config.number("tile_w"):
            builder.do("specialize", loop="points", at=f"{products}.reg")
        schedule_copies(builder, target, {output_name(builder.task), products, f"{c.tensor}.v"})
        for prefix in ("sin", "sout"):
            loops = [f"{prefix}_p{n}" for n in range(len(c.batch) + (2 if c.rows else 1))]
            outside = list(builder.present([*loops, f"{prefix}_c"]))
            share(builder, target, outside, f"{prefix}_shared")
        share(builder, target, outer, "shared")

    def _split(
        self, builder: ScheduleBuilder, c: Contraction, config: Config, count: int
    ) -> tuple[str, ...]:
        """Split the output loops, first into `count` bands; gives the tile's loops."""
        self._split_channels(builder, "channel" if c.groups > 1 else c.channels[0], config)
        part, (along, _) = in_band(c, count), c.rows or c.points
        if count > 1:
            extent = part.row_count if c.rows else part.points[1]
            builder.split(along, extent, "band", "banded")
            along = "banded"
        points = c.points[0] if c.rows else along
        builder.split(points, config.number("tile_w"), "points", "point")
        if not c.rows:
            return ("point", "vector", "lane")
        builder.split(along, config.number("tile_h"), "rows", "row")
        return ("row", "point", "vector", "lane")

    def _split_channels(self, builder: ScheduleBuilder, loop: str, config: Config) -> None:
        lanes, vectors = config.number("lanes"), config.number("vectors")
        builder.split(loop, lanes * vectors, "block", "rest")
        builder.split("rest", lanes, "vector", "lane")

    def _cache_weights(
        self, task: Task, builder: ScheduleBuilder, c: Contraction, config: Config, target: Target
    ) -> bool:
        """Pack weights that are activations: whole at the start where batch elements share them or
        are too few for the threads (gives True), else each batch element's own."""
        shape = task.value(c.weights).type.shape
        own = c.rows is None and math.prod(shape[:-2]) == c.count
        whole = not own or (target.threads > 1 and c.count < 4 * target.threads)
        rank = c.weight_rank
        dims = tuple(range(rank)) if whole else (rank - 2, rank - 1)
        splits, order = pack_plan(c, config, dims)
        builder.do(
            "cache_read", buffer=c.weights, loop="" if whole or not c.batch else c.batch[-1][0],
            dims=dims, splits=splits, order=order,
            dtype="bfloat16" if config["algorithm"] == "bf16" else "",
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
        kinds = ("", "_init", "_out")
        builder.do("vectorize", loops=builder.present([f"lane{k}" for k in kinds]))
        flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
        unroll = config.number("unroll")
        if unroll > 1:
            last = "pairs" if config["algorithm"] in TOGETHER else c.reduce[-1][0]
            builder.split(last, unroll, "step", "part")
            flat.append("part")
        builder.do("unroll", loops=builder.present(flat))

    # ----------------------------------------------------------------------------------- structure

    def structure(self, task: Task, target: Target, columns: Columns) -> TileStructure:
        c = contraction_of(task)
        ones = np.ones(len(columns["vectors"]))
        number = {
            p: columns[p].astype(np.float64)
            for p in ("lanes", "vectors", "tile_w", "tile_h", "unroll", "block")
        }
        extents = {"batch": c.count, "point": c.points[1], "channel": c.channels[1] * c.groups}
        tile = {
            "channel": np.minimum(number["lanes"] * number["vectors"], c.channels[1]),
            "point": np.minimum(number["tile_w"], c.points[1]),
        }
        if c.rows:
            extents["row"], tile["row"] = c.rows[1], number["tile_h"]
        band, banded = in_band(c, bands(c, target)), columns["order"] == BANDS
        inside = {
            "channel": c.channels[1] * c.groups * ones,
            "point": np.where(banded, band.points[1], c.points[1]),
            "row": np.where(banded, band.row_count, c.row_count),
        }
        reduce = {n.removeprefix(loop_var(c.tensor, "")): e for n, e in c.reduce}
        chunks = c.count * ones
        for axis, size in tile.items():
            chunks = chunks * np.ceil(extents[axis] / size)
        expected = cycles(task, c, target, columns) / ideal_cycles(c, target)
        direct = np.isin(columns["algorithm"], ("direct", "int8"))
        # Winograd computes fewer points than are useful: its share of direct code's work.
        computed = np.where(direct, waste(c, columns), expected * target.threads)
        algorithm = [_CODES[str(a)] for a in columns["algorithm"]]
        return TileStructure(
            extents=extents | reduce,
            reduce_axes=frozenset(reduce),
            accesses=accesses_of(task, c),
            tiles=levels_of(inside, columns, tile, tuple(reduce)),
            flops=task_flops(task),
            accumulators=number["vectors"] * number["tile_w"] * number["tile_h"],
            vector_axis_waste=computed,
            parallel_chunks=chunks,
            unrolled=unrolled(columns),
            extra={
                **number,
                "algorithm": np.asarray(algorithm, np.float64),
                "tail_w": c.points[1] % number["tile_w"],
                "prefetch": (columns["prefetch"] == "panel").astype(np.float64),
                "plain": plain(c, columns).astype(np.float64),
                "expected": np.log2(expected),
            },
        )


RULES.add(ContractionRule.name, ContractionRule())
