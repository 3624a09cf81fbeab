"""Convolutions and matrix products: a register tile over output points and channels.

`algorithm` names one of `search_spaces.algorithms`; some take `block` tiles or points at a time.
The register tile is `tile_h` x `tile_w` points (of Winograd's algorithm: `tile_w` tiles) times
`vectors` vectors of channels; the reduction runs inside it, one outer product at a time. Weights
are packed in the order of use; those that few points use may be asked for a panel ahead
(`prefetch`); those that are activations are packed by the kernel, or read where they lie
(`weights`). The epilogue is computed on the tile before it is stored. Depthwise convolutions have
a rule of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.cpu import RUN_LANES, adds_apart
from autotune.schedule import Scheduled
from autotune.target import Target
from autotune.tasks.build import loop_var
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.algorithms.base import ON_CPUS, ContractionAlgorithm, is_exact
from search_spaces.base import RULES, Column, OpenTiles, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder, output_with_sums
from search_spaces.cpu.contraction.rates import ideal_cycles, waste
from search_spaces.cpu.contraction.shape import (
    STRIPS_FIRST,
    Contraction,
    accesses_of,
    contraction_of,
    is_contraction,
    levels_of,
    tiled_contraction,
)
from search_spaces.cpu.contraction.tiles import (
    ORDERS,
    PACKED,
    PLAIN,
    copies,
    in_strip,
    plain,
    sizes,
    strips,
    unrolled,
)
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Constraint, Space

Mask = npt.NDArray[Any]
_UNROLLED = 480
"""Multiply-adds of all unrolled bodies: more takes long to build and gains nothing."""


class ContractionRule(Rule):
    """Convolutions and matrix products, by register tiles and any algorithm that applies."""

    name = "contraction"
    priority = 10
    packing_params = ("algorithm", "lanes", "vectors")

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and is_contraction(task, short=False)

    # --------------------------------------------------------------------------------------- space

    def space(self, task: Task, target: Target) -> Space:
        c = tiled_contraction(task)
        lanes, inner = target.lanes(), c.reduce[-1][1]
        found = ON_CPUS.applicable(task, c, target)
        widths = [lanes]
        if c.channels[1] % lanes and lanes > 4:
            widths.append(lanes // 2)
        if target.sve_granules and RUN_LANES not in widths:
            widths.append(RUN_LANES)
        strip = in_strip(c, strips(c, target))
        columns = {*sizes(c.points[1], 28), *sizes(strip.points[1], 28)}
        columns = columns.union(*(a.widths(c, target) for a in found))
        rows = {*sizes(c.row_count, 4), *sizes(strip.row_count, 4)}
        orders = (*ORDERS, STRIPS_FIRST) if strips(c, target) > 1 else ORDERS
        blocks = {1}.union(*(a.blocks(c, target) for a in found))
        # A core without a second level has nothing that a line could be brought from early, and
        # WebAssembly no instruction for that.
        early = target.l2_bytes > target.l1_bytes and not target.is_wasm
        early = early and any(a.may_prefetch(c) for a in found)
        read = (Param(name="weights", choices=(PACKED, PLAIN)),) if c.plain else ()
        # LLVM has the products of one sum's steps wait on WebAssembly's stack for each other.
        steps = (1,) if target.is_wasm else (1, 2, 3, 4, 8)
        params = (
            Param(name="algorithm", choices=tuple(a.name for a in found)),
            Param(name="lanes", choices=tuple(widths)),
            Param(name="vectors", choices=(1, 2, 3, 4, 5, 6, 8)),
            Param(name="tile_w", choices=tuple(sorted(columns))),
            Param(name="tile_h", choices=tuple(sorted(rows))),
            Param(name="order", choices=orders),
            Param(name="unroll", choices=tuple(u for u in steps if inner % u == 0)),
            Param(name="block", choices=tuple(sorted(blocks))),
            Param(name="prefetch", choices=("none", "panel") if early else ("none",)),
            *read,
        )
        others = tuple(a.name for a in found if not a.in_registers)
        return Space(params, self._constraints(c, target, others))

    def _constraints(
        self, c: Contraction, target: Target, others: tuple[str, ...]
    ) -> tuple[Constraint, ...]:
        """`others`: algorithms whose sums are not in vector registers."""
        registers = target.vector_registers

        def elsewhere(configs: Configs) -> Mask | bool:
            return np.isin(configs["algorithm"], others) if others else False

        def fits(configs: Configs) -> Mask:
            held = configs["vectors"] * configs["tile_w"] * configs["tile_h"]
            spare = configs["vectors"] + (1 if registers < 32 else 0) + adds_apart(target)
            return np.asarray((held + spare <= registers) | elsewhere(configs))

        def not_wider(configs: Configs) -> Mask:
            return np.asarray(configs["vectors"] <= np.ceil(c.channels[1] / configs["lanes"]))

        def body(configs: Configs) -> Mask:
            small = unrolled(configs) * copies(c, configs) <= _UNROLLED
            return np.asarray(small | elsewhere(configs))

        def algorithm(configs: Configs) -> Mask:
            ok = ON_CPUS.of_each(configs, lambda a, own: a.valid(c, target, own))
            return np.asarray(ok > 0)

        return (
            Constraint("registers", fits),
            Constraint("channels", not_wider),
            Constraint("unrolled body", body),
            Constraint("algorithm", algorithm),
        )

    # ------------------------------------------------------------------------------------ schedule

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        c = tiled_contraction(task)
        builder = ScheduleBuilder(task)
        output_with_sums(builder, c.tensor, c.channels[0])
        ON_CPUS.chosen_by(config).write(builder, c, config, target)
        return builder.scheduled

    def open_tiles(self, task: Task, target: Target) -> Iterable[OpenTiles]:
        c = contraction_of(task)
        if is_exact(task):
            return ()
        return (found for a in ON_CPUS.members() for found in a.open_tiles(c, target))

    # ----------------------------------------------------------------------------------- structure

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        target = machine.target
        c = tiled_contraction(task)
        ones = np.ones(len(configs["vectors"]))
        number = {
            p: configs[p].astype(np.float64)
            for p in ("lanes", "vectors", "tile_w", "tile_h", "unroll", "block")
        }
        extents = {"batch": c.count, "point": c.points[1], "channel": c.channels[1] * c.groups}
        tile = {
            "channel": np.minimum(number["lanes"] * number["vectors"], c.channels[1]),
            "point": np.minimum(number["tile_w"], c.points[1]),
        }
        if c.rows:
            extents["row"], tile["row"] = c.rows[1], number["tile_h"]
        strip, striped = in_strip(c, strips(c, target)), configs["order"] == STRIPS_FIRST
        inside = {
            "channel": c.channels[1] * c.groups * ones,
            "point": np.where(striped, strip.points[1], c.points[1]),
            "row": np.where(striped, strip.row_count, c.row_count),
        }
        reduce = {n.removeprefix(loop_var(c.tensor, "")): e for n, e in c.reduce}
        chunks = c.count * ones
        for axis, size in tile.items():
            chunks = chunks * np.ceil(extents[axis] / size)
        return TileStructure(
            extents=extents | reduce,
            reduce_axes=frozenset(reduce),
            accesses=accesses_of(task, c),
            tiles=levels_of(inside, configs, tile, tuple(reduce)),
            flops=task_flops(task),
            accumulators=number["vectors"] * number["tile_w"] * number["tile_h"],
            vector_axis_waste=waste(c, configs),
            parallel_chunks=chunks,
            unrolled=unrolled(configs),
            extra={
                **number,
                "algorithm": ON_CPUS.of_each(configs, lambda a, _: a.code),
                "tail_w": c.points[1] % number["tile_w"],
                "prefetch": (configs["prefetch"] == "panel").astype(np.float64),
                "plain": plain(c, configs).astype(np.float64),
            },
            modelled=ON_CPUS.of_each(configs, lambda a, _: a.is_plain) == 0,
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        c = tiled_contraction(task)
        return Prior(
            cycles=_cycles(task, c, machine, configs),
            peak_cycles=ideal_cycles(c, machine.target),
        )

    def descents(self, task: Task, best: Config) -> int:
        return ON_CPUS.chosen_by(best).descents


def _cycles(task: Task, c: Contraction, machine: Machine, configs: Configs) -> Column:
    """Cycles of the whole contraction, as each config's algorithm predicts them."""

    def cycles(chosen: ContractionAlgorithm, own: Configs) -> Column:
        gain = np.where(own["prefetch"] == "panel", chosen.prefetch_gain(c, machine), 1.0)
        return np.asarray(chosen.cycles(task, c, machine, own) * gain)

    return ON_CPUS.of_each(configs, cycles)


RULES.add(ContractionRule.name, ContractionRule())
