"""Graphs that are rewritten where that gains, and stay what they compute."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.cli import execute
from autotune.compiler.rewriting import rewriting
from autotune.defects import DefectWarning
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import shipped
from autotune.rewrite.search import TIME_S, Found, search
from autotune.target import load_target
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net, random_feeds

TARGET = load_target("x86-64-v4")


def dilated(side: tuple[int, int] = (48, 48), count: int = 2) -> Graph:
    n = Net()
    x = n.feed("x", 1, *side, 64)
    for _ in range(count):
        x = n.op("conv2d", x, n.weights(3, 3, 64, 64), pads=(2,) * 4, dilations=(2, 2))
        x = n.op("relu", n.op("add", x, n.weights(64)))
    return n.graph(x)


def head() -> Graph:
    n = Net()
    wide = n.op(
        "resize", n.feed("x", 1, 14, 14, 128), out_shape=(1, 56, 56, 128), mode="linear"
    )  # fmt: skip
    y = n.op("conv2d", wide, n.weights(1, 1, 128, 16))
    return n.graph(n.op("relu", n.op("add", y, n.weights(16))))


@pytest.mark.parametrize(
    ("graph", "rewrite"),
    [
        (dilated(), "dilated-convolution-by-phases"),
        (dilated((33, 47), 1), "dilated-convolution-by-phases"),
        (head(), "pointwise-convolution-before-resize-linear"),
    ],
)
def test_what_gains_is_rewritten(graph: Graph, rewrite: str) -> None:
    found = search(optimize(graph, CLEAN), shipped(), Costs(TARGET))
    assert found.complete
    assert rewrite in [step.rewrite for step in found.steps]
    verify_graph(found.graph)
    feeds = random_feeds(graph)
    got = run_graph(found.graph, feeds)
    for name, expected in run_graph(graph, feeds).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-6, atol=1e-6)


def test_phases_of_one_dilation_are_joined_once() -> None:
    costs = Costs(TARGET)
    found = search(optimize(dilated(count=3), CLEAN), shipped(), costs)
    ops = Counter(task.op for task in costs.tasks(found.graph).elements())
    assert ops == {"conv2d": 3, "transpose": 1, "reshape": 1}


def test_measured_times_decide_where_there_are_any() -> None:
    """Predictions are for phases; a log in which these take longer is believed."""
    graph, costs = optimize(dilated(count=1), CLEAN), Costs(TARGET)
    found = search(graph, shipped(), costs)
    new = costs.tasks(found.graph) - costs.tasks(graph)
    assert new
    assert set(new) <= set(found.decisive)
    slow = Costs(TARGET, lambda task: 1.0 if task in new else 1e-3)
    assert search(graph, shipped(), slow).steps == ()
    fast = Costs(TARGET, lambda task: 1e-6 if task in new else 1e-3)
    (step,) = search(graph, shipped(), fast).steps
    assert step.measured_s == pytest.approx((1e-3, 1e-6 * sum(new.values())))
    assert "predicted; 1000.0 us become" in str(step)
    assert str(step).endswith("measured")


def test_kernels_that_differ_by_how_far_apart_rows_lie_cancel() -> None:
    """The same kernel beside others, or alone, is no difference; with zeros around it is one."""
    (task,) = (t for t in Costs(TARGET).tasks(dilated(count=1)) if t.op == "conv2d")
    image = task.value("o0")
    outer, rows, *inner = image.layout.strides
    wide = dataclasses.replace(image.layout, strides=(2 * outer, 2 * rows, *inner))
    around = dataclasses.replace(image.layout, halo=((0, 0), (1, 1), (1, 1), (0, 0)))
    for layout, alike in ((wide, True), (around, False)):
        other = dataclasses.replace(
            task,
            values=tuple(
                dataclasses.replace(v, layout=layout) if v == image else v for v in task.values
            ),
        )
        before_s, after_s = Costs(TARGET).expected(Counter([task, task]), Counter([other]))
        assert before_s > 0.0
        assert (after_s == 0.0) == alike


def test_one_missing_time_leaves_it_to_predictions() -> None:
    graph, costs = optimize(dilated(count=1), CLEAN), Costs(TARGET)
    found = search(graph, shipped(), costs)
    missing = found.decisive[-1]
    partial = Costs(TARGET, lambda task: None if task == missing else 1.0)
    again = search(graph, shipped(), partial)
    assert [s.rewrite for s in again.steps] == [s.rewrite for s in found.steps]
    assert {s.measured_s for s in again.steps} == {None}


def test_out_of_time_leaves_the_graph() -> None:
    graph = optimize(head(), CLEAN)
    found = search(graph, shipped(), Costs(TARGET), time_s=0.0, clock=iter(range(99)).__next__)
    assert (found.graph, found.complete) == (graph, False)


def test_out_of_memory_ends_with_the_best_so_far() -> None:
    """Each folded layer is a constant of its own."""
    n = Net()
    x = n.feed("x", 4, 512)
    for _ in range(3):
        x = n.op("matmul", x, n.weights(512, 512))
    graph = optimize(n.graph(x), CLEAN)
    found = search(graph, shipped(), Costs(TARGET))
    assert (len(found.graph.nodes), found.complete) == (1, True)
    ended = search(graph, shipped(), Costs(TARGET), memory_bytes=1)
    assert (len(ended.graph.nodes), ended.complete) == (2, False)


def test_more_time_is_a_wider_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, int]] = []

    def searched(graph: Graph, *given: object, width: int) -> Found:
        asked.append((float(str(given[2])), width))
        return Found(graph=graph)

    monkeypatch.setattr("autotune.compiler.rewriting.search", searched)
    for seconds in (None, 0.5, 8.0, 3600.0):
        autotune.compile("zoo:tiny", rewrite_time=seconds)
    times, widths = zip(*asked, strict=True)
    assert times == (TIME_S, 0.5, 8.0, 3600.0)
    assert widths[0] == widths[1] < widths[2] < widths[3] < 100


def test_strict_takes_exact_ones_alone() -> None:
    strict = TARGET.with_accuracy("strict")
    way = rewriting(strict)
    assert way is not None
    assert way(optimize(head(), CLEAN)).steps == ()
    assert rewriting(TARGET, "none") is None


def test_a_defect_leaves_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Costs, "tasks", lambda *_: 1 // 0)
    way, graph = rewriting(TARGET), optimize(head(), CLEAN)
    assert way is not None
    with pytest.warns(DefectWarning, match="the graph stays as it is"):
        assert way(graph).graph is graph


def test_compiled_with_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = head()
    feeds = random_feeds(graph)
    one = autotune.compile(graph)
    other = autotune.compile(graph, rewrites="none")
    assert len(one.image.kernels) != len(other.image.kernels)
    (got,), (expected,) = one.run(feeds).values(), other.run(feeds).values()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    wrong = tmp_path / "wrong.rewrites"
    wrong.write_text("rewrite w\n    value x [*s]\n    from relu(x)\n    to x\n")
    assert execute(["rewrite", "prove", str(wrong)]) == 2
    assert (
        execute(["compile", "zoo:tiny", "--rewrites", str(wrong), "-o", str(tmp_path / "m")]) == 2
    )
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: w: the sides differ") for line in lines)
    assert execute(["rewrite", "list"]) == 0
    assert "dilated-convolution-by-phases" in capsys.readouterr().out


@pytest.mark.parametrize(("size", "folded"), [(512, True), (2048, False)])
def test_products_of_large_constants_are_left_to_the_run(size: int, folded: bool) -> None:
    """(xA)B = x(AB), but AB takes longer than compiling may, and memory with it."""
    n = Net()
    x = n.feed("x", 4, size)
    for _ in range(2):
        x = n.op("matmul", x, n.weights(size, size))
    found = search(optimize(n.graph(x), CLEAN), shipped(), Costs(TARGET))
    assert (len(found.graph.nodes) == 1) == folded
