"""Constant masks over what comes later become an operator; other masks stay."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.passes.recognize_causal import RecognizeCausal
from autotune.types import Array
from tests.unit.graph.nets import Net

LOWER = np.tril(np.ones((4, 6), bool), 1)


def chosen(mask: Array, fill: float = -np.inf, swapped: bool = False) -> Graph:
    n = Net()
    operands = [n.feed("x", 2, 4, 6), n.scalar(fill)]
    scores = n.op("where", n.constant(mask), *(operands[::-1] if swapped else operands))
    return n.graph(n.op("softmax", scores, axis=2))


def added(bias: Array) -> Graph:
    n = Net()
    scores = n.op("add", n.constant(bias.astype(np.float32)), n.feed("x", 2, 4, 6))
    return n.graph(n.op("softmax", scores, axis=2))


@pytest.mark.parametrize(
    "graph",
    [
        chosen(LOWER),
        chosen(LOWER[None], fill=-3e38),
        chosen(~LOWER, swapped=True),
        added(np.where(LOWER, 0, -np.inf)),
    ],
)
def test_masks_of_a_triangle_become_causal(graph: Graph) -> None:
    found = RecognizeCausal().run(graph)
    assert [(n.op, n.attributes.get("offset")) for n in found.nodes if n.op != "scalar"] == [
        ("causal", 1),
        ("softmax", None),
    ]
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)}
    (want,), (got,) = (run_graph(g, feeds).values() for g in (graph, found))
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize(
    "graph",
    [
        chosen(LOWER, fill=-100.0),
        chosen(~LOWER),
        chosen(np.ones((4, 6), bool)),
        chosen(np.stack([LOWER, np.tril(LOWER)])),
        added(np.where(LOWER, 0, -100)),
        added(np.where(LOWER, 1, -np.inf)),
    ],
)
def test_other_masks_stay(graph: Graph) -> None:
    assert all(n.op != "causal" for n in RecognizeCausal().run(graph).nodes)
