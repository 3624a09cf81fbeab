"""The contractions that are no faster on bytes, and so stay in float32, or on the numbers that
bytes of the model's own stand for. In: a graph of floats, the same on bytes, a machine, a tuning
log. Out: what stays, and by which times.

Times are measured where the log has all tasks of a contraction in both precisions, else predicted.
Where a processor has no instruction for products of bytes, what few multiplications compute in
float32 (Winograd, Strassen) and what waits for memory come out differently.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.compiler.layout_costs import measured_in
from autotune.db.types import LogStore
from autotune.graph.at_sizes import graph_at
from autotune.graph.int8.quantize import Lowered, Pays, Slower
from autotune.graph.ir import Graph
from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.placement.partition import partition
from autotune.rewrite.cost import Costs
from autotune.target import Target
from autotune.types import Task

_SURE = 0.95
"""Share of its predicted time on bytes that a contraction has to take in float32 to stay there:
bytes were asked for."""
_WORTH_S = 1e-6
"""Seconds that it has to take less: predictions tell no smaller ones."""
_CLEAR = 0.6
"""Share of one predicted time in the other below which neither is worth measuring."""

MOST_SAVED = 3.5
"""Products at a time, over multiply-adds of float32, from which on no algorithm on floats is as
fast as bytes: F(6x6) takes a third of direct code's time."""

_Times = tuple[float, float]
"""Seconds in float32, and on bytes."""


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A call: the names of the nodes that it computes a part of, and its task."""

    nodes: frozenset[str]
    task: Task


@dataclass(frozen=True, slots=True)
class _Contraction:
    """Its kernels in float32 and on bytes, with what is fused or goes along with it."""

    floats: Counter[Task]
    lowered: Counter[Task]


def bytes_that_pay(
    target: Target,
    profile: Callable[[], DeviceProfile | None] = lambda: None,
    log: LogStore | None = None,
) -> Pays | None:
    """What is asked about products that could be of bytes; None for a target that is not predicted
    for, or whose results are not to depend on the machine. `profile`: of the machine that it is
    predicted for, if it is known, asked for where there is such a product."""
    if target.kind != "cpu" or target.is_reproducible:
        return None

    @functools.cache
    def costs() -> Costs:
        measured = measured_in(log, target) if log is not None else None
        return Costs(target, measured, Machine.of(target, profile()))

    @functools.cache
    def surely() -> bool:
        """Whether the model's own bytes need not be asked about."""
        fast = costs().machine.products_per_lane("int8") >= MOST_SAVED
        return fast and log is None and target.precision != "int8"

    def pays(graph: Graph, lowered: Lowered, contractions: frozenset[str]) -> Slower:
        return Slower() if surely() else _slower(graph, lowered, contractions, costs())

    return pays


def asked_at(pays: Pays, sizes: Mapping[str, int]) -> Pays:
    """The same of graphs of open sizes, whose symbols are given these values."""

    def at(graph: Graph, lowered: Lowered, contractions: frozenset[str]) -> Slower:
        return pays(graph_at(graph, sizes), lowered, contractions)

    return at


def _slower(graph: Graph, lowered: Lowered, contractions: frozenset[str], costs: Costs) -> Slower:
    """Each contraction by itself first; then whether the whole gains by it: between layers of two
    precisions data are converted."""
    named = _named(graph)
    on_bytes = lowered(named, frozenset())
    found = _contractions(named, on_bytes, contractions)
    times, slower = {}, {}
    for value, kernels in found.items():
        measured = costs.measured(kernels.floats, kernels.lowered)
        times[value] = measured or costs.expected(kernels.floats, kernels.lowered)
        floats_s, bytes_s = times[value]
        if floats_s < bytes_s * (1.0 if measured else _SURE) - _WORTH_S:
            slower[value] = times[value]
    ways: Sequence[Mapping[str, _Times]] = ({}, slower, times)
    kept = (frozenset(slower), frozenset(times)) if slower else ()
    graphs = (on_bytes, *(lowered(named, each) for each in kept))
    totals = [Counter(partition(g).weights()) for g in graphs]
    best = min(range(len(totals)), key=lambda i: _beside(costs, totals[0], totals[i]))
    return Slower(times=ways[best], decisive=_decisive(found, costs))


def _beside(costs: Costs, first: Counter[Task], other: Counter[Task]) -> float:
    """Seconds more than the first one: measured, else predicted."""
    was_s, is_s = costs.measured(first, other) or costs.expected(first, other)
    return is_s - was_s


def _decisive(found: Mapping[str, _Contraction], costs: Costs) -> tuple[Task, ...]:
    """Tasks of contractions whose predicted times are near each other, each once."""
    tasks: dict[Task, None] = {}
    for kernels in found.values():
        times = costs.expected(kernels.floats, kernels.lowered)
        if min(times) > _CLEAR * max(times):
            tasks |= dict.fromkeys((*kernels.floats, *kernels.lowered))
    return tuple(tasks)


def _contractions(
    floats: Graph, on_bytes: Graph, contractions: Iterable[str]
) -> dict[str, _Contraction]:
    """Kernels of a contraction are those of any node that its kernel of floats computes too."""
    before, after = _kernels(floats), _kernels(on_bytes)
    names = {node.output: node.name for node in floats.nodes}
    found = {}
    for value in sorted(contractions):
        mine = [k for k in before if names[value] in k.nodes]
        nodes = frozenset().union(*(k.nodes for k in mine))
        theirs = (k.task for k in after if not nodes.isdisjoint(k.nodes))
        found[value] = _Contraction(Counter(k.task for k in mine), Counter(theirs))
    return found


def _kernels(graph: Graph) -> list[_Kernel]:
    return [_Kernel(frozenset(c.name.split("+")), c.task) for c in partition(graph).calls]


def _named(graph: Graph) -> Graph:
    """The graph with every node named after its place: models may name none, or several alike."""
    nodes = (dataclasses.replace(node, name=str(i)) for i, node in enumerate(graph.nodes))
    return dataclasses.replace(graph, nodes=tuple(nodes))
