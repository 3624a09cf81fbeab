"""Passes and partition keep what a graph computes, for any graph."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.passes.row_strips import RowStrips
from autotune.graph.pipeline import PIPELINE, optimize
from autotune.placement.layout_problem import problem_of
from autotune.placement.layouts import DENSE, ValueLayout, takes_zeros
from autotune.placement.partition import partition
from autotune.placement.short_tensors import ShortTensors
from autotune.placement.stride_padding import rows_together
from autotune.target import load_target
from autotune.types import Array
from tests.graph_verify import verify_graph
from tests.properties.graph_strategies import feeds_for, graphs
from tests.unit.graph.oracle import run_partition

CROWDED = dataclasses.replace(load_target("x86-64-v4"), l1_bytes=8, l1_ways=1, line_bytes=4)
"""A cache in which the rows of any small image evict each other."""


def assert_close(
    got: dict[str, Array], expected: dict[str, Array], tolerance: float = 1e-5
) -> None:
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        assert got[name].shape == array.shape
        limit = tolerance * max(1.0, float(np.abs(array).max(initial=0.0)))
        assert float(np.abs(got[name] - array).max(initial=0.0)) <= limit, name


@settings(max_examples=120)
@given(graphs())
def test_every_pass_keeps_the_graph_valid_and_its_results(graph: Graph) -> None:
    feeds = feeds_for(graph)
    expected = run_graph(graph, feeds)
    for step in PIPELINE:
        graph = step.run(graph)
        verify_graph(graph)
        assert_close(run_graph(graph, feeds), expected)


@settings(max_examples=120)
@given(graphs())
def test_a_partition_computes_what_the_graph_does(graph: Graph) -> None:
    feeds = feeds_for(graph)
    part = partition(optimize(graph))
    verify_graph(part.graph)
    assert_close(run_partition(part, feeds), run_graph(graph, feeds))


@settings(max_examples=60)
@given(graphs())
def test_a_graph_without_passes_is_partitioned_too(graph: Graph) -> None:
    feeds = feeds_for(graph)
    assert_close(run_partition(partition(graph), feeds), run_graph(graph, feeds))


@settings(max_examples=60)
@given(graphs(), st.integers(2, 4))
def test_rows_may_be_computed_in_strips(graph: Graph, strips: int) -> None:
    feeds = feeds_for(graph)
    in_strips = RowStrips(cache_bytes=0, strips=strips).run(optimize(graph))
    verify_graph(in_strips)
    assert_close(run_partition(partition(in_strips), feeds), run_graph(graph, feeds))


@settings(max_examples=60)
@given(graphs())
def test_values_between_kernels_may_be_short(graph: Graph) -> None:
    feeds = feeds_for(graph)
    short = ShortTensors(dtype="float16").run(optimize(graph))
    verify_graph(short)
    got = run_partition(partition(short, attention=False), feeds)
    assert_close(got, run_graph(short, feeds), 1e-2)


@settings(max_examples=60)
@given(graphs())
def test_a_renamed_graph_gives_the_same_tasks(graph: Graph) -> None:
    tasks = [call.task for call in partition(optimize(graph)).calls]
    assert [call.task for call in partition(optimize(renamed(graph))).calls] == tasks


def renamed(graph: Graph) -> Graph:
    """Other names for inputs, values and nodes; the names sort in another order."""
    names = {v: f"v{len(graph.types) - i:05d}" for i, v in enumerate(graph.types)}
    nodes = tuple(
        dataclasses.replace(
            n, inputs=tuple(names[i] for i in n.inputs), output=names[n.output], name=f"n{i}"
        )
        for i, n in enumerate(graph.nodes)
    )
    return Graph(
        name="other",
        inputs=tuple((names[n], t) for n, t in graph.inputs),
        outputs=tuple((f"out {p}", names[v]) for p, v in graph.outputs),
        nodes=nodes,
        constants={names[n]: a for n, a in graph.constants.items()},
        types={names[n]: t for n, t in graph.types.items()},
    )


@settings(max_examples=80)
@given(graphs(), st.data())
def test_values_may_lie_in_any_layout(graph: Graph, data: st.DataObject) -> None:
    graph = optimize(graph)
    layouts = {}
    for value in [n.output for n in graph.nodes if len(graph.types[n.output].shape) == 4]:
        options = [DENSE, ValueLayout(padding=1), ValueLayout(padding=3)]
        if any(rows_together(n, value, graph.types) > 1 for n in graph.nodes):
            options += [ValueLayout(copied=True), ValueLayout(copied=True, padding=2)]
        if takes_zeros(graph, value):
            options.append(ValueLayout(zeros=2))
        layouts[value] = data.draw(st.sampled_from(options))
    feeds = feeds_for(graph)
    part = partition(graph, layouts={v: x for v, x in layouts.items() if x != DENSE})
    verify_graph(part.graph)
    assert_close(run_partition(part, feeds), run_graph(graph, feeds))


@settings(max_examples=60)
@given(graphs(), st.data())
def test_the_tasks_that_layouts_are_judged_by_are_those_of_the_model(
    graph: Graph, data: st.DataObject
) -> None:
    graph = optimize(graph)
    problem = problem_of(graph, CROWDED)
    chosen = {v: data.draw(st.integers(0, len(o) - 1)) for v, o in problem.options.items()}
    tasks = partition(graph, layouts=problem.layouts(chosen)).weights()
    for kernel in problem.kernels:
        combination = tuple(chosen[v] for v in kernel.values)
        if combination in kernel.variants:
            assert set(kernel.variants[combination]) <= tasks.keys()
