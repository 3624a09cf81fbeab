"""GPUs: rows that are reduced (softmax, normalisations, sums): a block of threads for each row.

The threads pass over the row side by side, as often as the algorithm needs, in vectors of
`vector`. A reduction ends in a tree over shared memory; what is computed in one pass and read in
the next stays there too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import ScheduleError
from autotune.graph.plan import task_flops
from autotune.ops import OPS
from autotune.program.build import node_computes
from autotune.program.ir import Alloc, For, Load, Stmt, walk
from autotune.program.rewrite import find_buffer, find_loop, stores_of, value_loads
from autotune.schedule import Schedule
from autotune.schedule.scope import StoreAt
from autotune.target import Target
from autotune.types import ITEM_BYTES, Task
from search_spaces.base import RULES, Access, TileStructure
from search_spaces.params import Config, Param
from search_spaces.rules._builder import (
    ScheduleBuilder,
    inline_locals,
    local_buffers,
    nest_loops,
    output_name,
)
from search_spaces.rules._gpu import attempt, bind_rest, merge_nests, thread_choices
from search_spaces.space import Space

Columns = Mapping[str, npt.NDArray[Any]]
_LEAST = 32
"""Elements of a row that are worth a block."""


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


class GpuRowsRule:
    """See the module."""

    name = "gpu_rows"
    priority = 6

    def matches(self, task: Task, target: Target) -> bool:
        if not target.is_gpu or any(v.type.dtype not in _FLOATS for v in task.values):
            return False
        if OPS.get(task.op).kind == "contraction" or row_length(task) < _LEAST:
            return False
        return bool(_Rows(task).loops)

    def space(self, task: Task, target: Target) -> Space:
        length = row_length(task)
        choices = [n for n in thread_choices(target) if n & (n - 1) == 0]
        threads = tuple(n for n in choices if n <= max(length, choices[0]))
        return Space(
            (
                Param(name="threads", choices=threads),
                Param(name="vector", choices=tuple(v for v in (1, 2, 4) if length % v == 0)),
            )
        )

    def default(self, task: Task, target: Target) -> Config:
        space, length = self.space(task, target), row_length(task)
        vector = max(int(v) for v in space.params[1].choices)
        wanted = max(1, min(256, length // vector))
        threads = min(space.params[0].choices, key=lambda n: abs(int(n) - wanted))
        return Config((("threads", threads), ("vector", vector)))

    def schedule(self, task: Task, target: Target, config: Config) -> Schedule:
        rows = _Rows(task)
        rows.keep_shared(target)
        builder = rows.builder
        block = builder.fuse(rows.loops, "rows")
        builder.do("bind", loop=block, axis="block.x")
        for stmt in _loops(find_loop(builder.program, block).body):
            rows.share_pass(stmt, config.number("threads"), config.number("vector"))
        builder.do("solo", loop=block)
        bind_rest(builder, target)
        return builder.schedule

    def structure(self, task: Task, target: Target, columns: Columns) -> TileStructure:
        threads, vector = (columns[p].astype(np.float64) for p in ("threads", "vector"))
        ones, length = np.ones(len(threads)), row_length(task)
        count = max(1, task.by_role("input")[0].type.size // length)
        accesses = tuple(
            Access(
                buffer=name, item_bytes=4, shape=(count, length), written=name == "out",
                dims=((("row", 1),), (("column", 1),)),
            )
            for name in ("in", "out")
        )  # fmt: skip
        steps = np.ceil(length / (threads * vector))
        blocks = np.minimum(32.0, 2048 // threads) * target.multiprocessors
        return TileStructure(
            extents={"row": count, "column": length},
            reduce_axes=frozenset(),
            accesses=accesses,
            tiles=({"row": ones}, {"column": threads * vector}, {"column": vector}),
            flops=max(1, task_flops(task)),
            accumulators=vector,
            vector_axis_waste=steps * threads * vector / length,
            parallel_chunks=count * ones,
            unrolled=vector,
            extra={
                "threads": threads, "vector": vector, "steps": steps,
                "waves": np.ceil(count / blocks),
            },
        )  # fmt: skip


_FLOATS = ("float32", "float64")


class _Rows:
    """A task's program with everything in the loops over its rows."""

    def __init__(self, task: Task) -> None:
        self.builder = ScheduleBuilder(task)
        output = output_name(task)
        inline_locals(self.builder, keep=frozenset((output,)), cheap_only=True)
        self.loops = merge_nests(self.builder)

    def keep_shared(self, target: Target) -> None:
        """Keep what one row computes in shared memory, as far as it fits."""
        left = target.shared_bytes - 1024 * 8
        for name in sorted(local_buffers(self.builder.program)):
            step = StoreAt(buffer=name, loop=self.loops[-1], scope="shared")
            try:
                buffer = find_buffer(step.apply(self.builder.program), name)
            except ScheduleError:
                # Not of one row: it stays in global memory.
                continue
            nbytes = math.prod(buffer.shape) * ITEM_BYTES[buffer.dtype] + 16
            if nbytes <= left:
                left -= nbytes
                self.builder.do("store_at", buffer=name, loop=self.loops[-1], scope="shared")

    def share_pass(self, top: For, threads: int, vector: int) -> None:
        """One pass by all threads; a reduction ends in a tree."""
        builder, chain = self.builder, nest_loops(top)
        stores = stores_of((top,))
        local = {s.buffer.name for s in walk((top,)) if isinstance(s, Alloc)}
        name = f"{chain[0].var}_k"
        whole = chain[0].var if len(chain) == 1 else builder.fuse([c.var for c in chain], name)
        lanes = vector if builder.extent(whole) % vector == 0 else 1
        v, t, c = f"{name}_v", f"{name}_t", f"{name}_c"
        builder.split(whole, lanes, f"{name}_o", v)
        builder.split(f"{name}_o", threads, c, t)
        builder.do("reorder", loops=(t, c, v))
        if len(stores) == 1 and stores[0].combine and not local:
            builder.do("tree", buffer=stores[0].buffer, loop=t, lanes=v)
            found = builder.present([v, f"{v}_init"])
        else:
            builder.do("bind", loop=t, axis="thread.x")
            found = builder.present([v])
        if lanes > 1:
            for loop in found:
                attempt(builder, "vectorize", loops=(loop,))


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
