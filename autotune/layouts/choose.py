"""The layouts of a graph's values. In: a prepared graph, a target, a tuning log. Out: the graph
cut into tasks, every value in the layout that makes all kernels together fastest.

Whoever tunes and whoever compiles gets the same from the same log: that of `costs`, the sum over
all kernels least. A layout that is not dense must gain more than the log's noise.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from autotune.db.types import Store
from autotune.graph.ir import Graph
from autotune.graph.layouts import Layouts
from autotune.graph.partition import partition
from autotune.graph.plan import Partition
from autotune.layouts.costs import Measured, measured_in, variant_costs
from autotune.layouts.problem import Kernel, LayoutProblem, problem_of
from autotune.layouts.solve import CostTable, solve
from autotune.target import Target

_SURE = 0.01
"""Share of the time of every kernel around a layout that is not dense, which it must gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Layouts that are not dense, and what their kernels cost in them and in dense ones."""

    layouts: Layouts
    cost_s: float
    dense_s: float
    exact: bool
    """Whether no other layouts cost less, by what is known."""


def arranged(graph: Graph, target: Target, log: Store | None = None) -> Partition:
    """The partition of a prepared graph in its best layouts."""
    problem = problem_of(graph, target)
    return apply(problem, graph, target, choose(problem, target, log).layouts)


def apply(problem: LayoutProblem, graph: Graph, target: Target, layouts: Layouts) -> Partition:
    """The partition of the problem's graph in these layouts."""
    if not layouts:
        return problem.dense
    return partition(graph, attention=target.joins_attention, layouts=layouts)


def choose(problem: LayoutProblem, target: Target, log: Store | None = None) -> Choice:
    """The layouts that cost least, by the log and the prior."""
    measured = measured_in(log, target)
    tables = [_table(kernel, problem, target, measured) for kernel in problem.kernels]
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
    kernel: Kernel, problem: LayoutProblem, target: Target, measured: Measured
) -> CostTable:
    """Seconds of a kernel in every combination; those that cannot be had are infinite."""
    known = variant_costs(kernel.variants, target, measured)
    shape = [len(problem.options[value]) for value in kernel.values]
    costs = np.full(shape, np.inf)
    for combination in itertools.product(*map(range, shape)):
        if combination in known:
            sure = 1 + _SURE * any(combination)
            costs[combination] = sure * known[combination]
    return CostTable(names=kernel.values, costs=costs)
