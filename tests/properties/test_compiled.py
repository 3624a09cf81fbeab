"""Compiled models compute what the graph says, whatever schedule each of their kernels has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler.driver import compile_graph
from autotune.compiler.layout_costs import arranged
from autotune.compiler.prepare import prepare
from autotune.db.types import Record
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.measure.types import MeasureResult, Status
from autotune.target import Target, host_target
from autotune.types import Array
from search_spaces.rules import rule_for
from tests.properties.graph_strategies import feeds_for, graphs

TOLERANCE = 1e-4


def assert_close(got: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Within a share of the largest value; exactly alike where they are not finite."""
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        assert got[name].shape == array.shape
        largest = float(np.abs(array).max(initial=0.0))
        limit = TOLERANCE * max(1.0, largest)
        assert float(np.abs(got[name] - array).max(initial=0.0)) <= limit, name


class RandomRecords:
    """A log that knows a record of every task, each with a config drawn from its space; of tasks
    in layouts that no default has it knows none."""

    def __init__(self, graph: Graph, target: Target, seed: int) -> None:
        parts = arranged(prepare(graph, target.precision).graph, target, None)
        self._tasks = {task.key: task for task in parts.weights()}
        self._target, self._rng = target, np.random.default_rng(seed)

    def best(self, task_key: str, target: Target | str) -> Record | None:  # noqa: ARG002
        if task_key not in self._tasks:
            return None
        task = self._tasks[task_key]
        rule = rule_for(task, self._target)
        space = rule.space(task, self._target)
        config = space.config(space.sample(self._rng, 1)[0])
        return Record(
            task=task,
            target=self._target,
            rule=rule.name,
            config=config,
            schedule=rule.schedule(task, self._target, config),
            result=MeasureResult(status=Status.OK, times_s=(1e-3,)),
        )

    def nearest(self, *_: object, **__: object) -> Sequence[Record]:
        return ()


@settings(max_examples=40)
@given(graphs(), st.sampled_from([1, 2]))
def test_defaults(graph: Graph, threads: int) -> None:
    feeds = feeds_for(graph)
    model = compile_graph(graph, host_target(threads), processes=1)
    expected = run_graph(graph, feeds)
    assert_close(model.run(feeds), expected)
    assert_close(model.run(feeds), expected)  # the arena now holds the first run's values


@settings(max_examples=40)
@given(graphs(), st.sampled_from([1, 2]), st.integers(0, 99))
def test_random_schedules(graph: Graph, threads: int, seed: int) -> None:
    feeds, target = feeds_for(graph), host_target(threads)
    model = compile_graph(graph, target, RandomRecords(graph, target, seed), processes=1)
    assert model.notes == ()
    assert_close(model.run(feeds), run_graph(graph, feeds))
