"""Products that int8 leaves in float32: by predictions, by a log's times, and said."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.compiler import bytes_that_pay as under_test
from autotune.compiler.driver import compile_graph, compile_prepared
from autotune.compiler.prepare import Prepared, prepare
from autotune.graph.int8.quantize import Lowered, Pays, Slower
from autotune.graph.interp import run_graph
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


def snapped() -> Graph:
    """The same network as a model that comes quantized says it, and a sum that reads bytes."""
    n = Net()
    x = n.op("snap", n.feed("x", 1, 28, 28, 64), step=0.03, zero=128.0)
    y = n.op("conv2d", x, multiples(n, 3, 3, 64, 64), pads=(1, 1, 1, 1))
    y = n.op("snap", n.op("relu", y), step=0.02, zero=0.0)
    z = n.op("conv2d", y, multiples(n, 1, 1, 64, 64))
    return n.finish([("y", n.op("add", n.op("snap", z, step=0.04, zero=100.0), y))])


def multiples(n: Net, *shape: int) -> str:
    """Weights that int8 holds by one step."""
    drawn = np.random.default_rng(len(shape) + shape[0]).integers(-127, 128, shape)
    return n.constant((drawn * 2.0**-10).astype(np.float32))


def kept(graph: Graph, count: int) -> Pays:
    """The first contractions stay."""

    def pays(_: Graph, __: Lowered, contractions: frozenset[str]) -> Slower:
        assert len(contractions) == 2
        first = [n.output for n in graph.nodes if n.output in contractions][:count]
        return Slower(times=dict.fromkeys(first, (1.0, 2.0)))

    return pays


def products_of_bytes(graph: Graph) -> int:
    convolutions = [n for n in graph.nodes if n.op == "conv2d"]
    return sum(graph.types[n.output].dtype == "int32" for n in convolutions)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_quantized_products_that_stay_are_of_the_same_numbers(count: int) -> None:
    graph = snapped()
    mixed = prepare(graph, "float32", pays=kept(graph, count))
    assert products_of_bytes(mixed.graph) == 2 - count
    assert bool(mixed.notes) == bool(count)
    feeds = random_feeds(graph)
    (exact,) = run_graph(graph, feeds, "float64").values()
    (got,) = CompiledModel(compile_prepared(mixed.graph, host_target(1))[0]).run(feeds).values()
    # A sum beside the middle of two steps may be rounded to the other one.
    apart = np.abs(got - exact)
    assert np.mean(apart > 1e-3) < 1e-3
    assert apart.max() < 0.02 * np.abs(exact).max()


def test_quantized_models_stay_in_float32_where_bytes_are_slower() -> None:
    floats = load_target("x86-64-v3")
    slow = prepare(snapped(), "float32", pays=under_test.bytes_that_pay(floats))
    fast = prepare(
        snapped(), "float32", pays=under_test.bytes_that_pay(DOTS.with_precision("float32"))
    )
    assert products_of_bytes(slow.graph) < products_of_bytes(fast.graph) == 2
    assert "in float32" in slow.notes[0]
    assert not fast.notes


def test_reproducible_results_depend_on_no_times() -> None:
    target = dataclasses.replace(load_target("x86-64-v3"), accuracy="reproducible")
    assert under_test.bytes_that_pay(target) is None


def test_int8_leaves_products_by_a_models_own_steps_as_they_are() -> None:
    graph = snapped()
    found = prepare(graph, "int8", pays=kept(graph, 2))
    assert found.quantized is not None
    assert not found.quantized.plan.contractions
    assert products_of_bytes(found.graph) == 0


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
