"""Models of the benchmarks, and random ones, compile with rewrites and give what others give."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.errors import AutotuneError
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.types import Array
from benchmarks import peers, rewrite_models
from tests.properties.test_rewrites import REWRITES, random_graph, rewritten
from tests.properties.wild_models import wild_model
from tests.properties.wild_windows import ACTIONS

RANDOM = 200
PARTS = 8
FIRST = 60_000
TOLERANCE = 2e-5
"""Share of the largest value; beside it the slack that a random model has by itself."""
MOST_DIFFERENT = 2e-4
"""The same of whole networks, many layers deep."""
NETWORKS = [
    name for name, (make, _) in rewrite_models.MODELS.items()
    if not make.__qualname__.startswith("vision.")
]  # fmt: skip
"""Those that are written there; torchvision has the others, and is no part of the tests."""


def compared(path: Path) -> None:
    """Raises AssertionError where the compiled model differs from what ONNX Runtime computes."""
    feed = peers.feeds(path)
    wanted = peers.onnxruntime(path, feed, argparse.Namespace(threads=1))()
    got = autotune.compile(path).run(feed)
    for one, other in zip(got.values(), wanted, strict=True):
        assert np.abs(one - other).max() <= MOST_DIFFERENT * np.abs(other).max()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of exporting
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_the_benchmarks_is_right(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    rewrite_models.write(name, path)
    compared(path)


def errors(got: dict[str, Array], exact: dict[str, Array]) -> list[float]:
    """Of each output, the largest error over the largest value; roots of less than 0 are none."""
    found = []
    for name, wanted in exact.items():
        numbers = np.isfinite(wanted)
        assert bool(np.all(np.isfinite(got[name]) == numbers)), name
        off, values = (got[name] - wanted)[numbers], wanted[numbers]
        largest = max(float(np.abs(values).max(initial=0.0)), 1.0)
        found.append(float(np.abs(off).max(initial=0.0)) / largest)
    return found


def graph_of(seed: int) -> tuple[Graph, Graph]:
    """The left side of a rewrite with operators behind it, and what random rewrites make of it."""
    rng = np.random.default_rng([seed, 23])
    graph = random_graph(REWRITES[seed % len(REWRITES)], rng)
    return graph, rewritten(graph, rng, REWRITES)[0]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_what_random_rewrites_make_compiles(part: int) -> None:
    for seed in range(part, RANDOM, PARTS):
        graph, after = graph_of(seed)
        rng = np.random.default_rng(seed)
        feeds = {n: rng.standard_normal(t.shape).astype(np.float32) for n, t in graph.inputs}
        with np.errstate(all="ignore"):
            exact, rounded = run_graph(graph, feeds), run_graph(after, feeds, "float32")
        got = dict(autotune.compile(after, rewrites="none").run(feeds))
        pairs = zip(errors(got, exact), errors(rounded, exact), strict=True)
        assert all(error <= TOLERANCE + 10 * own for error, own in pairs), seed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::autotune.errors.FallbackWarning")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_random_model_is_right_with_every_rewrite(part: int) -> None:
    for seed in range(FIRST + part, FIRST + RANDOM, PARTS):
        wild = wild_model(seed, ACTIONS)
        problem = ""
        try:
            got = list(autotune.compile(wild.model, rewrites="all").run(dict(wild.feeds)).values())
        except AutotuneError as error:
            problem, got = str(error), [e.values for e in wild.expected]
        assert "\n" not in problem, seed
        for wanted, array in zip(wild.expected, got, strict=True):
            assert wanted.difference(np.asarray(array), TOLERANCE) == "", seed
