"""Products that are divided by what is made of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import autotune
from autotune.graph.passes.exact_quotients import ExactQuotients
from autotune.placement.partition import partition
from autotune.target import load_target
from autotune.types import EXACT
from search_spaces.algorithms.base import ON_CPUS
from search_spaces.cpu.contraction.shape import contraction_of
from tests.unit.graph.nets import Net
from tests.unit.graph.test_passes import run

ROWS = 8
"""Few: rows that are divided by the lengths of all others become as many times as many numbers."""


def length(n: Net, x: str) -> str:
    return n.op("sqrt", n.op("reduce_sum", n.op("mul", x, x), axes=(1,), keepdims=True))


QUOTIENTS: dict[str, tuple[Callable[[Net, str], str], bool]] = {
    "length": (lambda n, x: n.op("div", x, n.op("clip", length(n, x), min=1e-12)), True),
    "length and a little": (
        lambda n, x: n.op("div", x, n.op("add", length(n, x), n.scalar(1e-5))),
        False,
    ),
    "variance and a little": (
        lambda n, x: n.op("mul", x, n.op("rsqrt", n.op("add", n.op("mul", x, x), n.scalar(1e-6)))),
        False,
    ),
    "length of all": (
        lambda n, x: n.op(
            "div", x, n.op("sqrt", n.op("reduce_sum", n.op("reshape", n.op("mul", x, x),
                                        shape=(1, ROWS, 512)), axes=(1, 2), keepdims=True))),
        False,
    ),
    "lengths of rows apart": (
        lambda n, x: n.op(
            "div", x, n.op("sqrt", n.op("reduce_sum", n.op("reshape", n.op("mul", x, x),
                                        shape=(ROWS, 1, 512)), axes=(1, 2), keepdims=True))),
        True,
    ),
    "power": (
        lambda n, x: n.op("mul", x, n.op("pow", n.op("mul", x, x), n.scalar(-0.5))),
        True,
    ),
    "square": (lambda n, x: n.op("pow", x, n.scalar(2.0)), False),
    "sure length": (lambda n, x: n.op("div", x, n.op("clip", length(n, x), min=1e-3)), False),
    "rsqrt": (
        lambda n, x: n.op("mul", x, n.op("rsqrt", n.op("reduce_mean", n.op("mul", x, x),
                                                       axes=(1,), keepdims=True))),
        True,
    ),
    "sigmoid": (
        lambda n, x: n.op("div", x, n.op("add", n.op("exp", n.op("neg", x)), n.scalar(1.0))),
        False,
    ),
    "more than one": (
        lambda n, x: n.op("div", x, n.op("add", n.op("abs", x), n.scalar(1.0))),
        False,
    ),
    "bias": (
        lambda n, x: n.op("reciprocal", n.op("add", x, n.constant(np.zeros(512, np.float32)))),
        True,
    ),
    "number": (lambda n, x: n.op("div", x, n.scalar(3.0)), False),
    "plain": (lambda n, x: n.op("relu", x), False),
}  # fmt: skip


@pytest.mark.parametrize("name", QUOTIENTS)
def test_products_are_exact_where_their_small_values_are_divided_by(name: str) -> None:
    n, (quotient, exact) = Net(), QUOTIENTS[name]
    x = n.op("matmul", n.feed("x", ROWS, 256), n.weights(256, 512))
    found = run(ExactQuotients(), n.graph(quotient(n, x)))
    (product,) = (node for node in found.nodes if node.op == "matmul")
    assert bool(product.attributes.get(EXACT)) == exact


@pytest.mark.parametrize("exact", [False, True])
def test_exact_products_take_the_algorithms_of_strict_accuracy(exact: bool) -> None:
    n = Net()
    x = n.op("matmul", n.feed("x", 512, 256), n.weights(256, 512))
    graph = n.graph(QUOTIENTS["length"][0](n, x)) if exact else n.graph(x)
    (task,) = (t for t in partition(ExactQuotients().run(graph)).weights() if t.op == "matmul")
    target = load_target("x86-64-v4")
    names = {a.name for a in ON_CPUS.applicable(task, contraction_of(task), target)}
    assert ("strassen" in names) != exact
    assert "direct" in names


def test_rows_of_zeros_stay_zeros_when_they_are_normalised() -> None:
    """As windows of an image that lie in its padding, of which keys are made."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((512, 256)).astype(np.float32)
    x[::3] = 0
    weights = rng.standard_normal((256, 512)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ReduceL2", ["y"], ["r"], axes=[1], keepdims=1),
        helper.make_node("Clip", ["r", "least"], ["c"]),
        helper.make_node("Div", ["y", "c"], ["z"]),
    ]
    constants = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.float32(1e-12), "least"),
    ]
    kinds = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", (512, 256)), ("z", (512, 512)))
    ]
    graph = helper.make_graph(nodes, "net", kinds[:1], kinds[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = peer.run(None, {"x": x})
    assert not want[::3].any()
    np.testing.assert_allclose(autotune.compile(proto).run({"x": x})["z"], want, atol=1e-5)
