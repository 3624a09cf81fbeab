"""Rewrites that are right on a box of the result: found where they gain, corrected around it, and
boxes that are too large are told."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from autotune.errors import ConfigError, ModelError
from autotune.graph.interp import run_graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.rewrite.apply import build
from autotune.rewrite.boxes import large_instances, largest_box, prove_box
from autotune.rewrite.corrected import box_of, corrected
from autotune.rewrite.cost import Costs
from autotune.rewrite.evaluate import Evaluation
from autotune.rewrite.files import shipped
from autotune.rewrite.parse import parse
from autotune.rewrite.prove import UnprovenError, instances_of, prove
from autotune.rewrite.regions import Regions
from autotune.rewrite.rule import Rewrite
from autotune.rewrite.search import search
from autotune.target import load_target
from autotune.types import Array
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net, random_feeds

BOXED = tuple(r for r in shipped() if r.box)
COSTS = Costs(load_target("x86-64-v4"))
WINDOW = {"pads": (1,) * 4}
DOUBLED = """
rewrite twice-summed
    value x [n, h, w, c]
    constant k l [3, 3, c, c]
    let m = h - 1
    where h > 2 and w > 2
    from conv2d(conv2d(x, k, pads=(1, 1, 1, 1)), l, pads=(1, 1, 1, 1))
    to conv2d(conv2d(x, k, pads=(2, 2, 2, 2)), l)
    box (0, 1, 1, 0) to (n, m, w - 1, c)
"""
"""The second window reads zeros around the image, and not what the first would have made."""


def shuffled(n: Net, x: str, outs: int) -> str:
    """A convolution whose channels become places."""
    count, h, w, c = n.shape(x)
    y = n.op("add", n.op("conv2d", x, n.weights(3, 3, c, 4 * outs), **WINDOW), n.weights(4 * outs))
    y = n.op("transpose", n.op("reshape", y, shape=(count, h, w, outs, 2, 2)),
             perm=(0, 1, 4, 2, 5, 3))  # fmt: skip
    return n.op("reshape", y, shape=(count, 2 * h, 2 * w, outs))


def doubled(n: Net) -> str:
    y = shuffled(n, n.op("relu", n.feed("x", 1, 24, 20, 32)), 32)
    return n.op("relu", n.op("conv2d", y, n.weights(3, 3, 32, 3), **WINDOW))


def fourfold(n: Net) -> str:
    y = shuffled(n, shuffled(n, n.op("relu", n.feed("x", 1, 40, 36, 32)), 32), 32)
    return n.op("relu", n.op("conv2d", y, n.weights(3, 3, 32, 3), **WINDOW))


def expanded(n: Net) -> str:
    """A linear layer that is wide between (ECBSR, Zhang et al. 2021)."""
    y = n.op("conv2d", n.op("relu", n.feed("x", 1, 56, 56, 16)), n.weights(1, 1, 16, 64))
    y = n.op("conv2d", n.op("add", y, n.weights(64)), n.weights(3, 3, 64, 16), **WINDOW)
    return n.op("relu", y)


@pytest.mark.parametrize(
    ("net", "name"),
    [
        (doubled, "fold-shuffled-convolutions"),
        (fourfold, "fold-twice-shuffled-convolutions"),
        (expanded, "fold-pointwise-before-convolution-with-bias"),
    ],
)
def test_what_gains_is_taken_and_corrected(net: Callable[[Net], str], name: str) -> None:
    n = Net()
    graph = n.graph(net(n))
    found = search(optimize(graph, CLEAN), shipped(), COSTS, time_s=60.0)
    assert {step.rewrite for step in found.steps} == {name}
    verify_graph(found.graph)
    feeds = random_feeds(graph)
    (got,), (expected,) = (
        run_graph(found.graph, feeds, "float32").values(), run_graph(graph, feeds).values()
    )  # fmt: skip
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("rewrite", [*BOXED[::2], *parse(DOUBLED)], ids=lambda r: r.name)
def test_boxes_are_right_and_as_large_as_they_can_be(rewrite: Rewrite) -> None:
    assert "right at" in str(prove_box(rewrite))
    rng = np.random.default_rng(3)
    (instance,) = large_instances(rewrite, rng, 1)
    found, said = largest_box(rewrite, instance, rng), box_of(rewrite, instance.symbols)
    lost = math.prod(b - a for a, b in found) - math.prod(b - a for a, b in said)
    assert lost >= 0
    if rewrite.name != BOXED[-1].name:  # whose window may lie in the image by its pads alone
        assert lost == 0


def test_a_rewrite_without_its_box_has_no_proof() -> None:
    prove(parse(DOUBLED)[0])
    for box in ("(0, 0, 1, 0) to (n, m, w - 1, c)", "(0, 1, 1, 0) to (n, m, w, c)"):
        (wrong,) = parse(DOUBLED.replace("(0, 1, 1, 0) to (n, m, w - 1, c)", box))
        with pytest.raises(UnprovenError, match="the sides differ, for"):
            prove(wrong)
        with pytest.raises(UnprovenError, match=r"differ in the box .* they are alike in \(\("):
            prove_box(wrong)


@pytest.mark.parametrize("box", ["(0, 2, 1, 0) to (n, 2, w - 1, c)", "(0, 1) to (n, m)"])
def test_a_box_of_nothing_is_refused(box: str) -> None:
    text = DOUBLED.replace("(0, 1, 1, 0) to (n, m, w - 1, c)", box)
    symbols = {"n": 1, "h": 4, "w": 4, "c": 1, "m": 3}
    with pytest.raises(ModelError, match="the box is"):
        corrected(parse(text)[0], symbols)
    with pytest.raises(ConfigError, match="one 'from' beside a 'box'"):
        parse(f"{text}    from relu(x)\n    to relu(x)\n")


def values(shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    # No zeros, by which some rewrites divide.
    return {n: rng.integers(1, 5, s) * rng.choice((-1.0, 1.0), s) for n, s in shapes.items()}


@pytest.mark.parametrize("rewrite", [*shipped()[::5], *BOXED],
                         ids=lambda r: r.name)  # fmt: skip
def test_a_part_of_a_term_is_a_part_of_its_result(rewrite: Rewrite) -> None:
    rng = np.random.default_rng(1)
    for instance in instances_of(rewrite, rng, 3):
        regions = Regions(instance.shapes, instance.symbols)
        shape = regions.shape(rewrite.left[0])
        starts = [int(rng.integers(0, e)) for e in shape]
        region = tuple(
            (a, int(rng.integers(a + 1, e + 1))) for a, e in zip(starts, shape, strict=True)
        )
        run = Evaluation(values(instance.shapes), ordered=True)
        terms = [rewrite.left[0], regions.part(rewrite.left[0], region)]
        try:
            whole, part = build(rewrite, terms, instance.symbols, {n: n for n in instance.shapes},
                                run.emit)  # fmt: skip
        except ModelError:
            continue  # floats have no exact meaning there
        cut = run.arrays[whole][tuple(slice(a, b) for a, b in region)]
        assert (run.arrays[part] == cut).all()
