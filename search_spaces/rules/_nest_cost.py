"""What a config of the nests rule should cost, in cycles of one core.

In: a task, the target and columns of configs. Out: cycles, one per config. A task is a row of
passes over rows of elements: reductions, and tensors that are worth keeping. Merged passes find
the row in the innermost cache, but wait for each other: less so where several rows take a pass
together, as long as these fit there; more of them read it from the next one. Two sums that share a
pass read it once. Only the order of the numbers matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.graph.plan import task_flops
from autotune.ops import OPS
from autotune.program.build import node_computes
from autotune.program.ir import Apply, Compute, Load, Select, Value
from autotune.target import Target
from autotune.types import Task, TaskNode
from search_spaces.base import Column
from search_spaces.rules._builder import CHEAP, is_written_again
from search_spaces.space import Columns

_SLOW = {
    "div": 8.0, "mod": 12.0, "sqrt": 8.0, "rsqrt": 12.0, "reciprocal": 8.0, "exp": 9.0,
    "log": 12.0, "erf": 15.0, "tanh": 15.0, "sigmoid": 12.0, "pow": 25.0, "sin": 15.0, "cos": 15.0,
}  # fmt: skip
"""Cycles per vector; every other function takes _PLAIN."""
_PLAIN = 0.33
_STREAM = 1.5
"""Loading or storing a vector."""
_ROW = 6.0
"""Starting a pass over a row."""
_TAIL = 3.0
"""What is left of a row, under a mask."""
_STEP = 0.7
"""An iteration."""
_LATENCY = 3.5
"""Of an add or maximum: iterations of a reduction wait for each other by so much."""
_MIXED = 1.5
"""Adding one more partial result of a reduction."""
_AGAIN = 6.0
"""Finding the element that squares are taken around, in each iteration where one is shorter."""
_WAITING = 8.0
"""Of a merged pass for the one before it."""
AHEAD = 2
"""Choice of `merge`: merged, and the last pass beside the sums of the next rows."""
_HELD_AHEAD = 0.6
"""Of the innermost cache: rows of two blocks that are read, and of one that is written."""
_EVICTED = 4.0
"""Waiting for the outer caches where it does not."""
_NARROW = 1 / 8
"""Share of the elements below which a pass is not one over rows, but of their results."""
_L2_BYTES_PER_CYCLE = 60.0
_L3_BYTES_PER_CYCLE = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One nest: `rows` times a loop over `width` elements."""

    rows: int
    width: int
    reduces: bool
    work: float
    """Cycles per vector of elements."""
    streams: int
    """Arrays of that size that are read or written."""
    shared: int = 0
    """Those of them that are the same for every row."""
    centred: bool = False
    """Whether it adds squares around a mean."""


def passes_of(task: Task) -> tuple[Pass, ...]:
    """The nests of a task, in order, with what is inlined into them."""
    output = task.by_role("output")[0].name
    computes = [(node, node_computes(task, node)) for node in task.nodes]
    sums = [c for _, found in computes for c in found if c.combine]
    rowwise, outer = bool(sums), len(sums[0].axes) if sums else -1
    out: list[Pass] = []
    inlined = 0.0
    for node, found in computes:
        for compute in found:
            work = sum(_work(v) for v in _values(compute.body))
            again = rowwise and is_written_again(task, node, compute)
            if compute.output != output and (again or _vanishes(node, compute, rowwise)):
                inlined += work
                continue
            out.append(_pass(compute, work + inlined, outer))
            inlined = 0.0
    return tuple(out)


def _vanishes(node: TaskNode, compute: Compute, rowwise: bool) -> bool:
    """Whether a local tensor is computed in its readers, as the schedule inlines it."""
    if compute.output not in node.outputs:
        return False
    plain = OPS.get(node.op).kind in ("elementwise", "data", "view")
    return plain and (not rowwise or node.op in CHEAP)


def ideal_cycles(task: Task, target: Target) -> float:
    """What a prior's prediction is relative to: every operation at the multiply-add's rate."""
    return max(1, task_flops(task)) / (2 * target.lanes())


def _pass(compute: Compute, work: float, outer: int) -> Pass:
    """One nest, below `outer` loops over rows."""
    inner = compute.reduce or compute.axes[outer:] or compute.axes[-1:]
    width = math.prod(a.extent for a in inner)
    points = math.prod(a.extent for a in (*compute.axes, *compute.reduce))
    wide = {a.name for a in inner}
    loads = [v for v in _values(compute.body) if isinstance(v, Load)]
    used = {v.buffer: {n for i in v.indices for n in i.vars()} for v in loads}
    full = {name for name, names in used.items() if inner and inner[-1].name in names}
    return Pass(
        rows=max(1, points // max(width, 1)),
        width=width,
        reduces=compute.combine is not None,
        work=work + _PLAIN,
        streams=len(full) + (compute.combine is None),
        shared=sum(used[name] == wide for name in full) if points > width else 0,
        centred=compute.combine is not None and mean_of(compute) != "",
    )


def mean_of(compute: Compute) -> str:
    """What a reduction subtracts from elements that it squares; empty where it does not."""
    if isinstance(compute.body, Apply) and len(set(compute.body.args)) == 1:
        apart = compute.body.args[0]
        if isinstance(apart, Apply) and apart.fn == "sub" and isinstance(apart.args[1], Load):
            return apart.args[1].buffer
    return ""


def _in_one(passes: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """The passes where squares are added up beside the sum that their mean comes from."""
    at = next((n for n, p in enumerate(passes) if p.centred), None)
    if at is None:
        return passes
    both = replace(passes[at], work=passes[at].work + 2 * _PLAIN, centred=True)
    return (both, *(p for n, p in enumerate(passes) if n != at and not _same(p, both)))


def _same(one: Pass, two: Pass) -> bool:
    return one.reduces and (one.rows, one.width) == (two.rows, two.width)


def _values(value: Value) -> list[Value]:
    if isinstance(value, Apply):
        return [value, *(v for a in value.args for v in _values(a))]
    if isinstance(value, Select):
        return [value, *_values(value.then), *_values(value.other)]
    return [value]


def _work(value: Value) -> float:
    return _SLOW.get(value.fn, _PLAIN) if isinstance(value, Apply) else 0.0


def cycles(task: Task, passes: tuple[Pass, ...], target: Target, columns: Columns) -> Column:
    """Cycles of all passes on one thread, per config."""
    apart = _cycles(task, passes, target, columns, 1)
    if not any(p.centred for p in passes):
        return apart
    together = _cycles(task, _in_one(passes), target, columns, 2)
    return np.where(columns["shift"] == 1, together, apart)


def _cycles(
    task: Task, passes: tuple[Pass, ...], target: Target, columns: Columns, sums: int
) -> Column:
    """The same, with so many sums in a pass around a mean."""
    unroll, together = (columns[name].astype(np.float64) for name in ("unroll", "rows"))
    rowwise = any(p.reduces for p in passes)
    merged = np.asarray(columns["merge"] != 0) & rowwise
    ahead = np.asarray(columns["merge"] == AHEAD) & rowwise
    total, beside, held = (np.zeros(len(unroll)) for _ in range(3))
    most = max(p.rows * p.width for p in passes)
    for one in passes:
        computed, steps, tail = tiling(one, target, unroll)
        streams = one.streams - np.where(merged & (together > 1), one.shared / 2, 0.0)
        row = computed * np.maximum(one.work, _STREAM * streams)
        row = row + _ROW + np.where(tail, _TAIL, 0.0)
        added = sums if one.centred else 1
        if added == 1:  # an iteration's own instructions find room between those of two sums
            row = row + steps * _STEP
        else:
            row = row + np.where(tail, _AGAIN * (steps + 3), 0.0)
        if one.reduces:
            waiting = steps * _LATENCY
            row = row + _MIXED * unroll * added
            row = np.maximum(row, np.where(merged, waiting / np.minimum(together, 2), waiting / 2))
        apart, joined = one.rows * row, one.rows * (row + _WAITING / together)
        if one.rows * one.width <= _NARROW * most:  # one number a row: merged, it is no vector
            joined = one.rows * one.width * (one.work + _WAITING / together)
        elif one.reduces:  # beside the last pass, the shorter one costs nothing
            beside = one.rows * (computed * max(one.work, _STREAM * one.streams) + _ROW)
            held = together * 4 * one.width * (2 * one.streams + 1)
        total = total + np.where(merged, joined, apart)
    total = total - np.where(ahead, beside, 0.0)
    fits = together * _row_bytes(passes) <= 0.8 * target.l1_bytes
    inner, next_, outer = _streaming(task, passes, target)
    waits = np.where(merged, np.where(fits | (together == 1), inner, next_), outer)
    waits = waits * np.where(ahead & (held > _HELD_AHEAD * target.l1_bytes), _EVICTED, 1.0)
    return np.asarray(total + waits, np.float64)


def _row_bytes(passes: tuple[Pass, ...]) -> float:
    """A row of what is read and of what is written."""
    most = max(p.rows * p.width for p in passes)
    return max(8.0 * p.width for p in passes if p.rows * p.width > _NARROW * most)


def tiling(one: Pass, target: Target, unroll: Column) -> tuple[Column, Column, npt.NDArray[Any]]:
    """(vectors computed, iterations, whether one is left over) of a row, as the schedule splits
    it."""
    lanes = min(target.lanes(), one.width)
    side = np.maximum(1, np.minimum(unroll, one.width // lanes))
    if not one.reduces:
        side = np.where(one.width >= lanes * unroll, unroll, 1.0)
    steps = np.ceil(one.width / (lanes * side))
    computed = math.ceil(one.width / lanes) * np.ones(len(side))
    return computed, steps, np.asarray(one.width % (lanes * side) != 0)


def _streaming(task: Task, passes: tuple[Pass, ...], target: Target) -> tuple[float, float, float]:
    """Cycles of waiting for the outer caches: of merged passes whose rows stay in the innermost
    one, of those that find them in the next, and of separate ones, which read what the ones
    before them wrote."""
    held = sum(v.type.nbytes for role in ("input", "output") for v in task.by_role(role))
    if held <= target.l1_bytes:
        return 0.0, 0.0, 0.0
    speed = _L2_BYTES_PER_CYCLE if held <= target.l2_bytes else _L3_BYTES_PER_CYCLE
    moved = sum(4.0 * (p.streams - p.shared) * p.rows * p.width for p in passes)
    again = max(moved - held, 0.0) / _L2_BYTES_PER_CYCLE
    return held / speed, held / speed + again, max(moved, held) / speed
