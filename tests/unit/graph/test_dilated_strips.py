"""Dilated convolutions in strips that leave padding out, and that nothing changes by it."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net, op_counts, random_feeds
from tests.unit.graph.oracle import run_partition


def net(side: tuple[int, int], dilation: int, pads: int, batch: int = 1, stride: int = 1) -> Graph:
    """A dilated convolution with a bias and relu, between others."""
    n = Net()
    x = n.op("relu", n.op("conv2d", n.feed("x", batch, *side, 5), n.weights(1, 1, 5, 4)))
    attrs = {"pads": (pads,) * 4, "dilations": (dilation,) * 2, "strides": (stride,) * 2}
    y = n.op("conv2d", x, n.weights(3, 3, 4, 6), **attrs)
    y = n.op("relu", n.op("add", y, n.weights(6)))
    return n.graph(n.op("conv2d", y, n.weights(1, 1, 6, 3)))


@pytest.mark.parametrize(
    ("side", "dilation", "pads", "stride", "convolutions"),
    [
        ((17, 18), 12, 12, 1, 11),
        ((17, 60), 12, 12, 1, 5),
        ((9, 9), 8, 8, 1, 3),
        ((28, 28), 20, 20, 2, 11),
        ((13, 13), 1, 1, 1, 3),
    ],
)
def test_strips_leave_padding_out(
    side: tuple[int, int], dilation: int, pads: int, stride: int, convolutions: int
) -> None:
    graph = net(side, dilation, pads, stride=stride)
    after = optimize(graph)
    verify_graph(after)
    assert op_counts(after)["conv2d"] == convolutions
    feeds = random_feeds(graph)
    got = run_partition(partition(after), feeds)
    for name, expected in run_graph(graph, feeds).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-5)


def test_strips_cost_no_copies() -> None:
    calls = partition(optimize(net((17, 18), 12, 12))).calls
    assert {c.task.op for c in calls} == {"conv2d"}


def test_batches_stay_whole() -> None:
    assert op_counts(optimize(net((17, 18), 12, 12, batch=2)))["conv2d"] == 3
