"""GPUs: windows sliding over channels-last data: depthwise convolutions, pools, sums over rows.

A thread computes `tile_h` x `tile_w` points of `vector` neighbouring channels in registers, and
reads what they share once; neighbouring threads have neighbouring channels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine import Machine
from autotune.machine.gpu import peak_flops_per_cycle
from autotune.program.ir import Atom, Clamp, Load
from autotune.program.rewrite import value_loads
from autotune.schedule import Scheduled
from autotune.schedule.gpu.bind import Bind
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.memory.cache_write import CacheWrite
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import ScheduleBuilder, output_with_sums
from search_spaces.cpu.window.rule import is_window
from search_spaces.cpu.window.shape import WindowShape, reduction_of, window_of
from search_spaces.gpu.blocks import bind_rest, thread_choices
from search_spaces.gpu.window.prior import Windows, window_cycles
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Constraint, Space

_REGISTERS = 64
"""Sums of one thread, at most."""
_UNROLLED = 512
"""Multiply-adds of a thread's unrolled body, at most (assumed)."""


def _divisors(extent: int, most: int) -> tuple[int, ...]:
    return tuple(s for s in range(1, min(extent, most) + 1) if extent % s == 0)


def _window(task: Task) -> WindowShape:
    compute = reduction_of(task)
    if compute is None:
        raise ValueError(f"task {task.key} has no single reduction")
    return window_of(compute)


class GpuWindowRule(Rule):
    """Depthwise convolutions and pools on GPUs, a tile of points of a few channels a thread."""

    name = "gpu_window"
    priority = 8

    def matches(self, task: Task, target: Target) -> bool:
        return target.is_gpu and is_window(task)

    def space(self, task: Task, target: Target) -> Space:
        w = _window(task)
        window = math.prod(e for _, e in w.reduce) if w.unrolled else 1

        def fits(configs: Configs) -> npt.NDArray[Any]:
            held = configs["vector"] * configs["tile_w"] * configs["tile_h"]
            return np.asarray((held <= _REGISTERS) & ((held * window <= _UNROLLED) | (held == 1)))

        params = (
            Param(name="threads", choices=thread_choices(target, 512)),
            Param(name="vector", choices=tuple(v for v in (1, 2, 4) if w.channels[1] % v == 0)),
            Param(name="tile_w", choices=_divisors(w.points[1], 8)),
            Param(name="tile_h", choices=_divisors(w.rows[1], 4)),
        )
        return Space(params, (Constraint("registers", fits),))

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        w, builder = _window(task), ScheduleBuilder(task)
        output_with_sums(builder, w.tensor, w.channels[0])
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
        builder.apply(Reorder(loops=(*batch, *outer, *tile)))
        flat = builder.fuse([*batch, *outer], "flat")
        builder.split(flat, min(config.number("threads"), builder.extent(flat)), "b", "t")
        builder.apply(Bind(loop="b", axis="block.x"))
        builder.apply(Bind(loop="t", axis="thread.x"))
        builder.apply(CacheWrite(buffer=w.tensor, loops=tuple(tile)))
        self._annotate(builder, w, tile)
        bind_rest(builder, target)
        return builder.scheduled

    def _annotate(self, builder: ScheduleBuilder, w: WindowShape, tile: list[str]) -> None:
        kinds = ("", "_init", "_out")
        lanes = builder.present([f"lane{k}" for k in kinds])
        annotate = Vectorize if builder.extent("lane") > 1 else Unroll
        builder.apply(annotate(loops=lanes))
        flat = [f"{t}{k}" for t in tile[:-1] for k in kinds]
        if w.unrolled:
            flat += [name for name, _ in w.reduce]
        builder.apply(Unroll(loops=builder.present(flat)))

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        w = _window(task)
        number = {k: configs[k].astype(np.float64) for k in configs}
        ones = np.ones(len(number["vector"]))
        held = number["vector"] * number["tile_w"] * number["tile_h"]
        size = math.prod(e for _, e in w.axes)
        blocks = np.ceil(size / (held * number["threads"]))
        reduce = math.prod(e for _, e in w.reduce)
        return TileStructure(
            extents={"element": size, "window": reduce},
            reduce_axes=frozenset(("window",)),
            accesses=(
                Access(
                    buffer="data",
                    item_bytes=4,
                    shape=(size, reduce),
                    dims=((("element", 1),), (("window", 1),)),
                ),
                Access(
                    buffer="out",
                    item_bytes=4,
                    shape=(size,),
                    dims=((("element", 1),),),
                    written=True,
                ),
            ),
            tiles=({"element": held * number["threads"]}, {"element": held}, {"window": ones}),
            flops=max(1, task_flops(task)),
            accumulators=held,
            vector_axis_waste=ones,
            parallel_chunks=blocks,
            unrolled=held * (reduce if w.unrolled else 1),
            extra=number,
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        peak = max(1, task_flops(task)) / peak_flops_per_cycle(machine)
        return Prior(cycles=_cycles(task, machine, configs), peak_cycles=peak)


def _cycles(task: Task, machine: Machine, configs: Configs) -> Column:
    """Cycles of the device."""
    w = _window(task)
    v, tile_w, tile_h, threads = (
        configs[k].astype(np.float64) for k in ("vector", "tile_w", "tile_h", "threads")
    )
    terms = math.prod(e for _, e in w.reduce)
    loads = _spans(task, tile_w, tile_h) if w.unrolled else terms * tile_w * tile_h
    if machine.target.warp > 1:
        return window_cycles(
            _windows(task, w, terms), machine, vector=v, tile_w=tile_w, tile_h=tile_h,
            threads=threads, loads=loads,
        )  # fmt: skip
    held = v * tile_w * tile_h
    total = math.prod(e for _, e in w.axes) / held
    each = terms * held / np.minimum(v, float(machine.target.lanes())) + 2 * loads + held + 10
    return np.asarray(np.ceil(total / threads) * threads * each / machine.target.cores, np.float64)


def _windows(task: Task, w: WindowShape, terms: int) -> Windows:
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


def _terms(atom: Atom, factor: int) -> list[tuple[str, int]]:
    if isinstance(atom, str):
        return [(atom, factor)]
    inner = atom.index.terms if isinstance(atom, Clamp) else ()
    return [t for a, c in inner for t in _terms(a, c)]


RULES.add(GpuWindowRule.name, GpuWindowRule())
