"""Channel shuffles go into weights, or behind convolutions that make the image smaller."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from tests.unit.graph.nets import Net, op_counts, random_feeds


def shuffled(n: Net, x: str, groups: int) -> str:
    b, c, h, w = n.shape(x)
    split = n.op("reshape", x, shape=(b, groups, c // groups, h, w))
    return n.op("reshape", n.op("transpose", split, perm=(0, 2, 1, 3, 4)), shape=(b, c, h, w))


def optimized(source: Graph) -> Graph:
    """The graph after the passes, which computes the same."""
    graph, feeds = optimize(source), random_feeds(source)
    expected = run_graph(source, feeds)["y0"]
    np.testing.assert_allclose(run_graph(graph, feeds)["y0"], expected, rtol=1e-5, atol=1e-5)
    return graph


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_dense_convolution_reads_channels_as_they_are(kernel: int) -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 6, 7), 12, k=1))
    graph = optimized(n.graph(n.conv(shuffled(n, x, 3), 4, k=kernel)))
    assert op_counts(graph)["transpose"] == 2  # of the graph's input and output


def test_a_shuffle_comes_behind_a_depthwise_convolution_with_strides() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 12, k=1))
    thin = n.batch_norm(n.conv(shuffled(n, x, 4), 12, k=3, stride=2, groups=12))
    graph = optimized(n.graph(n.conv(n.op("relu", thin), 8, k=1, groups=2)))
    ops = [call.task.op for call in partition(graph).calls]
    assert ops == ["transpose", "conv2d", "conv2d", "transpose", "conv2d", "transpose"]


def test_behind_two_convolutions_it_may_vanish() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 8, 8), 12, k=1))
    thin = n.op("relu", n.conv(shuffled(n, x, 2), 12, k=3, stride=2, groups=12))
    assert op_counts(optimized(n.graph(n.conv(thin, 5, k=1))))["transpose"] == 2


def test_other_transposes_stay() -> None:
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 4, 6), 12, k=1))
    turned = n.op("reshape", n.op("transpose", x, perm=(0, 1, 3, 2)), shape=(1, 12, 4, 6))
    assert op_counts(optimized(n.graph(n.conv(turned, 4))))["transpose"] > 2


def test_a_product_reads_shuffled_rows_as_they_are() -> None:
    n = Net()
    split = n.op("reshape", n.feed("x", 5, 12), shape=(5, 3, 4))
    turned = n.op("transpose", split, perm=(0, 2, 1))
    rows = n.op("reshape", turned, shape=(5, 12))
    product = n.op("matmul", rows, n.weights(12, 7))
    assert op_counts(optimized(n.graph(product))) == {"matmul": 1}
