"""The layouts of a graph's values. In: a layout problem, seconds of its kernels. Out: the
layouts in which all kernels together take the least time.

A layout that is not dense must gain more than the noise of what the seconds come from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph
from autotune.placement.layout_problem import Combination, KernelVariants, LayoutProblem
from autotune.placement.layout_solver import CostTable, solve
from autotune.placement.layouts import Layouts
from autotune.placement.partition import partition
from autotune.placement.types import Partition
from autotune.target import Target
from autotune.types import Task

_SURE = 0.01
"""Share of the time of every kernel around a layout that is not dense, which it must gain
(chosen)."""

CostOf = Callable[[Mapping[Combination, tuple[Task, ...]]], Mapping[Combination, float]]
"""Seconds of each variant of a kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Layouts that are not dense, and what their kernels cost in them and in dense ones."""

    layouts: Layouts
    cost_s: float
    dense_s: float
    exact: bool
    """Whether no other layouts cost less, by what is known."""


def apply(problem: LayoutProblem, graph: Graph, target: Target, layouts: Layouts) -> Partition:
    """The partition of the problem's graph in these layouts."""
    if not layouts:
        return problem.dense
    return partition(graph, attention=target.joins_attention, layouts=layouts)


def choose(problem: LayoutProblem, cost_of: CostOf) -> Choice:
    """The layouts that cost least."""
    tables = [_table(kernel, problem, cost_of(kernel.variants)) for kernel in problem.kernels]
    sizes = {value: len(options) for value, options in problem.options.items()}
    solution = solve(sizes, tables)
    return Choice(
        layouts=problem.layouts(solution.options),
        cost_s=solution.cost,
        dense_s=sum(t.at(dict.fromkeys(sizes, 0)) for t in tables),
        exact=solution.exact,
    )


def explain(choice: Choice) -> tuple[str, ...]:
    """The layouts chosen, a line for each, and what they gain; nothing where all are dense."""
    lines = [f"{value}: {layout}" for value, layout in choice.layouts.items()]
    if lines:
        how = "" if choice.exact else ", perhaps not the least"
        lines.append(
            f"their kernels take {1e6 * choice.cost_s:.0f} us instead of "
            f"{1e6 * choice.dense_s:.0f} us{how}"
        )
    return tuple(lines)


def _table(
    kernel: KernelVariants, problem: LayoutProblem, known: Mapping[Combination, float]
) -> CostTable:
    """Seconds of a kernel in every combination; those that cannot be had are infinite."""
    shape = [len(problem.options[value]) for value in kernel.values]
    costs = np.full(shape, np.inf)
    for combination in itertools.product(*map(range, shape)):
        if combination in known:
            sure = 1 + _SURE * any(combination)
            costs[combination] = sure * known[combination]
    return CostTable(names=kernel.values, costs=costs)
