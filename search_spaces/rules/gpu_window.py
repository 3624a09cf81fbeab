"""GPUs: windows sliding over channels-last data: depthwise convolutions, pools, sums over rows.

A thread computes `tile_h` x `tile_w` points of `vector` neighbouring channels in registers, and
reads what they share once; neighbouring threads have neighbouring channels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.graph.plan import task_flops
from autotune.program.ir import Clamp, Load
from autotune.program.rewrite import value_loads
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, TileStructure
from search_spaces.params import Config, Param
from search_spaces.rules._builder import (
    ScheduleBuilder,
    inline_locals,
    local_buffers,
    output_name,
)
from search_spaces.rules._gpu import bind_rest, thread_choices
from search_spaces.rules._gpu_rows_cost import peak_of
from search_spaces.rules._gpu_window_cost import Windows, window_cycles
from search_spaces.rules._window import Window, reduction_of, window_of
from search_spaces.rules.window import is_window
from search_spaces.space import Columns, Constraint, Space

_REGISTERS = 64
"""Sums of one thread, at most."""
_UNROLLED = 512


def _divisors(extent: int, most: int) -> tuple[int, ...]:
    return tuple(s for s in range(1, min(extent, most) + 1) if extent % s == 0)


def _window(task: Task) -> Window:
    compute = reduction_of(task)
    if compute is None:
        raise ValueError(f"task {task.key} has no single reduction")
    return window_of(compute)


class GpuWindowRule:
    """See the module."""

    name = "gpu_window"
    priority = 8

    def matches(self, task: Task, target: Target) -> bool:
        return target.is_gpu and is_window(task)

    def space(self, task: Task, target: Target) -> Space:
        w = _window(task)
        window = math.prod(e for _, e in w.reduce) if w.unrolled else 1

        def fits(columns: Columns) -> npt.NDArray[Any]:
            held = columns["vector"] * columns["tile_w"] * columns["tile_h"]
            return np.asarray((held <= _REGISTERS) & ((held * window <= _UNROLLED) | (held == 1)))

        params = (
            Param(name="threads", choices=thread_choices(target, 512)),
            Param(name="vector", choices=tuple(v for v in (1, 2, 4) if w.channels[1] % v == 0)),
            Param(name="tile_w", choices=_divisors(w.points[1], 8)),
            Param(name="tile_h", choices=_divisors(w.rows[1], 4)),
        )
        return Space(params, (Constraint("registers", fits),))

    def default(self, task: Task, target: Target) -> Config:
        space = self.space(task, target)
        rows = space.rows(20_000, np.random.default_rng(0))
        return space.config(rows[int(np.argmin(_cycles(task, target, space.columns(rows))))])

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        w, builder, output = _window(task), ScheduleBuilder(task), output_name(task)
        inline_locals(builder, keep=frozenset((output,)))
        anchor = task.nodes[task.anchor].outputs[0]
        if anchor not in (w.tensor, output) and anchor in local_buffers(builder.program):
            builder.do("inline", buffer=anchor)
        if output != w.tensor:
            builder.do("compute_at", buffer=output, at=w.channels[0])
        builder.split(w.channels[0], config.number("vector"), "channels", "lane")
        tile, outer = ["lane"], ["channels"]
        for inner, around, (loop, _), param in (
            ("point", "points", w.points, "tile_w"), ("row", "rows", w.rows, "tile_h"),
        ):  # fmt: skip
            if loop:
                builder.split(loop, config.number(param), around, inner)
                tile.insert(0, inner)
                outer.insert(0, around)
        batch = [name for name, _ in w.axes[:-3]]
        builder.do("reorder", loops=(*batch, *outer, *tile))
        flat = builder.fuse([*batch, *outer], "flat")
        builder.split(flat, min(config.number("threads"), builder.extent(flat)), "b", "t")
        builder.do("bind", loop="b", axis="block.x")
        builder.do("bind", loop="t", axis="thread.x")
        builder.do("cache_write", buffer=w.tensor, loops=tuple(tile))
        self._annotate(builder, w, tile)
        bind_rest(builder, target)
        return builder.schedule

    def _annotate(self, builder: ScheduleBuilder, w: Window, tile: list[str]) -> None:
        kinds = ("", "_init", "_out")
        lanes = builder.present([f"lane{k}" for k in kinds])
        builder.do("vectorize" if builder.extent("lane") > 1 else "unroll", loops=lanes)
        flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
        if w.unrolled:
            flat += [name for name, _ in w.reduce]
        builder.do("unroll", loops=builder.present(flat))

    def structure(self, task: Task, target: Target, columns: Columns) -> TileStructure:
        w = _window(task)
        number = {k: columns[k].astype(np.float64) for k in columns}
        ones = np.ones(len(number["vector"]))
        held = number["vector"] * number["tile_w"] * number["tile_h"]
        size = math.prod(e for _, e in w.axes)
        blocks = np.ceil(size / (held * number["threads"]))
        reduce = math.prod(e for _, e in w.reduce)
        flops = max(1, task_flops(task))
        return TileStructure(
            extents={"element": size, "window": reduce},
            reduce_axes=frozenset(("window",)),
            accesses=(
                Access(
                    buffer="data", item_bytes=4, shape=(size, reduce),
                    dims=((("element", 1),), (("window", 1),)),
                ),
                Access(
                    buffer="out", item_bytes=4, shape=(size,), dims=((("element", 1),),),
                    written=True,
                ),
            ),
            tiles=({"element": held * number["threads"]}, {"element": held}, {"window": ones}),
            flops=flops,
            accumulators=held,
            vector_axis_waste=ones,
            parallel_chunks=blocks,
            unrolled=held * (reduce if w.unrolled else 1),
            extra={
                **number,
                "expected": np.log2(_cycles(task, target, columns) * peak_of(target) / flops),
            },
        )  # fmt: skip


def _cycles(task: Task, target: Target, columns: Columns) -> Column:
    """Cycles of the device."""
    w = _window(task)
    v, tile_w, tile_h, threads = (
        columns[k].astype(np.float64) for k in ("vector", "tile_w", "tile_h", "threads")
    )
    terms = math.prod(e for _, e in w.reduce)
    loads = _spans(task, tile_w, tile_h) if w.unrolled else terms * tile_w * tile_h
    if target.warp > 1:
        return window_cycles(
            _windows(task, w, terms), target, vector=v, tile_w=tile_w, tile_h=tile_h,
            threads=threads, loads=loads,
        )  # fmt: skip
    held = v * tile_w * tile_h
    total = math.prod(e for _, e in w.axes) / held
    each = terms * held / np.minimum(v, float(target.lanes())) + 2 * loads + held + 10
    return np.asarray(np.ceil(total / threads) * threads * each / target.cores, np.float64)


def _windows(task: Task, w: Window, terms: int) -> Windows:
    compute = reduction_of(task)
    assert compute is not None
    found = [v for v in value_loads(compute.body) if isinstance(v, Load)]
    point = compute.axes[-2].name if len(compute.axes) > 1 else ""
    factors = [t for v in found for i in v.indices for a, f in i.terms for t in _terms(a, f)]
    return Windows(
        elements=math.prod(e for _, e in w.axes), channels=w.channels[1], terms=terms,
        stride=max((abs(c) for n, c in factors if n == point), default=1),
        weighted=len({v.buffer for v in found}) > 1,
        moved_bytes=float(sum(v.type.nbytes for v in task.params)),
    )  # fmt: skip


def _spans(task: Task, tile_w: Column, tile_h: Column) -> Column:
    """Points of data that one thread reads for its tile, window included."""
    compute = reduction_of(task)
    assert compute is not None
    tile = {a.name: 1.0 for a in compute.axes} | {a.name: a.extent for a in compute.reduce}
    sizes: dict[str, Any] = dict(tile)
    names = [a.name for a in compute.axes]
    for name, size in zip(names[-3:-1][::-1], (tile_w, tile_h), strict=False):
        sizes[name] = size
    out = np.zeros(len(tile_w))
    for load in value_loads(compute.body):
        if not isinstance(load, Load):
            continue
        points = np.ones(len(tile_w))
        for i in load.indices[:-1]:
            terms = [t for a, c in i.terms for t in _terms(a, c)]
            points = points * (1 + sum(abs(c) * (sizes[a] - 1) for a, c in terms))
        out = out + points
    return out


def _terms(atom: object, factor: int) -> list[tuple[str, int]]:
    if isinstance(atom, str):
        return [(atom, factor)]
    inner = atom.index.terms if isinstance(atom, Clamp) else ()
    return [t for a, c in inner for t in _terms(a, c)]


RULES.add(GpuWindowRule.name, GpuWindowRule())
