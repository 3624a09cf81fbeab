"""Reductions along a dimension that is not the innermost: softmax or argmax over channels first.

Vectors lie across the columns: a block of columns side by side takes every pass together, from the
first reduction to what is made of the last one, while it stays in the L1 cache. Sums and maxima
stay in registers, `unroll` vectors of them.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np

from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.program.ir import Compute, For, If, Index, Load, Stmt, walk
from autotune.program.rewrite import find_loop, stores_of, value_loads
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import ComputeAt, root_body
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.schedule.memory.scope import StoreAt
from autotune.target import Target
from autotune.tasks.build import node_computes
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    inline_locals,
    lanes_of,
    local_buffers,
    nest_loops,
    output_name,
    schedule_elementwise,
    share,
)
from search_spaces.cpu.nests.prior import VECTOR_CYCLES, ideal_cycles, passes_of
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space

ITERATION_CYCLES = 2.0
"""Cycles of an iteration's counter, branch and addresses (assumed, as all constants here)."""
EVICTED_CYCLES = 2.0
"""Cycles more of a vector that is found in the L2 cache."""
L1_SHARE = 0.8
"""Share of the L1 cache that a block of columns may take, as read and as written."""


class ColumnsRule(Rule):
    """Reductions along an outer dimension, by blocks of columns that take every pass together."""

    name = "columns"
    priority = 2

    def matches(self, task: Task, target: Target) -> bool:
        sums = _reductions(task)
        return not target.is_gpu and bool(sums) and all(map(_is_columnwise, sums))

    def space(self, task: Task, target: Target) -> Space:
        return Space((Param(name="unroll", choices=(1, 2, 4, 8)),))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        inline_locals(builder, keep=frozenset((output_name(task),)), cheap_only=True)
        along = frozenset(a.name[1:] for c in _reductions(task) for a in c.reduce)
        lanes = lanes_of(task, target)
        _merge(builder, along, lanes * config.number("unroll"))
        for stmt in root_body(builder.program):
            if isinstance(stmt, For):
                _schedule_nest(builder, target, stmt, lanes)
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        unroll = configs["unroll"].astype(np.float64)
        size = _Sizes(task, machine.target)
        dims: tuple[tuple[tuple[str, int], ...], ...] = ((("along", 1),), (("column", 1),))
        shape, ones = (size.along, size.columns), np.ones(len(unroll))
        block = np.minimum(unroll * size.lanes, size.columns)
        accesses = (
            Access(buffer="in", item_bytes=4, shape=shape, dims=dims),
            Access(buffer="out", item_bytes=4, shape=shape, dims=dims, written=True),
        )
        return TileStructure(
            extents={"along": size.along, "column": size.columns},
            reduce_axes=frozenset(),
            accesses=accesses,
            tiles=({"column": block}, {"along": ones}),
            flops=max(1, task_flops(task)),
            accumulators=unroll,
            vector_axis_waste=size.waste(unroll),
            parallel_chunks=np.ceil(size.columns / block),
            unrolled=unroll,
            extra={"unroll": unroll, "passes": len(passes_of(task)) * ones},
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        unroll = configs["unroll"].astype(np.float64)
        size = _Sizes(task, machine.target)
        blocks = np.ceil(size.columns / (unroll * size.lanes))
        return Prior(
            cycles=_cycles(task, machine, unroll) * busiest_share(blocks, machine.target.threads),
            peak_cycles=ideal_cycles(task, machine.target),
        )


class _Sizes:
    """Sizes of a task: its columns, the elements of one, and the lanes they are taken in."""

    def __init__(self, task: Task, target: Target) -> None:
        first = _reductions(task)[0]
        self.along = math.prod(a.extent for a in first.reduce)
        self.columns = math.prod(a.extent for a in first.axes)
        self.lanes = lanes_of(task, target)

    def waste(self, unroll: Column) -> Column:
        """Columns computed over columns there are."""
        block = np.minimum(unroll * self.lanes, -(-self.columns // self.lanes) * self.lanes)
        return np.asarray(np.ceil(self.columns / block) * block / self.columns)


def _cycles(task: Task, machine: Machine, unroll: Column) -> Column:
    """Cycles of all passes on one thread."""
    size, total = _Sizes(task, machine.target), np.zeros(len(unroll))
    held = 8.0 * size.along * unroll * size.lanes
    far = np.where(held > L1_SHARE * machine.l1_bytes, EVICTED_CYCLES, 0.0)
    for one in passes_of(task):
        vectors = one.rows * one.width / size.lanes
        busy = np.maximum(one.work, VECTOR_CYCLES * one.streams) + far
        if one.reduces:
            busy = np.maximum(busy, machine.cpu.add_latency_cycles / unroll)
        total = total + vectors * (busy + ITERATION_CYCLES / unroll)
    return np.asarray(total * size.waste(unroll))


def _reductions(task: Task) -> list[Compute]:
    return [c for node in task.nodes for c in node_computes(task, node) if c.combine]


def _is_columnwise(compute: Compute) -> bool:
    """Whether neighbours in what is reduced belong to different results."""
    points = [a for a in compute.axes if a.extent > 1]
    names = {a.name for a in compute.reduce}
    if not points or not names or any(not n[1:].isdigit() for n in names):
        return False
    loads = [v for v in value_loads(compute.body) if _vars(v) & names]
    return bool(loads) and all(_ends_with(v, points[-1].name, names) for v in loads)


def _vars(load: Load) -> frozenset[str]:
    return frozenset[str]().union(*(i.vars() for i in load.indices))


def _ends_with(load: Load, point: str, reduced: set[str]) -> bool:
    """Whether single loops go through a tensor, a point's through its last dimension."""
    plain = all(
        i == Index() or (len(i.terms) == 1 and i == Index(((i.terms[0][0], 1),)))
        for i in load.indices
    )
    last = [v for i in load.indices for v in i.vars() if v == point or v in reduced]
    return plain and last[-1] == point


def _merge(builder: ScheduleBuilder, along: frozenset[str], block: int) -> None:
    """One nest over blocks of columns, of all passes that have them, where that is legal."""
    nests = [s for s in root_body(builder.program) if isinstance(s, For)]
    first = next(n for n in nests if any(s.combine for s in stores_of((n,))))
    found = []
    shape: list[int] = []
    for nest in nests[nests.index(first) :]:
        points, others = _parted(nest, along)
        extents = [builder.extent(v) for v in points]
        shape = shape or extents
        if extents == shape:
            found.append((stores_of((nest,))[-1].buffer, points, others))
            builder.apply(Reorder(loops=(*points, *others)))
    points = found[0][1]
    for _, loops, others in found:
        last = loops[-1]
        size = min(block, builder.extent(last))
        builder.split(last, size, f"{last}_o", f"{last}_b")
        builder.apply(Reorder(loops=(f"{last}_o", *others, f"{last}_b")))
    at = f"{points[-1]}_o"
    for buffer, _, _ in found[1:]:
        with contextlib.suppress(ScheduleError):  # of other columns: a nest of its own
            builder.apply(ComputeAt(buffer=buffer, at=at))
    for name in sorted(local_buffers(builder.program)):
        with contextlib.suppress(ScheduleError):  # used outside
            builder.apply(StoreAt(buffer=name, loop=at))


def _parted(nest: For, along: frozenset[str]) -> tuple[list[str], list[str]]:
    """The loops of a nest over columns, and those along them."""
    loops = [loop.var for loop in nest_loops(nest)]
    inside = [v for v in loops if v.rpartition("_d")[2] in along]
    return [v for v in loops if v not in inside], inside


def _schedule_nest(builder: ScheduleBuilder, target: Target, nest: For, lanes: int) -> None:
    """The passes of a nest over blocks, or elements of other columns."""
    outer = [loop.var for loop in nest_loops(nest)]
    over = next((n for n, v in enumerate(outer) if v.endswith("_o")), None)
    if over is None:
        if not any(s.combine for s in stores_of((nest,))):
            schedule_elementwise(builder, target, outer, 1)
        return
    outer = outer[: over + 1]
    for loop in _passes(nest.body):
        _vectorize(builder, loop, lanes)
    if _is_guarded(builder, outer[-1]):
        builder.apply(Specialize(loop=outer[-1]))
    share(builder, target, outer, f"{outer[0]}_p")


def _passes(body: tuple[Stmt, ...]) -> list[str]:
    """The loops over a block's columns, of every pass."""
    return [s.var for s in walk(body) if isinstance(s, For) and s.var.endswith("_b")]


def _vectorize(builder: ScheduleBuilder, loop: str, lanes: int) -> None:
    """One pass over a block's columns in vectors, its sums in registers."""
    over, lane = f"{loop}_u", f"{loop}_v"
    body = find_loop(builder.program, loop).body
    reduced = [s.buffer for s in stores_of(body) if s.combine]
    builder.split(loop, min(lanes, builder.extent(loop)), over, lane)
    if reduced:
        builder.apply(CacheWrite(buffer=reduced[0], loops=(over, lane)))
    beside, lane_wise = (
        tuple(
            s.var
            for s in walk(builder.program.body)
            if isinstance(s, For) and (s.var == v or s.var.startswith(f"{v}_"))
        )
        for v in (over, lane)
    )
    builder.apply(Unroll(loops=beside))
    builder.apply(Vectorize(loops=lane_wise))


def _is_guarded(builder: ScheduleBuilder, loop: str) -> bool:
    return any(
        isinstance(s, If) and any(loop in b.index.vars() for b in s.bounds)
        for s in walk(find_loop(builder.program, loop).body)
    )


RULES.add(ColumnsRule.name, ColumnsRule())
