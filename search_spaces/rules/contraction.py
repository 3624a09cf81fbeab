"""Convolutions and matrix products: a register tile over output points and channels.

`algorithm` says how: `direct`; `bf16`, the same with operands rounded to bfloat16, two products an
instruction; `int8`, four products of uint8 data and int8 weights an instruction; `winogradM` and
`winogradMxN`, a convolution over tiles of M x M or M x N output points with fewer multiplications,
`block` tiles at a time (see `autotune.schedule.winograd`); `strassen`, seven products of halves,
or `strassen_runs`, these `block` points at a time, with weights as they are (see
`autotune.schedule.strassen`). The register tile is `tile_h` x `tile_w` points (with Winograd:
`tile_w` tiles) times `vectors` vectors of channels; the reduction runs inside it, one outer
product at a time. Weights are packed in the order of use; those that few points use may be asked
for a panel ahead (`prefetch`); those that are activations are packed by the kernel, or read where
they lie (`weights`). The epilogue is computed on the tile before it is stored. Depthwise
convolutions have a rule of their own.
"""

from __future__ import annotations

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
)
from search_spaces.rules._contraction import (
    BANDS,
    Contraction,
    accesses_of,
    is_contraction,
    levels_of,
    tiled_contraction,
)
from search_spaces.rules._contraction_schedule import (
    write_direct,
    write_strassen,
    write_strassen_runs,
    write_winograd,
)
from search_spaces.rules._contraction_tiles import (
    DIRECT,
    ORDERS,
    PACKED,
    PLAIN,
    algorithms,
    bands,
    copies,
    in_band,
    plain,
    sizes,
    strassen_parts,
    strassen_runs,
    together,
    unrolled,
)
from search_spaces.rules._cost import cycles, ideal_cycles, waste
from search_spaces.space import Columns, Constraint, Space

Mask = npt.NDArray[Any]
_CODES = {
    "direct": 0, "bf16": 1, "int8": 3, "winograd2": 2, "winograd4": 4, "strassen": 5,
    "winograd4x2": 6, "winograd5": 7, "winograd6": 8, "strassen_runs": 9,
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
        c = tiled_contraction(task)
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
        blocks = {1}.union(*(c.blocks(f) for f in forms), strassen_runs(c, target))
        early = c.streams or (c.groups == 1 and len(forms) > 0)
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
            Param(name="prefetch", choices=("none", "panel") if early else ("none",)),
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
            ok &= (several & c.streams & (columns["algorithm"] == "direct")) | (
                columns["prefetch"] == "none"
            )
            for form in c.winograd:
                own = np.flatnonzero(columns["algorithm"] == form)
                ok[own] = self._winograd(c, columns, own, form)
            if c.strassen:
                ok |= (columns["algorithm"] == "strassen") & self._halves(c, columns, target)
                ok |= (columns["algorithm"] == "strassen_runs") & self._runs(c, columns, target)
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
        several = c.channels[1] > columns["lanes"][own] * columns["vectors"][own]
        ok &= (several & (c.groups == 1)) | (columns["prefetch"][own] == "none")
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

    def _runs(self, c: Contraction, columns: Columns, target: Target) -> Mask:
        """Whole panels and runs; tiles lie in these."""
        run = columns["block"]
        ok = (columns["tile_h"] == 1) & (columns["order"] == ORDERS[0])
        ok &= (columns["prefetch"] == "none") & np.isin(run, strassen_runs(c, target))
        for size in strassen_runs(c, target):
            ok &= (run != size) | np.isin(columns["tile_w"], sizes(size, 28))
        ok &= c.reduce[-1][1] // 2 % columns["unroll"] == 0
        ok &= c.channels[1] // 2 % (columns["vectors"] * columns["lanes"]) == 0
        # There are seven bodies: longer ones take longer to build and to fetch, and gain nothing.
        ok &= columns["unroll"] <= 2
        return np.asarray(ok & (columns["vectors"] * columns["lanes"] <= c.channels[1] // 2))

    def default(self, task: Task, target: Target) -> Config:
        space, c = self.space(task, target), tiled_contraction(task)
        rows = space.rows(20_000, np.random.default_rng(0))
        best = rows[int(np.argmin(cycles(task, c, target, space.columns(rows))))]
        if str(space.config(best)["algorithm"]) in c.winograd:
            # The sample holds few tiles of each of its forms: better ones are near.
            best = space.descend(best, lambda columns: cycles(task, c, target, columns))
        return space.config(best)

    # ------------------------------------------------------------------------------------ schedule

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        c = tiled_contraction(task)
        builder = ScheduleBuilder(task)
        output = output_name(task)
        inline_locals(builder, keep=frozenset((output, c.tensor)))
        if output != c.tensor:
            builder.do("compute_at", buffer=output, at=c.channels[0])
        if config["algorithm"] in DIRECT:
            write_direct(builder, c, config, target)
        elif config["algorithm"] == "strassen":
            write_strassen(builder, c, config, target)
        elif config["algorithm"] == "strassen_runs":
            write_strassen_runs(builder, c, config, target)
        else:
            write_winograd(builder, c, config, target)
        return builder.schedule

    # ----------------------------------------------------------------------------------- structure

    def structure(self, task: Task, target: Target, columns: Columns) -> TileStructure:
        c = tiled_contraction(task)
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
