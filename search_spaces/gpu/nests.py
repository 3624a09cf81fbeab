"""GPUs, everything else: one thread computes an element, or a few neighbouring ones.

Elementwise tensors are inlined into their readers; what follows a reduction is computed by the
threads that made it. A reduction is a serial loop of its thread, its sum kept in a register. This
rule matches every task but scatters, whose order counts.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.machine import Machine
from autotune.machine.gpu import (
    LaunchShape,
    coalescing_factor,
    launch_cycles,
    peak_flops_per_cycle,
    waves,
)
from autotune.ops import OPS
from autotune.program.ir import Buffer, For, Index, Program
from autotune.program.rewrite import stores_of, value_loads
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import root_body
from autotune.schedule.loops.nest import Vectorize
from autotune.schedule.loops.partial import UnitLoop
from autotune.target import Target
from autotune.tasks.build import build_program
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    inline_locals,
    nest_loops,
    output_name,
    own_loops,
)
from search_spaces.gpu.blocks import attempt, bind_flat, keep_sums, merge_nests, thread_choices
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Space


class GpuNestsRule(Rule):
    """Every other task on GPUs, one or a few neighbouring elements a thread."""

    name = "gpu_nests"
    priority = 0

    def matches(self, task: Task, target: Target) -> bool:
        return target.is_gpu and OPS.get(task.op).kind != "scatter"

    def space(self, task: Task, target: Target) -> Space:
        return Space(
            (
                Param(name="threads", choices=thread_choices(target)),
                Param(name="vector", choices=(1, 2, 4)),
                Param(name="merge", choices=(1, 0)),
            )
        )

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        output = output_name(task)
        reduces = any(s.combine for s in stores_of(builder.program.body))
        inline_locals(builder, keep=frozenset((output,)), cheap_only=reduces)
        attempt(builder, UnitLoop(loop="one"))
        if config.number("merge"):
            merge_nests(builder)
        for stmt in root_body(builder.program):
            if isinstance(stmt, For):
                _bind(builder, stmt, config.number("threads"), config.number("vector"))
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        threads, vector = (configs[p].astype(np.float64) for p in ("threads", "vector"))
        ones = np.ones(len(threads))
        size = max(1, task.by_role("output")[0].type.size)
        inputs = task.by_role("input")
        accesses = tuple(
            Access(
                buffer=f"in{i}", item_bytes=4, shape=(max(1, v.type.size),),
                dims=((("element", 1),),),
            )
            for i, v in enumerate(inputs[:2])
        )  # fmt: skip
        out = Access(
            buffer="out", item_bytes=4, shape=(size,), dims=((("element", 1),),), written=True
        )
        blocks = np.ceil(size / (threads * vector))
        return TileStructure(
            extents={"element": size},
            reduce_axes=frozenset(),
            accesses=(*accesses, out),
            tiles=({"element": threads * vector}, {"element": vector}),
            flops=max(1, task_flops(task)),
            accumulators=vector,
            vector_axis_waste=ones,
            parallel_chunks=blocks,
            unrolled=vector,
            extra={
                "threads": threads, "vector": vector, "waves": waves(machine, blocks, threads),
                "merge": configs["merge"].astype(np.float64),
            },
        )  # fmt: skip

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        peak = max(1, task_flops(task)) / peak_flops_per_cycle(machine)
        return Prior(cycles=_cycles(task, machine, configs), peak_cycles=peak)


def _cycles(task: Task, machine: Machine, configs: Configs) -> Column:
    """Cycles of the device: bytes that are moved, more where neighbouring threads read elements
    that lie apart, and each thread's own loop where something is reduced."""
    threads, vector, merge = (
        np.asarray(configs[p], np.float64) for p in ("threads", "vector", "merge")
    )
    size = max(1, task.by_role("output")[0].type.size)
    blocks = np.ceil(size / (threads * vector))
    program = build_program(task)
    nbytes = 4.0 * size + sum(
        4.0 * math.prod(buffer.shape) * coalescing_factor(machine, stride)
        for buffer, stride in _strides(program)
    )
    terms = 1 + task_flops(task) / size if any(s.combine for s in stores_of(program.body)) else 1
    nests = len(root_body(program))
    launch = LaunchShape(
        blocks=blocks, threads=threads, vector=vector, block_bytes=nbytes / blocks, passes=1,
        steps=np.full(len(threads), float(terms)),
    )  # fmt: skip
    once = launch_cycles(machine, launch)
    return once + np.where(merge == 0, 0.5 * (nests - 1) * once, 0.0)


def _strides(program: Program) -> list[tuple[Buffer, int]]:
    """Params that are read, and how far apart neighbouring elements of what is computed read."""
    params = {p.name: p for p in program.params}
    out: dict[str, int] = {}
    for store in stores_of(program.body):
        along = store.indices[-1].terms[-1][0] if store.indices and store.indices[-1].terms else ""
        for load in value_loads(store.value):
            if load.buffer not in params:
                continue
            flat = Index()
            for i, stride in zip(load.indices, params[load.buffer].strides, strict=True):
                flat = flat + i * stride
            step = abs(flat.coefficient(along)) if isinstance(along, str) else 1
            out[load.buffer] = max(step, out.get(load.buffer, 0))
    return [(params[name], step) for name, step in out.items()]


def _bind(builder: ScheduleBuilder, nest: For, threads: int, vector: int) -> None:
    loops = own_loops(nest)
    plain = len(stores_of((nest,))) == 1 and len(loops) == len(nest_loops(nest))
    lanes = bind_flat(builder, loops, threads, vector)
    if lanes is None:
        return
    if plain and builder.extent(lanes) > 1 and attempt(builder, Vectorize(loops=(lanes,))):
        return
    keep_sums(builder, nest, lanes)


RULES.add(GpuNestsRule.name, GpuNestsRule())
