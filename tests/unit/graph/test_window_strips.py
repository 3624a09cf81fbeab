"""Depthwise convolutions by windows as large as the image, in strips."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.strips.window import WindowStrips
from tests.unit.graph.nets import Net, op_counts, random_feeds


def network(kernel: int, size: int, channels: int, groups: int, **attrs: object) -> Graph:
    n = Net()
    x = n.feed("x", 2, size, size + 1, channels)
    w = n.weights(kernel, kernel, channels // groups, channels)
    return n.graph(n.op("conv2d", x, w, groups=groups, **attrs))


def in_strips(graph: Graph) -> Graph:
    for axis in (1, 2):
        graph = WindowStrips(axis=axis).run(graph)
    return graph


def work(graph: Graph) -> int:
    """Products of all convolutions, those with zeros around images too."""
    total = 0
    for node in graph.nodes:
        if node.op == "conv2d":
            rows, columns = graph.types[node.inputs[1]].shape[:2]
            total += graph.types[node.output].size * rows * columns
    return total


@pytest.mark.parametrize(
    "attrs",
    [
        {"pads": (10, 10, 10, 10)},
        {"pads": (13, 9, 8, 12)},
        {"pads": (12, 11, 12, 11), "strides": (2, 1)},
    ],
)
def test_results_are_the_same_and_take_less_work(attrs: dict[str, object]) -> None:
    graph = network(21, 16, 6, 6, **attrs)
    found, feeds = in_strips(graph), random_feeds(graph)
    assert op_counts(found)["conv2d"] > 1
    assert work(found) < 0.85 * work(graph)
    want, got = (run_graph(g, feeds)["y0"] for g in (graph, found))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "size", "groups", "pad"),
    [(3, 16, 6, 1), (13, 60, 6, 6), (21, 16, 1, 10), (13, 13, 6, 0)],
)
def test_others_stay(kernel: int, size: int, groups: int, pad: int) -> None:
    graph = network(kernel, size, 6, groups, pads=(pad,) * 4)
    assert op_counts(in_strips(graph)) == op_counts(graph)
