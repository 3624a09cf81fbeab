"""Convolutions whose dilation is more than half of the image: three products instead of four."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.rewrite.cost import Costs
from autotune.rewrite.derive import Deriver, properties
from autotune.rewrite.files import shipped
from autotune.rewrite.prove import prove
from autotune.rewrite.search import search
from autotune.target import load_target
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net, random_feeds

RULES = tuple(r for r in shipped() if r.name.startswith("far-dilated"))


def pyramid(sides: tuple[int, int], dilations: tuple[int, int], channels: int) -> Graph:
    """A far dilated convolution of as many channels, its bias and a relu."""
    n = Net()
    x, pads = n.feed("x", 1, *sides, channels), (*dilations, *dilations)
    weights = n.weights(3, 3, channels, channels)
    y = n.op("conv2d", x, weights, pads=pads, dilations=dilations)
    return optimize(n.graph(n.op("relu", n.op("add", y, n.weights(channels)))), CLEAN)


def test_both_proofs_take_the_rules() -> None:
    deriver = Deriver(properties())
    assert len(RULES) == 2
    for rule in RULES:
        assert prove(rule).error < 1e-12
        assert deriver.derive(rule).rounds > 0


@pytest.mark.parametrize(
    ("sides", "dilations"), [((33, 33), (18, 18)), ((21, 40), (12, 3)), ((30, 19), (4, 10))]
)
def test_products_are_saved_where_the_dilation_is_far(
    sides: tuple[int, int], dilations: tuple[int, int]
) -> None:
    graph = pyramid(sides, dilations, 128)
    found = search(graph, RULES, Costs(load_target("x86-64-v4")), time_s=60.0)
    far = [d < side < 2 * d for side, d in zip(sides, dilations, strict=True)]
    used = {step.rewrite for step in found.steps}
    assert ("far-dilated-rows-in-pairs" in used) == far[0]
    assert ("far-dilated-columns-in-pairs" in used) == far[1]
    verify_graph(found.graph)
    feeds = random_feeds(graph)
    expected = run_graph(graph, feeds)
    got = run_graph(found.graph, feeds)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5 * np.abs(value).max())


def test_kernels_compute_what_the_convolution_was() -> None:
    graph = pyramid((13, 11), (8, 7), 64)
    feeds = random_feeds(graph)
    found = search(graph, RULES, Costs(load_target("x86-64-v4")), time_s=60.0).graph
    got = autotune.compile(found, threads=1, rewrites="none").run(feeds)
    for name, value in run_graph(graph, feeds).items():
        np.testing.assert_allclose(got[name], value, rtol=1e-3, atol=1e-4 * np.abs(value).max())


def test_images_of_no_far_dilation_are_left_alone() -> None:
    graph = pyramid((24, 24), (2, 2), 64)
    found = search(graph, RULES, Costs(load_target("x86-64-v4")), time_s=60.0)
    assert found.graph is graph
