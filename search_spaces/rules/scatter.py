"""Updates that join a tensor at computed places, one after the other (scatter).

On CPUs the columns of an update are vectors. Threads take columns of their own, or places of their
own (each looks at all updates and leaves out the others'), or one of them does it all: that is
what is cheapest depends on their width. On GPUs a thread computes elements of its own,
going through all updates: a column of them, or those of a single place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.graph.plan import task_flops
from autotune.program.analysis import own_vars
from autotune.program.ir import For
from autotune.program.rewrite import stores_of
from autotune.schedule import Schedule
from autotune.schedule.compute import root_body
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, TileStructure
from search_spaces.params import Config, Param
from search_spaces.rules._builder import (
    ScheduleBuilder,
    inline_locals,
    lanes_of,
    nest_loops,
    output_name,
    schedule_elementwise,
    share,
    vectorize_loop,
)
from search_spaces.rules._gpu import bind_flat, own_loops, thread_choices
from search_spaces.rules._gpu_rows_cost import peak_of
from search_spaces.space import Space

Columns = Mapping[str, npt.NDArray[Any]]
_ALONE, _COLUMNS, _PLACES = "alone", "columns", "places"
_UPDATE, _VECTOR, _LOOK, _MISSED = 6.0, 2.5, 2.5, 12.0
"""Cycles: of an update, of each vector of it, of looking at one that is another's, of guessing
wrong which one it is."""
_HIT = 600.0
"""Cycles of a GPU's thread for an update of its own, which waits for memory."""


class ScatterRule:
    """See the module."""

    name = "scatter"
    priority = 5

    def matches(self, task: Task, target: Target) -> bool:  # noqa: ARG002
        return task.nodes[task.anchor].op == "scatter"

    def space(self, task: Task, target: Target) -> Space:
        if target.is_gpu:
            threads = Param(name="threads", choices=thread_choices(target))
            return Space((threads, Param(name="by", choices=_gpu_choices(task))))
        unroll = Param(name="unroll", choices=(1, 2, 4, 8))
        return Space((unroll, Param(name="by", choices=_choices(task, target))))

    def default(self, task: Task, target: Target) -> Config:
        space = self.space(task, target)
        rows = space.rows(space.raw_size, np.random.default_rng(0))
        return space.config(rows[int(np.argmin(_cycles(task, target, space.columns(rows))))])

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        builder = ScheduleBuilder(task)
        inline_locals(builder, keep=frozenset((output_name(task),)))
        start, updates = (s for s in root_body(builder.program) if isinstance(s, For))
        by = str(config["by"])
        if target.is_gpu:
            bind_flat(builder, own_loops(start), config.number("threads"))
            _bind_updates(builder, updates, by, config.number("threads"))
            return builder.schedule
        loops = [loop.var for loop in nest_loops(start)]
        schedule_elementwise(builder, target, loops, config.number("unroll"))
        _schedule_updates(builder, target, updates, by, config.number("unroll"))
        return builder.schedule

    def structure(self, task: Task, target: Target, columns: Columns) -> TileStructure:
        ones = np.ones(len(columns["by"]))
        size = _Sizes(task)
        flops, cycles = max(1, task_flops(task)), _cycles(task, target, columns)
        vector = (columns["threads"] if target.is_gpu else columns["unroll"]).astype(np.float64)
        dims: tuple[tuple[tuple[str, int], ...], ...] = ((("update", 1),), (("column", 1),))
        shape = (size.updates, size.width)
        accesses = (
            Access(buffer="updates", item_bytes=4, shape=shape, dims=dims),
            Access(buffer="out", item_bytes=4, shape=shape, dims=dims, written=True),
        )
        peak = peak_of(target) if target.is_gpu else 2 * target.lanes() * target.threads
        return TileStructure(
            extents={"update": size.updates, "column": size.width},
            reduce_axes=frozenset(),
            accesses=accesses,
            tiles=({"update": ones}, {"column": np.minimum(vector, size.width)}),
            flops=flops,
            accumulators=ones,
            vector_axis_waste=ones,
            parallel_chunks=np.where(columns["by"] == _ALONE, 1.0, float(target.threads)),
            unrolled=vector,
            extra={
                "by.columns": (columns["by"] == _COLUMNS).astype(np.float64),
                "by.places": (columns["by"] == _PLACES).astype(np.float64),
                "vector": vector,
                "expected": np.log2(cycles * peak / flops),
            },
        )


class _Sizes:
    """Of a scatter: images before the axis, updates of one, elements of one, places."""

    def __init__(self, task: Task) -> None:
        node = task.nodes[task.anchor]
        places, updates = (task.value(i).type.shape for i in node.inputs[1:])
        out = task.value(node.outputs[0]).type.shape
        axis = dict(node.attrs).get("axis", 0)
        assert isinstance(axis, int)
        axis %= len(out)
        self.outer = math.prod(out[:axis])
        self.updates, self.places = updates[axis], out[axis]
        self.width = math.prod(out[axis + 1 :])
        self.last = out[-1] if axis < len(out) - 1 and places[-1] == 1 else 1
        """Elements side by side that share a place."""
        self.columns = out[-1] if axis < len(out) - 1 else 1
        self.size = math.prod(out)


def _choices(task: Task, target: Target) -> tuple[str, ...]:
    size, lanes = _Sizes(task), lanes_of(task, target)
    if target.threads == 1 or size.updates * size.width == 0:
        return (_ALONE,)
    out = [_ALONE]
    if size.outer >= target.threads or size.last >= 2 * lanes:
        out.append(_COLUMNS)
    if size.outer == 1 and size.places > 1:
        out.append(_PLACES)
    return tuple(out)


def _gpu_choices(task: Task) -> tuple[str, ...]:
    size = _Sizes(task)
    return (_PLACES, _COLUMNS) if size.outer * size.width > 1 else (_PLACES,)


def _schedule_updates(
    builder: ScheduleBuilder, target: Target, nest: For, by: str, unroll: int
) -> None:
    """Vectors along the columns where these share a place, the rest among threads."""
    loops, lanes = [loop.var for loop in nest_loops(nest)], lanes_of(builder.task, target)
    size, first, last = _Sizes(builder.task), loops[0], loops[-1]
    outer = own_loops(nest) if size.outer >= target.threads else []
    if by == _COLUMNS and not outer:
        block = -(-size.last // (lanes * target.threads)) * lanes
        builder.split(last, block, f"{last}_c", f"{last}_i")
        builder.do("reorder", loops=(f"{last}_c", *loops[:-1]))
        outer, last = [f"{last}_c"], f"{last}_i"
    if by == _PLACES:
        part = -(-size.places // target.threads)
        builder.do("claim", loop=first, size=part, part=f"{first}_r")
        builder.do("parallel", loop=f"{first}_r")
    if size.last > 1:
        vectorize_loop(builder, last, lanes, unroll)
    if by == _COLUMNS:
        share(builder, target, outer, f"{first}_p")


def _bind_updates(builder: ScheduleBuilder, nest: For, by: str, threads: int) -> None:
    """Loops whose iterations have elements of their own outside, that over the updates inside."""
    loops = [loop.var for loop in nest_loops(nest)]
    own = own_vars(stores_of((nest,))[0].indices)
    outer = [v for v in loops if v in own]
    builder.do("reorder", loops=(*outer, *(v for v in loops if v not in own)))
    if by == _PLACES:
        part = f"{loops[0]}_r"
        builder.do("claim", loop=[*outer, *loops][0], size=1, part=part)
        outer = [part, *outer]
    bind_flat(builder, outer, threads)


def _cycles(task: Task, target: Target, columns: Columns) -> Column:
    """Cycles until the last thread, or the device, is done."""
    size = _Sizes(task)
    many = float(size.outer * size.updates * (size.width // size.last))
    if target.is_gpu:
        return _gpu_cycles(target, size, columns)
    by, lanes, threads = columns["by"], lanes_of(task, target), target.threads
    unroll = columns["unroll"].astype(np.float64)
    vectors = np.ceil(size.last / lanes)
    steps = np.ceil(vectors / unroll)
    alone = many * (_UPDATE + _VECTOR * vectors + steps)
    parted = many / threads * (_UPDATE + _VECTOR * vectors + steps)
    if size.outer < threads:
        parted = many * (_UPDATE + (_VECTOR * vectors + steps) / threads)
    claimed = many * _LOOK + many / threads * (_MISSED + _UPDATE + _VECTOR * vectors + steps)
    out = np.where(by == _COLUMNS, parted, np.where(by == _PLACES, claimed, alone))
    start = size.size / lanes * (1.0 + 0.5 / unroll) / threads
    return np.asarray(out + start, np.float64)


def _gpu_cycles(target: Target, size: _Sizes, columns: Columns) -> Column:
    """A thread of its own for every element, or for every column."""
    threads = columns["threads"].astype(np.float64)
    wide = size.outer * size.width
    held = max(1.0, target.multiprocessors * 1024.0)
    places = np.maximum(1.0, wide * size.places / held)
    each = size.updates * 4.0 + size.updates / size.places * _HIT
    column = np.maximum(1.0, wide / held) * size.updates * _HIT
    out = np.where(columns["by"] == _PLACES, places * each, column)
    return np.asarray(out + 1000.0 + threads, np.float64)


RULES.add(ScatterRule.name, ScatterRule())
