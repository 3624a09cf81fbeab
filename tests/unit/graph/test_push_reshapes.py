"""Reshapes that stand between a kernel and what could be computed in it."""

from __future__ import annotations

import numpy as np

from autotune.graph.fusion import fuse
from autotune.graph.ir import Graph
from autotune.graph.passes.push_reshapes import PushReshapes
from autotune.graph.pipeline import optimize
from tests.unit.graph.nets import TO_NHWC, Net, op_counts
from tests.unit.graph.test_passes import run


def _order(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes if node.op != "scalar"]


def test_numbers_and_constants_along_the_last_dimension_follow() -> None:
    n = Net()
    x = n.op("reshape", n.feed("x", 6, 4), shape=(2, 3, 4))
    y = n.op("add", n.op("mul", x, n.scalar(2.0)), n.weights(1, 1, 4))
    assert _order(run(PushReshapes(), n.graph(y))) == ["mul", "add", "reshape"]


def test_a_whole_constant_is_reshaped_too() -> None:
    n = Net()
    x = n.op("reshape", n.feed("x", 6, 4), shape=(2, 12))
    assert _order(run(PushReshapes(), n.graph(n.op("add", x, n.weights(2, 12))))) == [
        "add",
        "reshape",
    ]


def test_a_constant_follows_to_where_it_is_several_times_in_a_row() -> None:
    n = Net()
    x = n.op("reshape", n.feed("x", 2, 24), shape=(2, 3, 8))
    assert _order(run(PushReshapes(), n.graph(n.op("add", x, n.weights(8))))) == ["add", "reshape"]


def test_a_constant_is_not_written_out_many_times() -> None:
    n = Net()
    x = n.op("reshape", n.feed("x", 800), shape=(100, 8))
    assert _order(run(PushReshapes(), n.graph(n.op("add", x, n.weights(8))))) == ["reshape", "add"]


def test_operands_reshaped_from_one_shape_meet() -> None:
    n = Net()
    x, y = (n.op("reshape", n.feed(f, 6, 4), shape=(2, 3, 4)) for f in "xy")
    assert op_counts(run(PushReshapes(), n.graph(n.op("add", x, y)))) == {"add": 1, "reshape": 1}


def test_other_operands_hold_a_reshape_back() -> None:
    n = Net()
    x = n.op("reshape", n.feed("x", 6, 4), shape=(2, 3, 4))
    rows = n.op("add", x, n.constant(np.ones((1, 3, 1), np.float32)))
    other = n.op("add", rows, n.feed("y", 2, 3, 4))
    assert _order(run(PushReshapes(), n.graph(other))) == ["reshape", "add", "add"]


def test_activations_of_one_pixel_images_are_fused() -> None:
    n = Net()
    image = n.feed("x", 1, 4, 5, 5)
    pooled = n.op(
        "reduce_mean", n.op("transpose", image, perm=TO_NHWC), axes=(1, 2), keepdims=True
    )
    y = n.op("transpose", pooled, perm=(0, 3, 1, 2))
    for _ in range(2):
        y = n.op("sigmoid", n.op("add", n.conv(y, 4, k=1), n.weights(1, 4, 1, 1)))
    graph = optimize(n.graph(n.op("mul", image, y)))
    groups = [[node.op for node in group.nodes] for group in fuse(graph)]
    assert groups.count(["conv2d", "add", "sigmoid"]) == 2
