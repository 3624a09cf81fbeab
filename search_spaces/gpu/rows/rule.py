"""GPUs: rows that are reduced (softmax, normalisations, sums): a block of threads for each row.

The threads pass over the row side by side, as often as the algorithm needs, in vectors of
`vector`. A reduction ends in an exchange of registers within warps, or in a tree over shared
memory where threads have no warps; what is computed in one pass and read in the next stays in
shared memory, single values in every thread's registers. `split`: so many blocks share a row that
is reduced once, each leaving a part; a whole tensor that is reduced is one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.machine.gpu import LaunchShape, launch_cycles, peak_flops_per_cycle, waves
from autotune.ops import OPS
from autotune.program.ir import Alloc, For, Load, Scope, Stmt, walk
from autotune.program.rewrite import find_buffer, find_loop, stores_of, value_loads
from autotune.schedule import Scheduled
from autotune.schedule.gpu.bind import Bind
from autotune.schedule.gpu.collective import Shuffled, SingleThread, Tree
from autotune.schedule.loops.nest import Reorder, Vectorize
from autotune.schedule.loops.partial import Partial, UnitLoop
from autotune.schedule.memory.scope import StoreAt
from autotune.target import Target
from autotune.tasks.build import node_computes
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, SHORT_FLOATS, Task
from search_spaces.base import RULES, Access, Column, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    inline_locals,
    local_buffers,
    nest_loops,
    output_name,
)
from search_spaces.gpu.blocks import attempt, bind_rest, merge_nests, thread_choices
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Constraint, Space

_LEAST = 32
"""Elements of a row that are worth a block."""
_PARTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Blocks that share a row."""
_ALIGNED = 128
"""Elements that a part of a row is a multiple of."""


def row_length(task: Task) -> int:
    """Elements that the anchor reduces at a time, along the data's last dimension; 0 if it does
    not."""
    reductions = [c for c in node_computes(task, task.nodes[task.anchor]) if c.combine]
    for compute in reductions:
        last = compute.reduce[-1].name
        loads = [v for v in value_loads(compute.body) if isinstance(v, Load) and v.indices]
        if not loads or loads[0].indices[-1].coefficient(last) != 1:
            return 0
    lengths = {math.prod(a.extent for a in c.reduce) for c in reductions}
    return lengths.pop() if len(lengths) == 1 else 0


class GpuRowsRule(Rule):
    """Reduced rows on GPUs, a block of threads a row, or several blocks with partial results."""

    name = "gpu_rows"
    priority = 6

    def matches(self, task: Task, target: Target) -> bool:
        if not target.is_gpu or any(v.type.dtype not in _FLOATS for v in task.values):
            return False
        if OPS.get(task.op).kind == "contraction" or row_length(task) < _LEAST:
            return False
        return bool(_RowLoops(task, 1).loops)

    def space(self, task: Task, target: Target) -> Space:
        length = row_length(task)
        choices = [n for n in thread_choices(target) if n & (n - 1) == 0]
        threads = tuple(n for n in choices if n <= max(length, choices[0]))

        def worth(configs: Configs) -> npt.NDArray[Any]:
            part = length / configs["split"]
            return np.asarray((configs["split"] == 1) | (part >= 4 * configs["threads"]))

        return Space(
            (
                Param(name="threads", choices=threads),
                Param(name="vector", choices=tuple(v for v in (1, 2, 4) if length % v == 0)),
                Param(name="split", choices=_PARTS if _splittable(task) else (1,)),
            ),
            (Constraint("part", worth),),
        )

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        threads, vector = config.number("threads"), config.number("vector")
        rows = _RowLoops(task, config.number("split"))
        builder = rows.builder
        for nest, kept in rows.nests():
            if kept:
                rows.keep(target)
            block = builder.fuse(nest, f"rows{'' if kept else '_part'}")
            builder.apply(Bind(loop=block, axis="block.x"))
            for stmt in _loops(find_loop(builder.program, block).body):
                rows.share_pass(stmt, threads, vector, exchange=target.warp > 1)
            builder.apply(SingleThread(loop=block))
        bind_rest(builder, target)
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        threads, vector, split = (
            configs[p].astype(np.float64) for p in ("threads", "vector", "split")
        )
        ones, length = np.ones(len(threads)), row_length(task)
        count = max(1, task.by_role("input")[0].type.size // length)
        accesses = tuple(
            Access(
                buffer=name, item_bytes=4, shape=(count, length), written=name == "out",
                dims=((("row", 1),), (("column", 1),)),
            )
            for name in ("in", "out")
        )  # fmt: skip
        steps = np.ceil(length / split / (threads * vector))
        return TileStructure(
            extents={"row": count, "column": length},
            reduce_axes=frozenset(),
            accesses=accesses,
            tiles=({"row": ones}, {"column": threads * vector}, {"column": vector}),
            flops=max(1, task_flops(task)),
            accumulators=vector,
            vector_axis_waste=steps * split * threads * vector / length,
            parallel_chunks=count * split,
            unrolled=vector,
            extra={
                "threads": threads, "vector": vector, "steps": steps, "split": split,
                "waves": waves(machine, count * split, threads),
            },
        )  # fmt: skip

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        peak = max(1, task_flops(task)) / peak_flops_per_cycle(machine)
        return Prior(cycles=_cycles(task, machine, configs), peak_cycles=peak)


def _splittable(task: Task) -> bool:
    """Whether all that is reduced is one sum of each row, which blocks can share."""
    computes = node_computes(task, task.nodes[task.anchor])
    return sum(bool(c.combine) for c in computes) == 1 and not _RowLoops(task, 1).kept


def _cycles(task: Task, machine: Machine, configs: Configs) -> Column:
    """Cycles of the device: each pass over a row waits for memory once, each reduction for the
    threads."""
    threads, vector, split = (
        configs[p].astype(np.float64) for p in ("threads", "vector", "split")
    )
    length, computes = row_length(task), node_computes(task, task.nodes[task.anchor])
    count = max(1, task.by_role("input")[0].type.size // length)
    reductions = sum(bool(c.combine) for c in computes)
    written = task.by_role("output")[0].type.size / count / split
    part = length / split
    first = LaunchShape(
        blocks=count * split, threads=threads, vector=vector,
        block_bytes=4 * (part * _inputs(task) + written), passes=len(computes),
        steps=np.ceil(part / (threads * vector)), meetings=reductions,
    )  # fmt: skip
    second = LaunchShape(
        blocks=count, threads=threads, vector=vector, block_bytes=4 * split, passes=1,
        steps=np.ones(len(threads)), meetings=1,
    )  # fmt: skip
    combine = np.where(split > 1, launch_cycles(machine, second), 0.0)
    return np.asarray(launch_cycles(machine, first) + combine)


def _inputs(task: Task) -> int:
    """Tensors as large as the data that are read."""
    size = task.by_role("input")[0].type.size
    return sum(v.type.size == size for v in task.by_role("input"))


_FLOATS = ("float32", "float64", *SHORT_FLOATS)


class _RowLoops:
    """A task's program with everything in the loops over its rows."""

    def __init__(self, task: Task, split: int) -> None:
        self.builder = ScheduleBuilder(task)
        output = output_name(task)
        inline_locals(self.builder, keep=frozenset((output,)), cheap_only=True)
        attempt(self.builder, UnitLoop(loop="one"))
        self.loops = merge_nests(self.builder)
        self.split = split
        self.kept = bool(local_buffers(self.builder.program))
        """Whether more than the output is computed."""

    def nests(self) -> Iterator[tuple[list[str], bool]]:
        """The loops over rows of each nest to bind; whether it is the one that all is computed in:
        before it comes the one of the parts."""
        if self.split > 1:
            yield self._part(), False
        yield self.loops, True

    def _part(self) -> list[str]:
        """Split the only reduction into parts, in a nest of their own."""
        builder = self.builder
        chain = nest_loops(_loops(find_loop(builder.program, self.loops[-1]).body)[0])
        names = [loop.var for loop in chain]
        whole = builder.fuse(names, "all") if len(names) > 1 else names[0]
        size = -(-builder.extent(whole) // (self.split * _ALIGNED)) * _ALIGNED
        builder.split(whole, size, "parts", "part")
        buffer = stores_of((find_loop(builder.program, "part"),))[0].buffer
        builder.apply(Partial(buffer=buffer, loop="parts"))
        return ["parts", *(f"{loop}_part" for loop in self.loops)]

    def keep(self, target: Target) -> None:
        """Keep what one row computes in shared memory, as far as it fits; single values in every
        thread's registers, where threads exchange those."""
        left = target.shared_bytes - 1024 * 8
        for name in sorted(local_buffers(self.builder.program)):
            step = StoreAt(buffer=name, loop=self.loops[-1], scope="shared")
            try:
                buffer = find_buffer(step.apply(self.builder.program), name)
            except ScheduleError:
                # Not of one row: it stays in global memory.
                continue
            size = math.prod(buffer.shape)
            nbytes = size * ITEM_BYTES[buffer.dtype] + 16
            scope: Scope = "register" if size == 1 and target.warp > 1 else "shared"
            if nbytes <= left or scope == "register":
                left -= nbytes * (scope == "shared")
                self.builder.apply(StoreAt(buffer=name, loop=self.loops[-1], scope=scope))

    def share_pass(self, top: For, threads: int, vector: int, *, exchange: bool) -> None:
        """One pass by all threads; a reduction ends in an exchange of registers, or a tree."""
        builder, chain = self.builder, nest_loops(top)
        stores = stores_of((top,))
        local = {s.buffer.name for s in walk((top,)) if isinstance(s, Alloc)}
        name = f"{chain[0].var}_k"
        whole = chain[0].var if len(chain) == 1 else builder.fuse([c.var for c in chain], name)
        lanes = vector if builder.extent(whole) % vector == 0 else 1
        v, t, c = f"{name}_v", f"{name}_t", f"{name}_c"
        builder.split(whole, lanes, f"{name}_o", v)
        builder.split(f"{name}_o", threads, c, t)
        builder.apply(Reorder(loops=(t, c, v)))
        if len(stores) == 1 and stores[0].combine and not local:
            reduce = Shuffled if exchange else Tree
            builder.apply(reduce(buffer=stores[0].buffer, loop=t, lanes=v))
            found = builder.present([v, f"{v}_init"])
        else:
            builder.apply(Bind(loop=t, axis="thread.x"))
            found = builder.present([v])
        if lanes > 1:
            for loop in found:
                attempt(builder, Vectorize(loops=(loop,)))


def _loops(body: tuple[Stmt, ...]) -> list[For]:
    """The loops over a row's elements, in order."""
    out: list[For] = []
    for stmt in body:
        if isinstance(stmt, Alloc):
            out += _loops(stmt.body)
        elif isinstance(stmt, For):
            out.append(stmt)
    return out


RULES.add(GpuRowsRule.name, GpuRowsRule())
