"""Everything else: elementwise chains, moved data, rows (softmax, normalization), any reduction.

Elementwise tensors are inlined into their readers. Nests that share their outer loops are merged,
so that a row stays in the L1 cache from its first pass to its last; `rows` of them take each pass
together, since a row alone leaves the core waiting at the end of a pass. With `shift` a mean and a
variance take one pass. In each nest the innermost loop runs in vectors; a reduction along it keeps
`unroll` partial vectors, and what rows have in common is loaded once for two. What is left of a
row that is no multiple of those has code of its own. Rows that come from afar may be asked for a
block ahead (`prefetch`). This rule matches every task but scans and scatters, whose order counts.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.machine.cpu import busiest_share
from autotune.ops import OPS
from autotune.program import ir
from autotune.program.rewrite import find_loop, loop_path, stores_of, value_loads
from autotune.schedule import Scheduled
from autotune.schedule.loops.compute import Inline, root_body
from autotune.schedule.loops.nest import Unroll, Vectorize
from autotune.schedule.loops.rfactor import RFactor
from autotune.schedule.loops.shift import Shift
from autotune.schedule.loops.specialize import Specialize
from autotune.target import Target
from autotune.tasks.build import node_computes
from autotune.tasks.flops import task_flops
from autotune.types import Task
from search_spaces.base import RULES, Access, Prior, Rule, TileStructure
from search_spaces.builder import (
    ScheduleBuilder,
    inline_locals,
    is_written_again,
    local_buffers,
    nest_loops,
    output_name,
    own_loops,
    schedule_elementwise,
    share,
    vectorize_loop,
    widen_last,
)
from search_spaces.cpu.nests.prior import (
    AHEAD,
    NO_PREFETCH,
    PREFETCH_ROWS,
    asked_early,
    cycles,
    ideal_cycles,
    passes_of,
    tiling,
)
from search_spaces.cpu.nests.rows import (
    BLOCK,
    chunks_of,
    has_lanes,
    inner_statements,
    is_guarded,
    is_row,
    jam,
    last_rows,
    may_prefetch,
    merge,
    moments_of,
    prefetch_rows,
    row_width,
    run_ahead,
)
from search_spaces.cpu.nests.runs import schedule_runs
from search_spaces.cpu.nests.transposes import schedule_transpose
from search_spaces.params import Config, Param
from search_spaces.space import Configs, Constraint, Space
from search_spaces.windows import is_patterned, schedule_patterned

_REGISTERS = 5
"""A row's sums, and what its last pass takes from them."""


class NestsRule(Rule):
    """Elementwise chains, moved data, softmax, norms and any other reduction, by merged nests."""

    name = "nests"
    priority = 0

    def matches(self, task: Task, target: Target) -> bool:
        return not target.is_gpu and OPS.get(task.op).kind not in ("scatter", "scan")

    def space(self, task: Task, target: Target) -> Space:
        together = tuple(r for r in (1, 2, 4, 8) if r <= last_rows(task))
        ahead = self._ahead(task, target)
        asking = Param(name="prefetch", choices=(NO_PREFETCH, PREFETCH_ROWS))
        early = (asking,) if may_prefetch(task, target) else ()

        def fits(configs: Configs) -> npt.NDArray[Any]:
            alone = (configs["rows"] == 1) & (configs["shift"] == 0)
            return np.asarray(alone | (configs["merge"] != 0))

        def asks(configs: Configs) -> npt.NDArray[Any]:
            return np.asarray(~asked_early(configs) | (configs["merge"] == 1))

        def may_run_ahead(configs: Configs) -> npt.NDArray[Any]:
            pairs = zip(configs["rows"].tolist(), configs["unroll"].tolist(), strict=True)
            found = np.array([pair in ahead for pair in pairs], bool)
            return np.asarray(found | (configs["merge"] != AHEAD))

        return Space(
            (
                Param(name="unroll", choices=(1, 2, 4, 8)),
                Param(name="merge", choices=(1, 0, AHEAD) if ahead else (1, 0)),
                Param(name="rows", choices=together),
                Param(name="shift", choices=(0, 1) if moments_of(task, target) else (0,)),
                *early,
            ),
            (
                Constraint("merged", fits),
                Constraint("ahead", may_run_ahead),
                Constraint("prefetched", asks),
            ),
        )

    def _ahead(self, task: Task, target: Target) -> frozenset[tuple[int, int]]:
        """Rows of a block, and vectors at a time, with which the last pass of a block can go
        beside the sums of the next."""
        width, shape = row_width(task), task.by_role("output")[0].type.shape
        found = frozenset(
            (rows, unroll)
            for rows in (2, 4)
            if _REGISTERS * rows + 3 <= target.vector_registers
            for unroll in (1, 2, 4)
            if width % (target.lanes() * unroll) == 0
            and chunks_of(last_rows(task), rows, math.prod(shape[:-2]), target.threads)
        )
        if not width or not found:
            return frozenset()
        rows, unroll = min(found)
        items = {"unroll": unroll, "merge": AHEAD, "rows": rows, "shift": 0}
        try:
            self.write(task, target, Config(tuple(items.items())))
        except ScheduleError:  # rows that are read or written in ways of their own
            return frozenset()
        return found

    def write(self, task: Task, target: Target, config: Config) -> Scheduled:
        builder = ScheduleBuilder(task)
        output = output_name(task)
        inline_locals(builder, keep=frozenset((output,)), cheap_only=_has_reduction(builder))
        _inline_results(builder)
        unroll = config.number("unroll")
        ahead = config.number("merge") == AHEAD
        moments = moments_of(task, target) if config.number("shift") else None
        if moments:
            builder.apply(Shift(buffer=moments[1]))
        if config.number("merge"):
            merge(builder, config.number("rows"), "register" if ahead else "scratch")
        for stmt in root_body(builder.program):
            if isinstance(stmt, ir.For) and ahead and any(s.combine for s in stores_of((stmt,))):
                run_ahead(builder, target, stmt, unroll, moments)
            elif isinstance(stmt, ir.For):
                early = dict(config.items).get("prefetch") == PREFETCH_ROWS
                _schedule_nest(builder, target, stmt, unroll, moments, early=early)
        return builder.scheduled

    def structure(self, task: Task, machine: Machine, configs: Configs) -> TileStructure:
        target = machine.target
        unroll = configs["unroll"].astype(np.float64)
        ones = np.ones(len(unroll))
        shape = task.by_role("output")[0].type.shape or (1,)
        rows, width = math.prod(shape[:-1]), shape[-1]
        item = 4
        accesses = [
            Access(
                buffer=f"in{i}", item_bytes=item, shape=(max(1, v.type.size // width), width),
                dims=((("row", 1),), (("column", 1),)),
            )
            for i, v in enumerate(task.by_role("input"))
        ]  # fmt: skip
        accesses.append(
            Access(
                buffer="out", item_bytes=item, shape=(rows, width), written=True,
                dims=((("row", 1),), (("column", 1),)),
            )
        )  # fmt: skip
        lanes = target.lanes()
        passes = passes_of(task)
        widest = max(passes, key=lambda p: p.rows * p.width)
        computed, steps, tail = tiling(widest, target, unroll)
        return TileStructure(
            extents={"row": rows, "column": width},
            reduce_axes=frozenset(),
            accesses=tuple(accesses[-3:]),
            tiles=({"row": ones}, {"column": np.minimum(unroll * lanes, width)}),
            flops=max(1, task_flops(task)),
            accumulators=unroll,
            vector_axis_waste=computed * min(lanes, widest.width) / widest.width,
            parallel_chunks=rows * ones,
            unrolled=unroll,
            extra={
                "unroll": unroll,
                "merge": configs["merge"].astype(np.float64),
                "rows": configs["rows"].astype(np.float64),
                "tail": tail.astype(np.float64),
                "steps": steps,
                "passes": len(passes) - configs["shift"].astype(np.float64),
                "reductions": sum(p.reduces for p in passes) - configs["shift"].astype(np.float64),
                "work": max(p.work for p in passes) * ones,
            },
        )

    def prior(self, task: Task, machine: Machine, configs: Configs) -> Prior:
        shape = task.by_role("output")[0].type.shape or (1,)
        busy = cycles(task, passes_of(task), machine, configs)
        rows = np.full(len(busy), float(math.prod(shape[:-1])))
        return Prior(
            cycles=busy * busiest_share(rows, machine.target.threads),
            peak_cycles=ideal_cycles(task, machine.target),
        )


def _has_reduction(builder: ScheduleBuilder) -> bool:
    return any(s.combine for s in stores_of(builder.program.body))


def _inline_results(builder: ScheduleBuilder) -> None:
    """Compute what a norm ends with in the elementwise node that reads it."""
    for node in builder.task.nodes:
        for compute in node_computes(builder.task, node):
            name = compute.output
            if name in local_buffers(builder.program) and is_written_again(
                builder.task, node, compute
            ):
                with contextlib.suppress(ScheduleError):  # read at places of its own
                    builder.apply(Inline(buffer=name))


def _schedule_nest(
    builder: ScheduleBuilder,
    target: Target,
    nest: ir.For,
    unroll: int,
    moments: tuple[str, str] | None,
    *,
    early: bool,
) -> None:
    """`early`: ask for the rows of the next block."""
    chain = nest_loops(nest)
    loops = [loop.var for loop in chain]
    stores = stores_of((nest,))
    if len(stores) == 1 and not stores[0].combine:
        if schedule_transpose(builder, target, stores[0], loops):
            return
        if schedule_runs(builder, target, loops, unroll):
            return
        if is_patterned(builder.program, loops[-1]):
            schedule_patterned(builder, target, loops, unroll)
        else:
            schedule_elementwise(builder, target, loops, unroll)
        return
    chain = list(itertools.takewhile(lambda loop: not is_row(loop), chain))
    inner = [s for s in inner_statements(chain[-1].body) if isinstance(s, ir.For)]
    shorter = [_schedule_inner(builder, target, stmt, unroll) for stmt in inner]
    if moments:
        jam(builder, moments)
    if early:
        prefetch_rows(builder, chain[-1].var)
    for loop in builder.present(shorter):
        builder.apply(Specialize(loop=loop))
    if chain[-1].var.endswith(BLOCK) and is_guarded(find_loop(builder.program, chain[-1].var)):
        builder.apply(Specialize(loop=chain[-1].var))
    share(builder, target, own_loops(chain[0])[: len(chain)], f"{loops[0]}_p")


def _schedule_inner(builder: ScheduleBuilder, target: Target, top: ir.For, unroll: int) -> str:
    """Vectors along the innermost loop of one pass over a row; gives the loop of a reduction whose
    last iteration is shorter, if any."""
    stores = [s for s in ir.walk((top,)) if isinstance(s, ir.Store)]
    if len(stores) != 1 or not has_lanes(builder, stores[0]):
        return ""
    loops = widen_last(builder, target, [loop.var for loop in nest_loops(top)])
    chain = nest_loops(find_loop(builder.program, loops[0]))
    top, last = chain[0], chain[-1]
    if last.extent < 4:
        return ""
    stores = stores_of((top,))
    if not stores[0].combine:
        pair = _pair(builder, top, stores[0]) if len(chain) == 1 else ""
        vectorize_loop(builder, last.var, target.lanes(), unroll, pair)
        return ""
    lanes = min(target.lanes(), last.extent)
    partial = max(1, min(unroll, last.extent // lanes))
    builder.split(last.var, lanes * partial, f"{last.var}_o", f"{last.var}_b")
    builder.split(f"{last.var}_b", lanes, f"{last.var}_u", f"{last.var}_v")
    lane_loops = (f"{last.var}_u", f"{last.var}_v")
    outer = top.var if len(chain) > 1 else f"{last.var}_o"
    builder.apply(RFactor(buffer=stores[0].buffer, top=outer, loops=lane_loops))
    unrolled, lane_wise = (
        builder.present([f"{loop}{kind}" for kind in ("", "_init", "_mix", "_out")])
        for loop in lane_loops
    )
    builder.apply(Unroll(loops=unrolled))
    builder.apply(Vectorize(loops=lane_wise))
    return f"{last.var}_o" if last.extent % (lanes * partial) else ""


def _pair(builder: ScheduleBuilder, top: ir.For, store: ir.Store) -> str:
    """A loop over two rows, written out, around a pass; empty where rows have nothing in common or
    come by odd numbers."""
    row = loop_path(builder.program.body, top.var)[-2]
    if not isinstance(row, ir.For) or not is_row(row) or row.extent % 2 or len(row.body) > 1:
        return ""
    used = [
        frozenset[str]().union(*(i.vars() for i in v.indices)) for v in value_loads(store.value)
    ]
    if not any(top.var in v and row.var not in v for v in used):
        return ""
    pair = f"{row.var}_pair"
    builder.split(row.var, 2, f"{row.var}_o", pair)
    builder.apply(Unroll(loops=(pair,)))
    return pair


RULES.add(NestsRule.name, NestsRule())
