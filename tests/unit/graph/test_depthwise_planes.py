"""Depthwise convolutions between transposes, as windows of planes."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.passes.depthwise_planes import LEAST_COLUMNS, DepthwisePlanes
from autotune.graph.pipeline import CLEAN, optimize
from tests.unit.graph.nets import Net, op_counts, random_feeds

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
SAME = {"pads": (1, 1, 1, 1)}


@pytest.mark.parametrize("attrs", [SAME, {**SAME, "strides": (2, 2)}, {"dilations": (2, 1)}])
@pytest.mark.parametrize("batch", [1, 2])
def test_planes_are_not_turned(batch: int, attrs: dict[str, object]) -> None:
    n = Net()
    image = n.op("transpose", n.feed("x", batch, 12, 9, 2 * LEAST_COLUMNS + 1), perm=LAST)
    y = n.op("conv2d", image, n.weights(3, 3, 1, 12), groups=12, **attrs)
    y = n.op("relu", n.op("add", y, n.weights(12)))
    graph = n.graph(n.op("transpose", y, perm=FIRST))
    found, feeds = DepthwisePlanes().run(optimize(graph, CLEAN)), random_feeds(graph)
    counts = op_counts(found)
    assert (counts["conv_planes"], counts.get("conv2d", 0), counts.get("transpose", 0)) == (
        1,
        0,
        0,
    )
    want, got = (run_graph(g, feeds)["y0"] for g in (graph, found))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("window", "groups", "width", "turned"),
    [(3, 12, 16, False), (3, 4, 16, True), (3, 12, LEAST_COLUMNS - 1, True), (11, 12, 16, True)],
)
def test_other_convolutions_stay(window: int, groups: int, width: int, turned: bool) -> None:
    n = Net()
    image = n.op("transpose", n.feed("x", 1, 12, 9, width), perm=LAST)
    pads = (window // 2,) * 4
    y = n.op(
        "conv2d", image, n.weights(window, window, 12 // groups, 12), groups=groups, pads=pads
    )
    y = n.op("transpose", y, perm=FIRST) if turned else n.op("relu", y)
    found = DepthwisePlanes().run(optimize(n.graph(y), CLEAN))
    assert op_counts(found)["conv2d"] == 1
