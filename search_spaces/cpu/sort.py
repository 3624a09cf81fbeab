"""Rows sorted by a network of exchanges (op `top_k`), on CPUs.

Every pass is a nest of its own: groups of elements that lie apart are loaded, exchanged in vectors
along what lies side by side, and stored. Passes of one size take turns in two buffers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.machine import Machine
from autotune.ops.top_k import ExchangePass, padded, passes
from autotune.schedule import Scheduled
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.memory.reuse import Reuse
from autotune.target import Target
from autotune.tasks.build import loop_var
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder, output_name, schedule_elementwise, share
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space

VECTOR_CYCLES = 2.2
"""Cycles of a vector in a pass (assumed, as all constants here)."""
ELEMENT_CYCLES = 1.5
"""Cycles of an element in a pass whose runs are single elements."""
ITERATION_CYCLES = 2.0
"""Cycles of an iteration."""
PASS_CYCLES = 40.0
"""Cycles to start a pass."""


class SortRule(Rule):
    """Sorting networks over rows, a pass a nest, in vectors along what lies side by side."""

    name = "sort"
    priority = 5

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and task.op == "top_k"

    def space(self, task: Task, target: Target) -> Space:
        most = _lanes(task, target)
        lanes = tuple(most * n for n in (1, 2))
        return Space((Param(name="lanes", choices=lanes), Param(name="unroll", choices=(1, 2, 4))))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder, out = ScheduleBuilder(task), output_name(task)
        extent, kept = _extents(task)
        nests = [(f"{out}.pass{n}", pass_) for n, pass_ in enumerate(passes(extent, kept))]
        made = {name: pass_.size for name, pass_ in nests}
        if padded(extent) > extent:
            made = {f"{out}.padded": padded(extent)} | made
        for name, pass_ in nests:
            _schedule(builder, target, name, pass_, config)
        for name in (out, *(n for n in made if n.endswith(".padded"))):
            loops = [loop_var(name, axis) for axis in ("d0", "d1")]
            schedule_elementwise(builder, target, loops, 1)
        _take_turns(builder, made)
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        ones = np.ones(len(configs["lanes"]))
        (extent, kept), rows = _extents(task), task.by_role("input")[0].type.shape[0]
        lanes, unroll = (configs[p].astype(np.float64) for p in ("lanes", "unroll"))
        dims: tuple[tuple[tuple[str, int], ...], ...] = ((("row", 1),), (("element", 1),))
        size = ITEM_BYTES[task.by_role("input")[0].type.dtype]
        accesses = (
            Access(buffer="in", item_bytes=size, shape=(rows, extent), dims=dims),
            Access(buffer="out", item_bytes=size, shape=(rows, kept), dims=dims, written=True),
        )
        return TileStructure(
            extents={"row": rows, "element": extent},
            reduce_axes=frozenset(),
            accesses=accesses,
            tiles=({"row": ones}, {"element": np.minimum(lanes, extent)}),
            flops=max(1, task_flops(task)),
            accumulators=unroll,
            vector_axis_waste=ones,
            parallel_chunks=ones * rows,
            unrolled=unroll,
            extra={"lanes": lanes, "unroll": unroll},
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        target = machine.target
        peak = max(1, task_flops(task)) / (2 * target.lanes() * target.threads)
        return Prior(cycles=_cycles(task, target, configs), peak_cycles=peak)


def _extents(task: Task) -> tuple[int, int]:
    """Elements of a row, and those that stay."""
    extent, kept = (task.by_role(role)[0].type.shape[1] for role in ("input", "output"))
    return extent, kept


def _lanes(task: Task, target: Target) -> int:
    return target.lanes(ITEM_BYTES[task.by_role("input")[0].type.dtype])


def _schedule(
    builder: ScheduleBuilder, target: Target, name: str, pass_: ExchangePass, config: Config
) -> None:
    """Vectors along the run, the elements that are exchanged written out."""
    row, place = (loop_var(name, axis) for axis in ("d0", "d1"))
    rest, run = _cut(builder, place, pass_.run, "run")
    groups, steps = _cut(builder, rest, pass_.distance * pass_.columns // pass_.run, "step")
    bits: list[str] = []
    for n in range(pass_.bits):
        groups, bit = _cut(builder, groups, 2, f"bit{n}")
        bits.insert(0, bit)
    vectors, lanes = _cut(builder, run, config.number("lanes"), "lanes")
    outer = [loop for loop in (row, groups, steps, vectors) if loop]
    inside = [loop for loop in (*bits, lanes) if loop]
    builder.apply(Reorder(loops=(*outer, *inside)))
    builder.apply(Unroll(loops=tuple(bits)))
    if lanes:
        builder.apply(Vectorize(loops=(lanes,)))
    last, several = _cut(builder, outer[-1], config.number("unroll"), "some")
    if several and outer[1:]:
        builder.apply(Unroll(loops=(several,)))
    share(builder, target, [*outer[:-1], *([last] if last else [])], f"{place}_p")


def _cut(builder: ScheduleBuilder, loop: str, factor: int, part: str) -> tuple[str, str]:
    """(Outer, inner) loop of a split by a factor; empty where there would be one iteration."""
    if not loop or factor == 1:
        return loop, ""
    if factor >= builder.extent(loop):
        return "", loop
    outer, inner = f"{loop}_o", f"{loop}_{part}"
    builder.split(loop, factor, outer, inner)
    return outer, inner


def _take_turns(builder: ScheduleBuilder, made: Mapping[str, int]) -> None:
    """Let passes of one size, all but the first two, write where the one before the last did."""
    turns: dict[int, list[str]] = {}
    moved: dict[str, str] = {}
    for name, size in made.items():
        places = turns.setdefault(size, [])
        places.append(moved.setdefault(name, places.pop(0)) if len(places) == 2 else name)
    if moved:
        builder.apply(Reuse(buffers=tuple(moved), of=tuple(moved.values())))


def _cycles(task: Task, target: Target, configs: Configs) -> Column:
    """Cycles until the last thread is done."""
    extent, kept = _extents(task)
    rows, native = task.by_role("input")[0].type.shape[0], _lanes(task, target)
    lanes, unroll = (configs[p].astype(np.float64) for p in ("lanes", "unroll"))
    total = np.full(len(lanes), PASS_CYCLES)  # what is in order already is copied
    for pass_ in passes(extent, kept):
        width = np.minimum(lanes, pass_.run)
        each = ELEMENT_CYCLES if pass_.run == 1 else VECTOR_CYCLES * np.ceil(width / native)
        groups = rows * pass_.size / (width * (1 << pass_.bits))
        work = groups * ((1 << pass_.bits) * each * pass_.exchanges + ITERATION_CYCLES / unroll)
        total += work / target.threads + PASS_CYCLES
    return total


RULES.add(SortRule.name, SortRule())
