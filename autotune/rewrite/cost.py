"""The predicted time of a graph: the seconds of the tasks that it would be cut into.

A task that fuses costs what the fused kernel does. Times are those of default schedules by the
prior, on a machine of the target's kind: whoever tunes and whoever compiles gets the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import cost_model
from autotune.graph.ir import Graph
from autotune.graph.pipeline import ARRANGE, optimize
from autotune.machine import Machine
from autotune.placement.partition import partition
from autotune.target import Target
from autotune.types import Task
from search_spaces.sound import asked

Measured = Callable[[Task], float | None]
_Kind = tuple[object, ...]
"""A task but for how far apart its values' rows lie."""


class Costs:
    """Seconds of tasks, each asked for once. `measured`: what a log has of a task; `machine`: what
    times are predicted for, if it is known better than by its target."""

    def __init__(
        self, target: Target, measured: Measured | None = None, machine: Machine | None = None
    ) -> None:
        self.machine = machine or Machine.of(target)
        self._measured = measured
        self.measures = measured is not None
        self._predicted: dict[_Kind, float] = {}

    def tasks(self, graph: Graph) -> Counter[Task]:
        """The tasks of a graph as it would be compiled, and how often each is called."""
        return Counter(partition(optimize(graph, ARRANGE)).weights())

    def expected(self, before: Counter[Task], after: Counter[Task]) -> tuple[float, float]:
        """Predicted seconds, before and after, of the tasks that differ by more than by how far
        apart rows lie: where one writes beside others, or alone, predictions hardly tell, and the
        same error in both would hide what differs."""
        return self.gone(before, after), self.gone(after, before)

    def gone(self, before: Counter[Task], after: Counter[Task]) -> float:
        """Predicted seconds of those that there are no more."""
        old, new = before - after, after - before
        return _sum(_left(old, _by_kind(old) - _by_kind(new)), self.predicted)

    def measured(self, before: Counter[Task], after: Counter[Task]) -> tuple[float, float] | None:
        """The same as they were measured; None where one was not: a measured time is not compared
        with a predicted one."""
        gone, new = before - after, after - before
        times = {t: self._measured(t) if self._measured else None for t in (*gone, *new)}
        known = {t: s for t, s in times.items() if s is not None}
        if len(known) < len(times):
            return None
        return _sum(gone, known.__getitem__), _sum(new, known.__getitem__)

    def predicted(self, task: Task) -> float:
        """Seconds of the default schedule of the first rule that has one."""
        kind = _kind(task)
        if kind not in self._predicted:

            def ask(rule: object) -> float:
                config = cost_model.default(task, self.machine, rule)  # type: ignore[arg-type]
                found = cost_model.predict(task, self.machine, [config], rule)  # type: ignore[arg-type]
                return float(found.seconds[0])

            self._predicted[kind] = asked(ask, task, self.machine.target)
        return self._predicted[kind]


def _kind(task: Task) -> _Kind:
    """Its operators, types, halos, and distances of neighbours."""
    return task.nodes, *(
        (v.name, v.type, v.layout.halo, v.layout.strides[-1:]) for v in task.values
    )


def _by_kind(tasks: Counter[Task]) -> Counter[_Kind]:
    found: Counter[_Kind] = Counter()
    for task, count in tasks.items():
        found[_kind(task)] += count
    return found


def _left(tasks: Counter[Task], counts: Counter[_Kind]) -> Counter[Task]:
    """As many of these tasks as there are of their kinds."""
    left, found = Counter(counts), Counter[Task]()
    for task, count in tasks.items():
        found[task] = min(count, left[_kind(task)])
        left[_kind(task)] -= found[task]
    return found


def _sum(tasks: Counter[Task], seconds: Callable[[Task], float]) -> float:
    return math.fsum(n * seconds(task) for task, n in tasks.items())
