"""Costs of tasks in their layouts. In: tasks, a target, a tuning log. Out: seconds, and the
layouts that they speak for: whoever tunes and whoever compiles gets the same from the same log.

A kernel's variants are compared like with like: by what was measured where the log knows them; a
variant that it does not know, by one that it knows and how much the prior says they differ; all of
them by the prior where it knows none. The prior is the least time that arithmetic and data allow,
on a core of the target's width, and what windows read again where rows evict each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import cost_model
from autotune.db.types import LogStore
from autotune.graph.ir import Graph
from autotune.machine import Machine
from autotune.machine.cpu import core_seconds, l3_seconds
from autotune.ops import OPS
from autotune.placement.layout_choice import Choice, apply, choose
from autotune.placement.layout_problem import Combination, LayoutProblem, problem_of
from autotune.placement.stride_padding import read_again_bytes
from autotune.placement.types import Partition
from autotune.target import Target
from autotune.tasks.flops import task_flops
from autotune.types import ITEM_BYTES, Task
from search_spaces.algorithms.base import share_of_direct
from search_spaces.sound import asked

Measured = Callable[[Task], float | None]


def arranged(graph: Graph, target: Target, log: LogStore | None = None) -> Partition:
    """The partition of a prepared graph in its best layouts."""
    problem = problem_of(graph, target)
    return apply(problem, graph, target, choose_layouts(problem, target, log).layouts)


def choose_layouts(problem: LayoutProblem, target: Target, log: LogStore | None = None) -> Choice:
    """The layouts that cost least, by the log and the prior."""
    measured = measured_in(log, target)
    return choose(problem, lambda variants: variant_costs(variants, target, measured))


def measured_in(log: LogStore | None, target: Target) -> Measured:
    """The fastest time that a log has of a task for the target."""
    known: dict[Task, float | None] = {}

    def look_up(task: Task) -> float | None:
        if task not in known:
            record = log.best(task.key, target) if log is not None else None
            known[task] = record.result.median_s if record is not None else None
        return known[task]

    return look_up


def variant_costs(
    variants: Mapping[Combination, tuple[Task, ...]], target: Target, measured: Measured
) -> dict[Combination, float]:
    """Seconds of every variant of a kernel."""
    times = {c: _total(tasks, measured) for c, tasks in variants.items()}
    weights = [
        tuple(v.type for t in tasks for v in t.by_role("constant")) for tasks in variants.values()
    ]
    algorithms = len(set(weights)) > 1
    points = _points(variants)
    priors = {
        c: math.fsum(_prior_s(t, target, points, algorithms) for t in tasks)
        for c, tasks in variants.items()
    }
    known = {c: time_s for c, time_s in times.items() if time_s is not None and priors[c] > 0}
    ratios = [time_s / priors[c] for c, time_s in known.items()]
    scale = math.fsum(ratios) / len(ratios) if ratios else 1.0
    out = {}
    for combination, time_s in times.items():
        out[combination] = scale * priors[combination] if time_s is None else time_s
    return out


def _total(tasks: tuple[Task, ...], measured: Measured) -> float | None:
    """Seconds of all of them; None where one was not measured."""
    times = [measured(task) for task in tasks]
    known = [t for t in times if t is not None]
    return math.fsum(known) if len(known) == len(times) else None


def _points(variants: Mapping[Combination, tuple[Task, ...]]) -> Mapping[str, int]:
    """How close the points of every operand of the kernel lie in some variant."""
    out: dict[str, int] = {}
    for tasks in variants.values():
        for value in (v for t in tasks for v in t.params if len(v.type.shape) == 4):
            name = f"{value.name} {value.type}"
            out[name] = min(out.get(name, value.layout.strides[2]), value.layout.strides[2])
    return out


def _prior_s(task: Task, target: Target, points: Mapping[str, int], algorithms: bool) -> float:
    """Seconds of a task on one core; `algorithms`: whether its variants may differ in them."""
    flops = float(task_flops(task))
    if algorithms and task.op == "conv2d":
        flops *= _default_share(task, target)
    moved = math.fsum(v.type.nbytes for v in task.params)
    if OPS.get(task.op).kind in ("view", "data"):  # of a slice's operand, only that slice
        moved = 2 * task.by_role("output")[0].type.nbytes
    types = {v.name: v.type for v in task.values}
    extra = 0.0
    for value in task.by_role("input") + task.by_role("output"):
        if len(value.type.shape) != 4:
            continue
        step = value.layout.strides[2]
        nearest = points.get(f"{value.name} {value.type}", step)
        item = ITEM_BYTES[value.type.dtype]
        extra += (step - nearest) * item * math.prod(value.type.shape[:3])
        for node in task.nodes:
            extra += read_again_bytes(node, value.name, types, value.layout.strides, target)
    # The same speeds for whoever tunes and who compiles; only their ratios matter.
    machine = Machine.of(target)
    often = 2 if task.op == "copy" else 1  # what is copied is fetched once more by its reader
    return often * core_seconds(machine, flops, moved) + l3_seconds(machine, extra)


@functools.lru_cache(maxsize=1024)
def _default_share(task: Task, target: Target) -> float:
    """Share of direct code's time that the algorithm of the task's default schedule is taken to
    need; 1 where it names none."""
    config = asked(lambda rule: cost_model.default(task, Machine.of(target), rule), task, target)
    return share_of_direct(config, target)
