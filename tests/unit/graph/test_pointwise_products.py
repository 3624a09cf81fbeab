"""Pointwise convolutions between transposes, as products."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.passes.pointwise_products import (
    LEAST_FILTERS,
    LEAST_POINTS,
    PointwiseProducts,
)
from autotune.graph.pipeline import CLEAN, optimize
from tests.unit.graph.nets import Net, op_counts, random_feeds

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("channels", "groups"), [(12, 1), (32, 4)])
def test_neither_side_is_turned(batch: int, channels: int, groups: int) -> None:
    n = Net()
    image = n.op("transpose", n.feed("x", batch, channels, 5, 6), perm=LAST)
    y = n.op("conv2d", image, n.weights(1, 1, channels // groups, 20), groups=groups)
    y = n.op("relu", n.op("add", y, n.weights(20)))
    graph = n.graph(n.op("transpose", y, perm=FIRST))
    found, feeds = PointwiseProducts().run(optimize(graph, CLEAN)), random_feeds(graph)
    counts = op_counts(found)
    assert (counts["matmul"], counts.get("conv2d", 0), counts.get("transpose", 0)) == (1, 0, 0)
    want, got = (run_graph(g, feeds)["y0"] for g in (graph, found))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "channels", "attrs"),
    [
        ((1, 10), 1, {"strides": (1, 5)}),
        ((1, 5), 2, {"pads": (0, 3, 0, 1), "dilations": (1, 2)}),
        ((3, 2), 1, {"pads": (1, 0, 1, 1), "strides": (2, 1)}),
    ],
)
def test_windows_of_few_elements_are_columns(
    batch: int, kernel: tuple[int, int], channels: int, attrs: dict[str, object]
) -> None:
    n = Net()
    image = n.op("transpose", n.feed("x", batch, channels, 7, 40), perm=LAST)
    filters = LEAST_FILTERS * kernel[0] * kernel[1] * channels
    y = n.op("conv2d", image, n.weights(*kernel, channels, filters), **attrs)
    graph = n.graph(n.op("transpose", y, perm=FIRST))
    found, feeds = PointwiseProducts().run(optimize(graph, CLEAN)), random_feeds(graph)
    counts = op_counts(found)
    assert (counts["matmul"], counts.get("conv2d", 0), counts.get("transpose", 0)) == (1, 0, 0)
    want, got = (run_graph(g, feeds)["y0"] for g in (graph, found))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("attrs", "height", "turned"),
    [
        ({"strides": (2, 2)}, 8, True),
        ({}, 1, True),
        ({}, 8, False),
        ({"pads": (1, 1, 1, 1)}, 8, True),
    ],
)
def test_other_convolutions_stay(attrs: dict[str, object], height: int, turned: bool) -> None:
    n = Net()
    assert LEAST_POINTS > 6
    image = n.op("transpose", n.feed("x", 1, 12, height, 6), perm=LAST)
    y = n.op("conv2d", image, n.weights(1, 1, 12, 20), **attrs)
    y = n.op("transpose", y, perm=FIRST) if turned else n.op("relu", y)
    found = PointwiseProducts().run(optimize(n.graph(y), CLEAN))
    assert op_counts(found)["conv2d"] == 1
