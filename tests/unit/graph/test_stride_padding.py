"""Points that would share few sets of the cache lie further apart; the results are the same."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler.driver import compile_graph
from autotune.compiler.layout_costs import arranged
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.target import host_target, load_target
from tests.unit.graph.nets import Net, random_feeds

X86 = load_target("x86-64-v3")


def net(channels: int, window: int = 3) -> Graph:
    """A value that a depthwise convolution and a sum read."""
    net = Net()
    x = net.op("relu", net.conv(net.feed("x", 1, 4, 9, 9), channels, k=1))
    y = net.op("add", net.conv(x, channels, k=window, groups=channels), x)
    return net.graph(net.conv(y, 8, k=1))


def pixel_step(graph: Graph) -> int:
    """Elements from point to point of what the depthwise convolution reads."""
    tasks = [c.task for c in arranged(graph, X86).calls if "groups" in dict(c.task.nodes[0].attrs)]
    return next(
        t.value(t.nodes[0].inputs[0]).layout.strides[2]
        for t in tasks
        if dict(t.nodes[0].attrs)["groups"] != 1
    )


MOVED = 32


@pytest.mark.parametrize(
    ("channels", "window", "gap"),
    [(512, 3, MOVED), (480, 3, 0), (64, 3, 0), (768, 3, 0), (768, 9, MOVED)],
)
def test_points_a_power_of_two_apart_are_moved(channels: int, window: int, gap: int) -> None:
    assert pixel_step(optimize(net(channels, window))) == channels + gap


def test_outputs_are_the_same() -> None:
    graph = optimize(net(512))
    feeds = random_feeds(graph)
    compiled = compile_graph(graph, host_target(), processes=1)
    for name, exact in run_graph(graph, feeds, "float32").items():
        assert np.allclose(compiled.run(feeds)[name], exact, rtol=1e-3, atol=1e-3)
