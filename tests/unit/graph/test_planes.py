"""Operators that work in any layout take images as they lie; transposes of views become one."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.passes.drop_round_trips import DropRoundTrips
from autotune.graph.passes.push_transposes import WIDE_PLANE
from autotune.graph.passes.remove_identities import RemoveIdentities
from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from tests.unit.graph.nets import Net, op_counts, random_feeds
from tests.unit.graph.test_passes import run

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def ops(source: Graph) -> list[str]:
    """Of the kernels after all passes, which compute the same."""
    graph, feeds = optimize(source), random_feeds(source)
    np.testing.assert_allclose(
        run_graph(graph, feeds)["y0"], run_graph(source, feeds)["y0"], rtol=1e-5, atol=1e-6
    )
    return [call.task.op for call in partition(graph).calls]


def test_an_image_with_channels_first_is_resized_as_it_lies() -> None:
    n = Net()
    image = n.op("transpose", n.feed("x", 1, 3, 5, 6), perm=LAST)
    wide = n.op("resize", image, out_shape=(1, 10, 12, 3), mode="linear")
    assert ops(n.graph(n.op("transpose", wide, perm=FIRST))) == ["resize"]


@pytest.mark.parametrize(("width", "count"), [(2 * WIDE_PLANE, 1), (WIDE_PLANE - 1, 3)])
def test_wide_planes_are_pooled_as_they_lie(width: int, count: int) -> None:
    n = Net()
    image = n.op("transpose", n.feed("x", 2, 3, 5, width), perm=LAST)
    pooled = n.op("max_pool2d", image, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))
    found = ops(n.graph(n.op("transpose", pooled, perm=FIRST)))
    assert (len(found), "max_pool2d" in found) == (count, True)


def test_transposes_around_merged_dimensions_become_one() -> None:
    n = Net()
    parts = n.op("transpose", n.feed("x", 1, 2, 2, 5, 3, 4), perm=(0, 4, 1, 5, 2, 3))
    merged = n.op("reshape", parts, shape=(1, 6, 8, 5))
    graph = run(RemoveIdentities(), n.graph(n.op("transpose", merged, perm=FIRST)))
    assert op_counts(graph) == {"transpose": 1, "reshape": 1}


def test_a_reshape_that_splits_keeps_both() -> None:
    n = Net()
    turned = n.op("transpose", n.feed("x", 4, 6), perm=(1, 0))
    split = n.op("reshape", turned, shape=(2, 3, 4))
    graph = run(RemoveIdentities(), n.graph(n.op("transpose", split, perm=(2, 1, 0))))
    assert op_counts(graph)["transpose"] == 2


@pytest.mark.parametrize(("shift", "left"), [(-128.0, 0), (-127.0, 1)])
def test_bytes_that_come_back_are_the_same(shift: float, left: int) -> None:
    n = Net()
    whole = n.op("to_float32", n.op("to_uint8", n.feed("x", 3, 5)))
    apart = n.op("round", n.op("add", whole, n.scalar(shift)))
    again = n.op("to_uint8", n.op("add", apart, n.scalar(128.0)))
    assert op_counts(run(DropRoundTrips(), n.graph(again)))["to_float32"] == left
