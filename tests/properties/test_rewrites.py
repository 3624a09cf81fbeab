"""Random graphs rewritten by random sequences of what applies: equal, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.rewrite.apply import apply, build
from autotune.rewrite.arithmetic import Residue, residue
from autotune.rewrite.evaluate import ORDERED, Evaluation, drawn
from autotune.rewrite.files import generated, shipped
from autotune.rewrite.match import Finder
from autotune.rewrite.prove import instances_of, operators
from autotune.rewrite.rule import Rewrite
from autotune.types import Array, TensorType
from tests.graph_verify import verify_graph

REWRITES = tuple(r for r in shipped() if r.name != "relu-once")
"""That one needs an order of numbers; a field has none."""
GENERATED = tuple(r for r in generated() if not operators(r) & ORDERED)
LENGTH = 5
"""Rewrites of a graph, one after the other."""


def random_graph(rewrite: Rewrite, rng: np.random.Generator) -> Graph:
    """The left side of a rewrite over random shapes, and a few operators behind it. Constants are
    small whole numbers: sums and products of them are exact."""
    (instance,) = instances_of(rewrite, rng, 1)
    b = GraphBuilder("random")

    def constant(*shape: int) -> str:
        return b.constant(rng.integers(-3, 4, shape).astype(np.float32))

    values = {}
    for declared in rewrite.values:
        shape = instance.shapes[declared.name]
        if declared.constant:
            values[declared.name] = constant(*shape)
        else:
            type_ = TensorType(dtype="float32", shape=shape)
            values[declared.name] = b.input(declared.name, type_)
    ends = build(
        rewrite, rewrite.left, instance.symbols, values,
        lambda op, inputs, attrs: b.op(op, *inputs, **attrs),
    )  # fmt: skip
    for _ in range(rng.integers(0, 4)):
        x = ends[rng.integers(len(ends))]
        shape = b.shape(x)
        whole = {"starts": (0,) * len(shape), "steps": (1,) * len(shape)}
        ways = [
            lambda x=x: b.op("relu", x),
            lambda x=x: b.op("add", x, x),
            lambda x=x, s=shape: b.op("mul", x, constant(s[-1]) if s else x),
        ]
        if len(shape) > 1:
            ways.append(lambda x=x, s=shape: b.op("matmul", x, constant(s[-1], 3)))
            first = (1, *shape[1:])
            ways.append(lambda x=x, f=first, w=whole: b.op("slice", x, stops=f, **w))
        ends.append(ways[rng.integers(len(ways))]())
    return b.finish([(f"y{i}", value) for i, value in enumerate(ends)])


def evaluated(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs over the field."""
    exact = np.vectorize(lambda v: Residue(residue(float(v))), otypes=[object])
    run = Evaluation({**feeds, **{n: exact(a) for n, a in graph.constants.items()}})
    names = {n: n for n in run.arrays}
    for node in graph.nodes:
        inputs = [names[i] for i in node.inputs]
        names[node.output] = run.emit(node.op, inputs, node.attributes)
    return [run.arrays[names[value]] for _, value in graph.outputs]


def rewritten(
    graph: Graph, rng: np.random.Generator, given: tuple[Rewrite, ...]
) -> tuple[Graph, list[str]]:
    """The graph behind a random sequence, and the sequence."""
    names: list[str] = []
    for _ in range(LENGTH):
        finder = Finder(graph)
        there = [m for r in given for m in finder.matches(r)]
        if not there:
            break
        match = there[rng.integers(len(there))]
        after = apply(graph, [match])
        if after is None:
            continue
        verify_graph(after)
        graph = after
        names.append(match.rewrite.name)
    return graph, names


def check(rewrite: Rewrite, seed: int, given: tuple[Rewrite, ...] = REWRITES) -> list[str]:
    rng = np.random.default_rng([seed, *rewrite.name.encode()])
    graph = random_graph(rewrite, rng)
    feeds = {n: drawn(t.shape, Residue, rng, 1 << 60) for n, t in graph.inputs}
    after, names = rewritten(graph, rng, given)
    for one, other in zip(evaluated(graph, feeds), evaluated(after, feeds), strict=True):
        assert one.shape == other.shape, names
        assert bool(np.all(one == other)), names
    return names


def test_random_rewrites_keep_what_is_computed() -> None:
    used = {name for rewrite in REWRITES for seed in (0, 1) for name in check(rewrite, seed)}
    assert len(used) > len(REWRITES) // 2


def test_generated_rewrites_keep_what_is_computed() -> None:
    tried = GENERATED[::25]
    assert sum(rewrite.name in check(rewrite, 0, (rewrite,)) for rewrite in tried) > len(tried) / 2


@pytest.mark.slow
def test_all_generated_rewrites_keep_what_is_computed() -> None:
    for at, rewrite in enumerate(GENERATED):
        check(rewrite, 1, (rewrite, *GENERATED[at % 7 :: 7]))


@pytest.mark.slow
def test_many_random_rewrites_keep_what_is_computed() -> None:
    for seed in range(2, 20):
        for rewrite in REWRITES:
            check(rewrite, seed)
