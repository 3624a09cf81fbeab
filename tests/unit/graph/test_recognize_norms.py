"""Normalisations written step by step are found; what only looks like one is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from tests.unit.graph.nets import Net, op_counts, random_feeds


def spelled_out(
    n: Net, x: str, *, centred: bool = True, root: str = "div", keep: tuple[int, int] = (2, 2)
) -> str:
    """Centre `x` along one axis, divide by the deviation along another."""
    if centred:
        x = n.op("sub", x, n.op("reduce_mean", x, axes=(keep[0],), keepdims=True))
    square = n.op("pow", x, n.scalar(2.0))
    mean = n.op("reduce_mean", square, axes=(keep[1],), keepdims=True)
    deviation = n.op("sqrt", n.op("add", n.scalar(1e-3), mean))
    if root == "div":
        return n.op("div", x, deviation)
    if root == "reciprocal":
        return n.op("mul", n.op("reciprocal", deviation), x)
    return n.op("mul", x, n.op("div", n.scalar(1.0), deviation))


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("root", ["div", "reciprocal", "one over"])
def test_a_norm_with_scale_is_one_kernel(centred: bool, root: str) -> None:
    n = Net()
    norm = spelled_out(n, n.feed("x", 2, 3, 8), centred=centred, root=root)
    source = n.graph(n.op("mul", n.weights(8), norm))
    graph = optimize(source)
    assert op_counts(graph) == {"layer_norm" if centred else "rms_norm": 1}
    feeds = random_feeds(source)
    np.testing.assert_allclose(
        run_graph(graph, feeds)["y0"], run_graph(source, feeds)["y0"], rtol=1e-5, atol=1e-6
    )


def test_the_bias_joins_a_layer_norm() -> None:
    n = Net()
    norm = n.op("mul", spelled_out(n, n.feed("x", 2, 3, 8)), n.weights(8))
    graph = optimize(n.graph(n.op("add", norm, n.weights(1, 1, 8))))
    assert len(partition(graph).calls) == 1
    assert [len(node.inputs) for node in graph.nodes] == [3]


def test_a_norm_over_a_middle_axis_stays_spelled_out() -> None:
    n = Net()
    graph = optimize(n.graph(spelled_out(n, n.feed("x", 2, 3, 8), keep=(1, 1))))
    assert op_counts(graph)["layer_norm"] == 0


def test_a_mean_over_another_axis_is_no_centring() -> None:
    n = Net()
    source = n.graph(spelled_out(n, n.feed("x", 2, 3, 8), keep=(1, 2)))
    graph = optimize(source)
    assert (op_counts(graph)["layer_norm"], op_counts(graph)["rms_norm"]) == (0, 1)
    feeds = random_feeds(source)
    np.testing.assert_allclose(
        run_graph(graph, feeds)["y0"], run_graph(source, feeds)["y0"], rtol=1e-5, atol=1e-6
    )


def test_a_scale_per_row_stays_outside() -> None:
    n = Net()
    norm = spelled_out(n, n.feed("x", 2, 3, 8))
    graph = optimize(n.graph(n.op("mul", norm, n.weights(3, 1))))
    assert op_counts(graph) == {"layer_norm": 1, "mul": 1}
