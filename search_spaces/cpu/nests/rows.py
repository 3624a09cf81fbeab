"""Rows of reductions (softmax, normalization) as schedules: passes side by side and ahead.

In: a builder whose nests are one pass each. Out: steps that merge them over blocks of rows, that
find a mean and a variance in one pass, and that let the last pass of a block, which writes, go
through the core beside the pass over the next block that adds up: the one has the multipliers
busy, the other the adders, and neither waits at its end.
"""

from __future__ import annotations

import contextlib
import itertools
import math

from autotune.errors import ScheduleError
from autotune.program.ir import Alloc, For, If, Scope, Stmt, Store, walk
from autotune.program.rewrite import find_loop, loop_path, stores_of, value_loads
from autotune.schedule.loops.compute import ComputeAt, root_body
from autotune.schedule.loops.distribute import Distribute
from autotune.schedule.loops.jam import Jam
from autotune.schedule.loops.licm import Hoist
from autotune.schedule.loops.nest import Reorder, Unroll, Vectorize
from autotune.schedule.loops.rfactor import RFactor
from autotune.schedule.loops.shift import Shift
from autotune.schedule.loops.software_pipeline import SoftwarePipeline
from autotune.schedule.loops.specialize import Specialize
from autotune.schedule.memory.prefetch import PrefetchNext
from autotune.schedule.memory.scope import StoreAt
from autotune.target import Target
from autotune.tasks.build import node_computes
from autotune.types import Task
from search_spaces.builder import (
    ScheduleBuilder,
    inline_locals,
    local_buffers,
    nest_loops,
    output_name,
    share,
)
from search_spaces.cpu.nests.prior import mean_of

BLOCK, ROW = "_block", "_row"
"""Ends of the names of loops over blocks of rows, and over the rows of a block."""


def last_rows(task: Task) -> int:
    """How many rows lie along the innermost loop over rows; 1 where a task has no rows."""
    for node in task.nodes:
        for compute in node_computes(task, node):
            if compute.combine:
                return compute.axes[-1].extent if compute.axes else 1
    return 1


def moments_of(task: Task, target: Target) -> tuple[str, str] | None:
    """The buffers of a row's sum and of the squares around its mean, where both may be found in
    one pass: None where there are none, a tensor is no rows but one sum, or rounding errors are
    not to grow."""
    computes = {c.output: c for node in task.nodes for c in node_computes(task, node)}
    means = {name: mean_of(c) for name, c in computes.items() if c.combine and c.axes}
    found = [(name, mean) for name, mean in means.items() if mean in computes]
    if target.accuracy != "normal" or not found:
        return None
    squares, mean = found[0]
    builder = ScheduleBuilder(task)
    inline_locals(builder, keep=frozenset((output_name(task),)), cheap_only=True)
    try:
        builder.apply(Shift(buffer=squares))
    except ScheduleError:
        return None
    return next(value_loads(computes[mean].body)).buffer, squares


def merge(builder: ScheduleBuilder, together: int, scope: Scope = "scratch") -> None:
    """Merge nests into the first reduction's, as deep as they share loops, where that is legal.
    Of the last loop they share, `together` iterations take each pass side by side. What passes
    from one to the next lies in memory of a scope."""
    nests = [s for s in root_body(builder.program) if isinstance(s, For)]
    first = next((n for n in nests if any(s.combine for s in stores_of((n,)))), None)
    if first is None:
        return
    rows = [loop.var for loop in nest_loops(first)]
    rest = nests[nests.index(first) + 1 :]
    if not rows or not rest:
        return
    at = rows[-1]
    if together > 1:
        shape = [loop.extent for loop in nest_loops(first)]
        for nest in (first, *rest):
            chain = nest_loops(nest)
            if [loop.extent for loop in chain[: len(rows)]] == shape:
                var = chain[len(rows) - 1].var
                builder.split(var, together, var + BLOCK, var + ROW)
        at += BLOCK
    for name in [stores_of((n,))[-1].buffer for n in rest]:
        try:
            builder.apply(ComputeAt(buffer=name, at=at))
        except ScheduleError:
            # Not of the same rows: it stays a nest of its own.
            continue
    for name in sorted(local_buffers(builder.program)):
        try:
            builder.apply(StoreAt(buffer=name, loop=at, scope=scope))
        except ScheduleError:
            continue


def inner_statements(body: tuple[Stmt, ...]) -> list[Stmt]:
    """Statements of a merged nest's body, below its local buffers and the loops over its rows."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Alloc | If) or (isinstance(stmt, For) and is_row(stmt)):
            out += inner_statements(stmt.body)
        else:
            out.append(stmt)
    return out


def is_row(loop: For) -> bool:
    return loop.var.endswith(ROW)


def is_guarded(block: For) -> bool:
    """Whether the last block of rows is not whole."""
    return any(
        isinstance(s, If) and any(block.var in b.index.vars() for b in s.bounds)
        for s in walk(block.body)
    )


def jam(builder: ScheduleBuilder, moments: tuple[str, str]) -> None:
    """Two sums share loops, from the outermost on, as far as that is legal."""
    chains = []
    for name in moments:
        stores = stores_of(builder.program.body)
        store = next(s for s in stores if s.combine and s.buffer in (name, f"{name}.part"))
        loops = (s for s in walk(builder.program.body) if isinstance(s, For))
        chains.append([s.var for s in loops if any(v is store for v in walk(s.body))])
    for loop, other in zip(*chains, strict=False):
        if loop != other:
            try:
                builder.apply(Jam(loop=loop, other=other))
            except ScheduleError:
                return


def has_lanes(builder: ScheduleBuilder, store: Store) -> bool:
    """Whether vectors of what is stored are reduced as those of floats are."""
    buffers = {p.name: p for p in builder.program.params}
    buffers |= {
        s.buffer.name: s.buffer for s in walk(builder.program.body) if isinstance(s, Alloc)
    }
    return buffers[store.buffer].dtype in ("float32", "int32", "int64")


def row_width(task: Task) -> int:
    """Elements of a row, where the task reduces rows and its last pass writes rows as long; 0
    where it does anything else."""
    computes = [(node, c) for node in task.nodes for c in node_computes(task, node)]
    *_, (_, last) = computes
    sums = [c for _, c in computes if c.combine]
    if not sums or last.combine or last.output != output_name(task):
        return 0
    rows = tuple(a.extent for a in sums[0].axes)
    width = sums[0].reduce[-1].extent
    alike = all(
        tuple(a.extent for a in c.axes) == rows and tuple(a.extent for a in c.reduce) == (width,)
        for c in sums
    )
    written = tuple(a.extent for a in last.axes)
    return width if rows and alike and written == (*rows, width) else 0


def may_prefetch(task: Task, target: Target) -> bool:
    """Whether rows may be asked for early: those that do not stay in the second cache."""
    data = [v for role in ("input", "output") for v in task.by_role(role)]
    return sum(v.type.nbytes for v in data) > target.l2_bytes and row_width(task) > 0


def prefetch_rows(builder: ScheduleBuilder, block: str) -> None:
    """Ask for what the next block of rows reads while the first pass that writes rows is at this
    one: it computes most."""
    inside = inner_statements(find_loop(builder.program, block).body)
    passes = [s for s in inside if isinstance(s, For) and s.kind == "serial"]
    writing = [s for s in passes if not any(store.combine for store in stores_of((s,)))]
    if not writing:
        return
    path = [s.var for s in loop_path(builder.program.body, writing[0].var) if isinstance(s, For)]
    first, loop = path[path.index(block) + 1], writing[0].var
    for value in builder.task.by_role("input"):
        with contextlib.suppress(ScheduleError):  # the same for all rows, or not in order
            builder.apply(PrefetchNext(buffer=value.name, outer=block, first=first, loop=loop))


def chunks_of(rows: int, together: int, outer: int, threads: int) -> int:
    """Pieces that blocks of rows are shared out in, each of two blocks at least; 0 where there
    are none. Several pieces are whole blocks."""
    blocks = rows // together
    if threads == 1:
        return 1 if blocks > 1 else 0
    fair = (
        pieces
        for pieces in range(1, blocks // 2 + 1)
        if blocks % pieces == 0
        and (outer * pieces >= 8 * threads or outer * pieces % threads == 0)
    )
    return next(fair, 0) if rows % together == 0 else 0


def run_ahead(
    builder: ScheduleBuilder,
    target: Target,
    nest: For,
    unroll: int,
    moments: tuple[str, str] | None,
) -> None:
    """Schedule merged passes so that the last one goes beside the last reduction of the next
    block."""
    chain = list(itertools.takewhile(lambda loop: not is_row(loop), nest_loops(nest)))
    block = chain[-1].var
    passes = [s for s in inner_statements(chain[-1].body) if isinstance(s, For)]
    adds = [stores_of((p,))[0].combine is not None for p in passes]
    if len(adds) < 2 or adds[-1]:
        raise ScheduleError(f"no pass that writes rows lies behind their sums, in loop {block!r}")
    if not all(adds[:-1]):
        raise ScheduleError("whole rows lie between the first pass and the last")
    *sums, last = (nest_loops(p)[-1].var for p in passes)
    for var in sums:
        _add_up(builder, target, var, unroll)
    together = _write(builder, target, last, unroll)
    if moments:
        jam(builder, moments)
    if is_guarded(find_loop(builder.program, block)):
        builder.apply(Specialize(loop=block))
    over = builder.present([f"{var}_o" for var in sums])[-1]
    _distribute(builder, over)
    outer = [loop.var for loop in chain[:-1]]
    if target.threads > 1:
        blocks, size = chain[-1].extent, math.prod(loop.extent for loop in chain[:-1])
        pieces = chunks_of(blocks * together, together, size, target.threads)
        outer.append(f"{block}_chunk")
        builder.split(block, blocks // pieces, outer[-1], f"{block}_part")
        block = f"{block}_part"
    builder.apply(SoftwarePipeline(loop=block, buffer=output_name(builder.task)))
    builder.apply(Jam(loop=over, other=f"{last}_o"))
    rows = (s.var for s in walk(builder.program.body) if isinstance(s, For) and s.kind == "serial")
    builder.apply(Unroll(loops=tuple(v for v in rows if ROW in v or "_now" in v)))
    share(builder, target, outer, f"{chain[0].var}_p")


def _add_up(builder: ScheduleBuilder, target: Target, var: str, unroll: int) -> None:
    """Vectors along a row's sum, with one vector of partial results."""
    store = next(s for s in stores_of((find_loop(builder.program, var),)) if s.combine)
    _split(builder, target, var, unroll)
    builder.apply(RFactor(buffer=store.buffer, top=f"{var}_o", loops=(f"{var}_v",)))
    lanes = builder.present([f"{var}_v{kind}" for kind in ("", "_init", "_out")])
    builder.apply(Vectorize(loops=lanes))


def _write(builder: ScheduleBuilder, target: Target, var: str, unroll: int) -> int:
    """Vectors along the last pass, the rows inside; gives how many these are."""
    row = loop_path(builder.program.body, var)[-2]
    assert isinstance(row, For)
    _split(builder, target, var, unroll)
    builder.apply(Reorder(loops=(f"{var}_o", f"{var}_u", f"{var}_v", row.var)))
    builder.apply(Unroll(loops=(row.var,)))
    builder.apply(Vectorize(loops=(f"{var}_v",)))
    return row.extent


def _split(builder: ScheduleBuilder, target: Target, var: str, unroll: int) -> None:
    lanes = target.lanes()
    builder.split(var, lanes * unroll, f"{var}_o", f"{var}_b")
    builder.split(f"{var}_b", lanes, f"{var}_u", f"{var}_v")
    builder.apply(Unroll(loops=(f"{var}_u",)))


def _distribute(builder: ScheduleBuilder, over: str) -> None:
    """The rows of a block through their sums together."""
    path = loop_path(builder.program.body, over)
    row = next(s for s in reversed(path) if isinstance(s, For) and is_row(s)).var
    with contextlib.suppress(ScheduleError):  # every value changes along the row
        builder.apply(Hoist(loop=over))
    builder.apply(Distribute(loop=row, inner=over))
    builder.apply(Unroll(loops=builder.present([row, f"{row}_{over}", f"{row}_out"])))
