"""Products that int8 leaves in float32: by predictions, by a log's times, and said."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.compiler import bytes_that_pay as under_test
from autotune.compiler.driver import compile_graph, compile_prepared
from autotune.compiler.prepare import Prepared, prepare
from autotune.graph.int8.quantize import Lowered, Slower
from autotune.graph.ir import Graph
from autotune.rewrite.cost import Costs
from autotune.runtime.model import CompiledModel
from autotune.target import Target, host_target, load_target
from autotune.types import Task
from tests.unit.graph.nets import Net, random_feeds

PAIRS = load_target("x86-64-v3").with_precision("int8")
"""Widens bytes, and multiplies pairs of words."""
DOTS = load_target("x86-64-v4").with_precision("int8")
DOTS = dataclasses.replace(DOTS, features=f"{DOTS.features},+avx512vnni")


def network() -> Graph:
    """Windows that Winograd computes in few products, then a product of single points."""
    n = Net()
    x = n.feed("x", 1, 28, 28, 64)
    x = n.op("relu", n.op("conv2d", x, n.weights(3, 3, 64, 64), pads=(1, 1, 1, 1)))
    return n.finish([("y", n.op("conv2d", x, n.weights(1, 1, 64, 32)))])


def prepared(target: Target, graph: Graph | None = None) -> Prepared:
    return prepare(graph or network(), "int8", pays=under_test.bytes_that_pay(target))


def test_where_an_instruction_multiplies_bytes_all_are_on_bytes() -> None:
    found = prepared(DOTS).quantized
    assert found is not None
    assert not found.slower
    assert len(found.plan.contractions) == 2


def test_what_is_slower_on_bytes_stays_and_is_said_with_its_times() -> None:
    found = prepared(PAIRS)
    assert found.quantized is not None
    times = found.quantized.slower.values()
    assert times
    assert all(floats < lowered for floats, lowered in times)


def test_where_everything_stays_the_graph_is_the_one_of_float32() -> None:
    graph = network()
    found = prepared(PAIRS, graph)
    assert found.quantized is not None
    assert not found.quantized.plan.contractions
    assert found.graph == prepare(graph, "float32").graph


class Timed(Costs):
    """Has measured every task: those on bytes in so many seconds, all others in one."""

    def __init__(self, bytes_s: float) -> None:
        super().__init__(PAIRS, lambda task: bytes_s if on_bytes(task) else 1.0)


def on_bytes(task: Task) -> bool:
    return any(value.type.dtype in ("int8", "uint8") for value in task.values)


@pytest.mark.parametrize(("bytes_s", "stay"), [(0.4, 0), (1.5, 2)])
def test_measured_times_choose_whatever_is_predicted(bytes_s: float, stay: int) -> None:
    costs = Timed(bytes_s)

    def pays(graph: Graph, lowered: Lowered, contractions: frozenset[str]) -> Slower:
        return under_test._slower(graph, lowered, contractions, costs)

    found = prepare(network(), "int8", pays=pays).quantized
    assert found is not None
    assert len(found.slower) == stay


def test_close_predictions_are_worth_measuring_and_clear_ones_are_not() -> None:
    assert not prepared(DOTS).decisive
    assert any(map(on_bytes, prepared(PAIRS).decisive))


def test_a_model_of_two_precisions_is_right() -> None:
    graph, here = network(), host_target().with_precision("int8")

    def first_stays(graph: Graph, _: Lowered, contractions: frozenset[str]) -> Slower:
        (first, _) = sorted(contractions, key=[n.output for n in graph.nodes].index)
        return Slower(times={first: (1.0, 2.0)})

    mixed = prepare(graph, "int8", pays=first_stays)
    assert mixed.quantized is not None
    assert len(mixed.quantized.plan.contractions) == 1
    feeds = random_feeds(graph)
    (exact,) = compile_graph(graph, host_target()).run(feeds).values()
    (got,) = CompiledModel(compile_prepared(mixed.graph, here)[0]).run(feeds).values()
    assert np.abs(got - exact).max() <= 0.05 * np.abs(exact).max()
