"""Windows lose what never meets the image, and nothing changes by it."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.passes.cut_taps import CutTaps
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net, random_feeds

Pads = tuple[int, int, int, int]


def net(height: int, width: int, pads: Pads, dilations: tuple[int, int], strides: int) -> Graph:
    n = Net()
    x = n.feed("x", 2, height, width, 4)
    attrs = {"pads": pads, "dilations": dilations, "strides": (strides, strides), "groups": 2}
    return n.graph(n.op("conv2d", x, n.weights(3, 3, 2, 6), **attrs))


@pytest.mark.parametrize(
    ("image", "pads", "dilations", "strides", "window"),
    [
        ((5, 6), (6, 6, 6, 6), (6, 6), 1, (1, 1)),
        ((5, 6), (6, 4, 6, 4), (6, 4), 1, (1, 3)),
        ((1, 1), (1, 1, 1, 1), (1, 1), 1, (1, 1)),
        ((1, 7), (1, 1, 1, 1), (1, 1), 2, (1, 3)),
        ((2, 2), (2, 1, 1, 1), (1, 1), 1, (3, 3)),
        ((2, 3), (0, 0, 3, 2), (2, 2), 1, (3, 2)),
        ((4, 4), (9, 9, 0, 0), (4, 4), 1, (1, 1)),
    ],
)
def test_windows_keep_what_meets_the_image(
    image: tuple[int, int],
    pads: Pads,
    dilations: tuple[int, int],
    strides: int,
    window: tuple[int, int],
) -> None:
    graph = net(*image, pads, dilations, strides)
    after = CutTaps().run(graph)
    verify_graph(after)
    (node,) = (n for n in after.nodes if n.op == "conv2d")
    assert after.types[node.inputs[1]].shape[:2] == window
    feeds = random_feeds(graph)
    for name, expected in run_graph(graph, feeds).items():
        np.testing.assert_allclose(run_graph(after, feeds)[name], expected, rtol=1e-6, atol=1e-6)
