"""Which image layers run in row strips, and that nothing changes by it."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.graph.strips.image_chain import image_chains
from autotune.graph.strips.rows import RowStrips
from autotune.placement.partition import partition
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import TO_NHWC, Net, op_counts, random_feeds
from tests.unit.graph.oracle import run_partition


def separable(rows: int, stride: int = 1, channels: int = 8) -> Graph:
    """A thin image made wide, filtered by depth, made thin again; and added to itself."""
    n = Net()
    x = n.conv(n.feed("x", 1, 4, rows, 16), 4, k=1)
    wide = n.op("relu", n.batch_norm(n.conv(x, channels, k=1)))
    wide = n.op("relu", n.conv(wide, channels, k=3, stride=stride, groups=channels))
    thin = n.conv(wide, 4, k=1)
    return optimize(n.graph(n.op("add", thin, x) if stride == 1 else thin))


def in_strips(graph: Graph, step: RowStrips) -> Graph:
    """The pass's result, run through its placements and compared."""
    after = step.run(graph)
    verify_graph(after)
    feeds = random_feeds(graph)
    expected, got = run_graph(graph, feeds), run_partition(partition(after), feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5)
    return after


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("strips", [2, 3, 5])
def test_strips_compute_what_the_whole_image_does(stride: int, strips: int) -> None:
    graph = separable(12, stride)
    after = in_strips(graph, RowStrips(cache_bytes=0, strips=strips))
    assert op_counts(after)["conv2d"] > op_counts(graph)["conv2d"]


def test_windows_that_see_padding_alone_have_no_rows_to_be_cut_to() -> None:
    n = Net()
    wide = n.conv(n.feed("x", 1, 4, 6, 8), 8, k=1)
    image = n.op("transpose", wide, perm=TO_NHWC)
    graph = n.graph(n.op("conv2d", image, n.weights(1, 1, 8, 4), pads=(2, 0, 3, 0)))
    in_strips(optimize(graph), RowStrips(cache_bytes=0, strips=5))


def test_strips_cost_no_copies() -> None:
    after = in_strips(separable(12), RowStrips(cache_bytes=0, strips=3))
    others = [c.task.op for c in partition(after).calls if c.task.op != "conv2d"]
    assert others == ["transpose", "transpose"]  # of the graph's input and output


def test_results_that_fit_the_cache_stay_whole() -> None:
    graph = separable(32)
    assert op_counts(RowStrips().run(graph)) == op_counts(graph)


def test_wide_results_run_in_equal_strips() -> None:
    """What a strip writes and the next layer reads fits the cache; the whole does not."""
    n = Net()
    x = n.feed("x", 1, 16, 112, 112)
    wide = n.op("relu", n.conv(x, 96, k=1))
    graph = optimize(n.graph(n.conv(n.conv(wide, 96, k=3, stride=2, groups=96), 24, k=1)))
    heights = [graph.types[n.output].shape[1] for n in graph.nodes if n.op == "conv2d"]
    assert len(heights) > 6
    assert len(set(heights[2::3])) == 1


def test_an_intermediate_result_that_is_read_twice_ends_the_chain() -> None:
    n = Net()
    wide = n.conv(n.feed("x", 1, 4, 12, 16), 8, k=1)
    graph = optimize(n.graph(n.conv(wide, 4, k=3), n.op("neg", wide)))
    assert not list(image_chains(graph, 0))


def test_tiled_convolutions_are_not_computed_twice() -> None:
    n = Net()
    deep = n.conv(n.feed("x", 1, 16, 16, 16), 16, k=3)
    assert not list(image_chains(optimize(n.graph(n.conv(deep, 16, k=3))), 0))
    assert len(list(image_chains(optimize(n.graph(n.max_pool(deep))), 0))) == 1
