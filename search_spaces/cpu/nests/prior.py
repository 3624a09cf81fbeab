"""Cycles of one core that a config of the nests rule should take.

In: a task, the machine and configs. Out: cycles, one per config. A task is a row of
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

from autotune.machine import Machine
from autotune.machine.cpu import clocks
from autotune.ops import OPS
from autotune.program.ir import Apply, Compute, Load, Select, Value
from autotune.target import Target
from autotune.tasks.build import node_computes
from autotune.tasks.flops import task_flops
from autotune.types import Task, TaskNode
from search_spaces.base import Column
from search_spaces.builder import CHEAP, is_written_again
from search_spaces.space import Configs

FUNCTION_CYCLES = {
    "div": 8.0, "mod": 40.0, "sqrt": 8.0, "rsqrt": 12.0, "reciprocal": 8.0, "exp": 9.0,
    "log": 12.0, "erf": 15.0, "tanh": 15.0, "sigmoid": 12.0, "pow": 25.0, "sin": 15.0, "cos": 15.0,
    "expm1": 11.0, "sinh": 25.0, "cosh": 18.0, "tan": 38.0, "asin": 20.0, "acos": 20.0,
    "atan": 20.0, "asinh": 45.0, "acosh": 40.0, "atanh": 30.0, "softplus": 22.0, "mish": 24.0,
    "silu": 20.0, "swish": 25.0, "gelu_erf": 30.0, "gelu_tanh": 32.0,
}  # fmt: skip
"""Cycles per vector of element functions; every other one takes `CHEAP_CYCLES`. Fitted, as all
constants here, on Zen 4, to surveys of softmax and layer norm where they are of rows.
"""
CHEAP_CYCLES = 0.33
"""Cycles per vector of an addition, product, maximum."""
VECTOR_CYCLES = 1.5
"""Cycles to load or store a vector."""
ROW_CYCLES = 6.0
"""Cycles to start a pass over a row."""
TAIL_CYCLES = 3.0
"""Cycles of what is left of a row, under a mask."""
ITERATION_CYCLES = 0.7
"""Cycles of an iteration's counter and branch."""
PARTIAL_CYCLES = 1.5
"""Cycles to add one more partial result of a reduction."""
SHIFT_LOOKUP_CYCLES = 6.0
"""Cycles per iteration to fetch the shift of a shifted variance (Chan, Golub, LeVeque 1983) where
the reduction has a ragged end."""
MERGED_PASS_STALL_CYCLES = 8.0
"""Cycles per row that a merged pass waits for the result of the pass before it."""
AHEAD = 2
"""Choice of `merge`: merged, and the last pass beside the sums of the next rows."""
AHEAD_L1_SHARE = 0.6
"""Share of the L1 cache that rows of two blocks which are read, and of one which is written, may
take."""
EVICTED_WAIT = 4.0
"""Times that waiting for the outer caches takes where these rows do not stay."""
ROWS_L1_SHARE = 0.8
"""Share of the L1 cache that rows which take a pass together may fill."""
NO_PREFETCH, PREFETCH_ROWS = "none", "rows"
"""Choices of `prefetch`: what a block of merged rows asks for, of the next one."""
PREFETCHED_WAIT = 0.7
"""Share of the waiting for the outer caches that is left where rows are asked for early."""
NARROW = 1 / 8
"""Share of the elements below which a pass is not one over rows, but of their results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NestPass:
    """One nest: `rows` times a loop over `width` elements."""

    rows: int
    width: int
    reduces: bool
    work: float
    """Cycles per vector of elements."""
    streams: int
    """Arrays of that size that are read or written."""
    shared: int = 0
    """Streams of these that are the same for every row."""
    centred: bool = False
    """Whether it adds squares around a mean."""


def passes_of(task: Task) -> tuple[NestPass, ...]:
    """The nests of a task, in order, with what is inlined into them."""
    output = task.by_role("output")[0].name
    computes = [(node, node_computes(task, node)) for node in task.nodes]
    sums = [c for _, found in computes for c in found if c.combine]
    rowwise, outer = bool(sums), len(sums[0].axes) if sums else -1
    out: list[NestPass] = []
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


def _pass(compute: Compute, work: float, outer: int) -> NestPass:
    """One nest, below `outer` loops over rows."""
    inner = compute.reduce or compute.axes[outer:] or compute.axes[-1:]
    width = math.prod(a.extent for a in inner)
    points = math.prod(a.extent for a in (*compute.axes, *compute.reduce))
    wide = {a.name for a in inner}
    loads = [v for v in _values(compute.body) if isinstance(v, Load)]
    used = {v.buffer: {n for i in v.indices for n in i.vars()} for v in loads}
    full = {name for name, names in used.items() if inner and inner[-1].name in names}
    return NestPass(
        rows=max(1, points // max(width, 1)),
        width=width,
        reduces=compute.combine is not None,
        work=work + CHEAP_CYCLES,
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


def _in_one(passes: tuple[NestPass, ...]) -> tuple[NestPass, ...]:
    """The passes where squares are added up beside the sum that their mean comes from."""
    at = next((n for n, p in enumerate(passes) if p.centred), None)
    if at is None:
        return passes
    both = replace(passes[at], work=passes[at].work + 2 * CHEAP_CYCLES, centred=True)
    return (both, *(p for n, p in enumerate(passes) if n != at and not _same(p, both)))


def _same(one: NestPass, two: NestPass) -> bool:
    return one.reduces and (one.rows, one.width) == (two.rows, two.width)


def _values(value: Value) -> list[Value]:
    if isinstance(value, Apply):
        return [value, *(v for a in value.args for v in _values(a))]
    if isinstance(value, Select):
        return [value, *_values(value.then), *_values(value.other)]
    return [value]


def _work(value: Value) -> float:
    return FUNCTION_CYCLES.get(value.fn, CHEAP_CYCLES) if isinstance(value, Apply) else 0.0


def cycles(task: Task, passes: tuple[NestPass, ...], machine: Machine, configs: Configs) -> Column:
    """Cycles of all passes on one thread, per config."""
    apart = _cycles(task, passes, machine, configs, 1)
    if not any(p.centred for p in passes):
        return apart
    together = _cycles(task, _in_one(passes), machine, configs, 2)
    return np.where(configs["shift"] == 1, together, apart)


def _cycles(
    task: Task, passes: tuple[NestPass, ...], machine: Machine, configs: Configs, sums: int
) -> Column:
    """The same, with so many sums in a pass around a mean."""
    together, rowwise = configs["rows"].astype(np.float64), any(p.reduces for p in passes)
    merged = np.asarray(configs["merge"] != 0) & rowwise
    ahead = np.asarray(configs["merge"] == AHEAD) & rowwise
    total, beside, held = (np.zeros(len(together)) for _ in range(3))
    most = max(p.rows * p.width for p in passes)
    for one in passes:
        row = _row_cycles(one, machine, configs, merged, sums if one.centred else 1)
        stall = clocks(machine, MERGED_PASS_STALL_CYCLES) / together
        joined = one.rows * (row + stall)
        if one.rows * one.width <= NARROW * most:  # one number a row: merged, it is no vector
            joined = one.rows * one.width * (one.work + stall)
        elif one.reduces:  # beside the last pass, the shorter one costs nothing
            computed = math.ceil(one.width / min(machine.target.lanes(), one.width))
            busy = computed * max(one.work, VECTOR_CYCLES * one.streams)
            beside = one.rows * (busy + clocks(machine, ROW_CYCLES)) * np.ones(len(together))
            held = together * 4 * one.width * (2 * one.streams + 1)
        total = total + np.where(merged, joined, one.rows * row)
    total = total - np.where(ahead, beside, 0.0)
    evicted = ahead & (held > AHEAD_L1_SHARE * machine.l1_bytes)
    waits = _waits(task, passes, machine, configs, merged)
    return np.asarray(total + waits * np.where(evicted, EVICTED_WAIT, 1.0), np.float64)


def _row_cycles(
    one: NestPass, machine: Machine, configs: Configs, merged: npt.NDArray[Any], sums: int
) -> Column:
    """Cycles of a pass over one row, of so many sums."""
    unroll, together = (configs[name].astype(np.float64) for name in ("unroll", "rows"))
    computed, steps, tail = tiling(one, machine.target, unroll)
    streams = one.streams - np.where(merged & (together > 1), one.shared / 2, 0.0)
    row = computed * np.maximum(one.work, VECTOR_CYCLES * streams)
    row = row + clocks(machine, ROW_CYCLES) + np.where(tail, clocks(machine, TAIL_CYCLES), 0.0)
    if sums == 1:  # an iteration's own instructions find room between those of two sums
        row = row + steps * clocks(machine, ITERATION_CYCLES)
    else:
        row = row + np.where(tail, clocks(machine, SHIFT_LOOKUP_CYCLES) * (steps + 3), 0.0)
    if not one.reduces:
        return np.asarray(row)
    row = row + clocks(machine, PARTIAL_CYCLES) * unroll * sums
    # Additions wait for each other, but for those of another row.
    latency = steps * clocks(machine, machine.cpu.add_latency_cycles)
    chains = np.where(merged, np.minimum(together, 2), 2)
    return np.maximum(row, latency / chains)


def _waits(
    task: Task, passes: tuple[NestPass, ...], machine: Machine, configs: Configs,
    merged: npt.NDArray[Any],
) -> Column:  # fmt: skip
    """Cycles of waiting for the outer caches. Rows that are asked for early take room beside those
    of the block before."""
    early = merged & asked_early(configs)
    together = configs["rows"].astype(np.float64)
    held = together * _row_bytes(passes) * np.where(early, 2.0, 1.0)
    fits = held <= ROWS_L1_SHARE * machine.l1_bytes
    inner, next_, outer = _streaming(task, passes, machine)
    waits = np.where(merged, np.where(fits | (together == 1), inner, next_), outer)
    return waits * np.where(early, PREFETCHED_WAIT, 1.0)


def asked_early(configs: Configs) -> npt.NDArray[Any]:
    """Which configs ask for rows early; none of spaces that have no such choice."""
    chosen = configs.get("prefetch")
    count = len(configs["rows"])
    return np.zeros(count, bool) if chosen is None else np.asarray(chosen == PREFETCH_ROWS)


def _row_bytes(passes: tuple[NestPass, ...]) -> float:
    """A row of what is read and of what is written."""
    most = max(p.rows * p.width for p in passes)
    return max(8.0 * p.width for p in passes if p.rows * p.width > NARROW * most)


def tiling(
    one: NestPass, target: Target, unroll: Column
) -> tuple[Column, Column, npt.NDArray[Any]]:
    """(vectors computed, iterations, whether one is left over) of a row, as the schedule splits
    it."""
    lanes = min(target.lanes(), one.width)
    side = np.maximum(1, np.minimum(unroll, one.width // lanes))
    if not one.reduces:
        side = np.where(one.width >= lanes * unroll, unroll, 1.0)
    steps = np.ceil(one.width / (lanes * side))
    computed = math.ceil(one.width / lanes) * np.ones(len(side))
    return computed, steps, np.asarray(one.width % (lanes * side) != 0)


def _streaming(
    task: Task, passes: tuple[NestPass, ...], machine: Machine
) -> tuple[float, float, float]:
    """Cycles of waiting for the outer caches: of merged passes whose rows stay in the innermost
    one, of those that find them in the next, and of separate ones, which read what the ones
    before them wrote."""
    cpu = machine.cpu
    held = sum(v.type.nbytes for role in ("input", "output") for v in task.by_role(role))
    if held <= machine.l1_bytes:
        return 0.0, 0.0, 0.0
    inside = held <= machine.l2_bytes
    speed = cpu.l2_pass_bytes_per_cycle if inside else cpu.l3_pass_bytes_per_cycle
    written_speed = (
        cpu.l2_written_pass_bytes_per_cycle if inside else cpu.l3_written_pass_bytes_per_cycle
    )
    slower = max(0.0, 1 / written_speed - 1 / speed)
    out = slower * sum(v.type.nbytes for v in task.by_role("output"))
    between = slower * sum(4.0 * p.rows * p.width for p in passes if not p.reduces)
    moved = sum(4.0 * (p.streams - p.shared) * p.rows * p.width for p in passes)
    again = max(moved - held, 0.0) / cpu.l2_pass_bytes_per_cycle
    inner = held / speed + out
    return inner, inner + again, max(moved, held) / speed + max(out, between)
