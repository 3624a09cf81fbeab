"""Models that must be small: weights in as many bytes as they are, and what that costs."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autotune.compiler.driver import compile_graph
from autotune.frontend import load_model
from autotune.graph.feeds import random_feeds
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.target import load_target


def convolution() -> Graph:
    """3x3, 64 channels, 28x28: faster by Winograd's transforms."""
    value = helper.make_tensor_value_info
    weights = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32) / 24
    made = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "convolution",
        [value("x", TensorProto.FLOAT, [1, 64, 28, 28])],
        [value("y", TensorProto.FLOAT, [1, 64, 28, 28])],
        [numpy_helper.from_array(weights, "w")],
    )
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)])
    return load_model(proto.SerializeToString())


def test_weights_take_no_more_than_in_the_model() -> None:
    graph = convolution()
    target = load_target("x86-64-v3")
    weights = sum(array.nbytes for array in graph.constants.values())
    fast, small = (compile_graph(graph, target, small=each).image for each in (False, True))
    assert {kernel.algorithm for kernel in small.kernels} == {"direct"}
    assert small.constants.nbytes <= weights + 8192 < fast.constants.nbytes


def test_where_nobody_asks_they_are_small_if_that_costs_hardly_anything() -> None:
    target = load_target("x86-64-v3")
    fast, default = (
        compile_graph(convolution(), target, small=each).image for each in (False, None)
    )
    assert default.constants.nbytes == fast.constants.nbytes


def test_it_is_right_and_says_its_price() -> None:
    graph = convolution()
    model = compile_graph(graph, load_target("cpu"), small=True)
    assert any("longer than the fastest schedules" in note for note in model.notes)
    feeds = random_feeds(model.inputs, 0)
    (expected,) = run_graph(graph, feeds, "float64").values()
    (found,) = model.run(feeds).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
