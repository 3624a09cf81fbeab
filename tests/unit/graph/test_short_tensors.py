"""Values that kernels store, as short floats."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from autotune.placement.partition import partition
from autotune.placement.short_tensors import ShortTensors
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net


def shortened(graph: Graph, dtype: str = "bfloat16") -> Graph:
    short = ShortTensors(dtype=dtype).run(graph)
    verify_graph(short)
    return short


def params(graph: Graph) -> list[list[str]]:
    """Element types of each kernel's inputs and, last, of its output."""
    calls = partition(graph, attention=False).calls
    return [[v.type.dtype for v in c.task.params if v.role != "constant"] for c in calls]


def layers() -> Graph:
    net = Net()
    x = net.feed("x", 4, 8)
    first = net.op("relu", net.linear(x, 16))
    total = net.op("add", net.linear(first, 16), first)
    norm = net.op("layer_norm", total, net.weights(16), net.weights(16), axis=1)
    return net.finish([("y", net.linear(norm, 8)), ("z", net.op("relu", total))])


def test_what_kernels_store_is_short_and_outputs_are_not() -> None:
    short = shortened(layers())
    assert dict(short.inputs)["x"].dtype == "bfloat16"
    assert params(short) == [
        ["bfloat16", "bfloat16"],
        ["bfloat16", "bfloat16"],
        ["bfloat16", "bfloat16"],
        ["bfloat16", "float32"],
        ["bfloat16", "float32"],
    ]


@pytest.mark.parametrize(("dtype", "limit"), [("bfloat16", 2e-2), ("float16", 2e-3)])
def test_results_stay_close(dtype: str, limit: float) -> None:
    graph = layers()
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)}
    want, got = run_graph(graph, feeds), run_graph(shortened(graph, dtype), feeds)
    for name, array in want.items():
        assert 0 < np.max(np.abs(got[name] - array)) <= limit * np.max(np.abs(array))


def test_an_input_that_placement_copies_is_short() -> None:
    net = Net()
    x = net.feed("x", 4, 8)
    short = shortened(
        optimize(net.graph(net.op("softmax", net.op("concat", x, x, axis=0), axis=0)))
    )
    assert params(short) == [["bfloat16"] * 2, ["bfloat16"] * 2, ["bfloat16", "float32"]]


def test_views_of_short_values_are_short() -> None:
    net = Net()
    x = net.op("exp", net.feed("x", 2, 3, 8))
    wide = net.op("reshape", x, shape=(6, 8))
    graph = net.finish([("y", net.linear(wide, 4))])
    assert params(shortened(graph)) == [["bfloat16", "bfloat16"], ["bfloat16", "float32"]]


def test_what_would_need_a_kernel_to_convert_it_stays() -> None:
    """Images are gathered from, and one is broadcast: neither can widen on the way."""
    net = Net()
    row, data = net.op("exp", net.feed("row", 1, 8)), net.op("exp", net.feed("data", 4, 8))
    picked = net.op("gather", data, net.constant(np.array([2, 0])), axis=0)
    graph = net.finish([("y", net.op("softmax", net.op("add", picked, row), axis=1))])
    for call in partition(shortened(graph), attention=False).calls:
        assert any(not node.op.startswith("to_") for node in call.task.nodes)


def test_pools_read_short_values() -> None:
    net = Net()
    x = net.conv(net.feed("x", 1, 3, 8, 8), 4)
    graph = net.finish([("y", net.conv(net.max_pool(net.op("relu", x)), 4))])
    kinds = params(shortened(optimize(graph)))
    assert ["bfloat16", "bfloat16"] in kinds
    assert kinds[-1][-1] == "float32"
