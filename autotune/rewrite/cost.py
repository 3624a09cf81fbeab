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


class Costs:
    """Seconds of tasks, each asked for once. `measured`: what a log has of a task."""

    def __init__(self, target: Target, measured: Measured | None = None) -> None:
        self.machine = Machine.of(target)
        self._measured = measured
        self.measures = measured is not None
        self._predicted: dict[Task, float] = {}

    def tasks(self, graph: Graph) -> Counter[Task]:
        """The tasks of a graph as it would be compiled, and how often each is called."""
        return Counter(partition(optimize(graph, ARRANGE)).weights())

    def expected(self, before: Counter[Task], after: Counter[Task]) -> tuple[float, float]:
        """Predicted seconds, before and after, of the tasks that differ."""
        return _sum(before - after, self.predicted), _sum(after - before, self.predicted)

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
        if task not in self._predicted:

            def ask(rule: object) -> float:
                config = cost_model.default(task, self.machine, rule)  # type: ignore[arg-type]
                found = cost_model.predict(task, self.machine, [config], rule)  # type: ignore[arg-type]
                return float(found.seconds[0])

            self._predicted[task] = asked(ask, task, self.machine.target)
        return self._predicted[task]


def _sum(tasks: Counter[Task], seconds: Callable[[Task], float]) -> float:
    return math.fsum(n * seconds(task) for task, n in tasks.items())
