"""Work that equations of algebra leave out, counted: operations of a model's tasks, as ONNX has
the model, before and after the search, against what the least way takes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from autotune.frontend import open_model
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.pipeline import ARRANGE, CLEAN, optimize
from autotune.placement.partition import partition
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import shipped
from autotune.rewrite.search import search
from autotune.target import load_target
from autotune.tasks.flops import task_flops
from autotune.types import Task
from tests.unit.graph.nets import random_feeds

COSTS = Costs(load_target("x86-64-v4"))
DIGITS = 1e-5
"""Share of the largest value that a rewrite may lose."""


def model(text: str, **weights: tuple[int, ...]) -> Graph:
    """A model from ONNX's text: random weights of these shapes."""
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> m {text}')
    rng = np.random.default_rng(0)
    for name, shape in weights.items():
        array = rng.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    whole = onnx.shape_inference.infer_shapes(made)
    graph = open_model(whole.SerializeToString())
    assert isinstance(graph, Graph)
    return graph


def operations(tasks: Counter[Task]) -> int:
    return sum(n * task_flops(task) for task, n in tasks.items())


def searched(graph: Graph, costs: Costs = COSTS) -> tuple[int, int, Counter[Task]]:
    """(operations as it is; behind the search; the tasks then); the result stays."""
    cleaned = optimize(graph, CLEAN)
    found = search(cleaned, shipped(), costs, time_s=60.0)
    feeds = random_feeds(graph)
    got = run_graph(found.graph, feeds, "float32")
    for name, expected in run_graph(graph, feeds).items():
        assert np.abs(got[name] - expected).max() <= DIGITS * max(np.abs(expected).max(), 1.0)
    after = Counter(partition(optimize(found.graph, ARRANGE)).weights())
    return operations(COSTS.tasks(graph)), operations(after), after


M, K, N, R = 128, 256, 192, 8
CASES = {
    "attention without a softmax: (Q K') V = Q (K' V)": (
        "(float[4,512,32] q, float[4,512,32] k, float[4,512,32] v) => (float[4,512,32] y) "
        "{ t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) y = MatMul(s, v) }",
        {}, 2 * 2 * 4 * 512 * 32 * 32,
    ),
    "a low-rank adapter in its layer's weights": (
        f"(float[{M},{K}] x) => (float[{M},{N}] y) "
        "{ h = MatMul(x, w) l = MatMul(x, a) r = MatMul(l, b) y = Add(h, r) }",
        {"w": (K, N), "a": (K, R), "b": (R, N)}, 2 * M * K * N,
    ),
    "a low-rank product of inputs: x (A B) = (x A) B": (
        f"(float[{M},{K}] x, float[{K},{R}] a, float[{R},{N}] b) => (float[{M},{N}] y) "
        "{ p = MatMul(a, b) y = MatMul(x, p) }",
        {}, 2 * M * R * (K + N),
    ),
    "a chain of layers": (
        f"(float[{M},{R}] x) => (float[{M},{R}] y) {{ h = MatMul(x, a) y = MatMul(h, b) }}",
        {"a": (R, K), "b": (K, R)}, 2 * M * R * R,
    ),
    "a product and its transpose": (
        f"(float[{M},{K}] x, float[{K},{N}] z) => (float[{M},{N}] y, float[{N},{M}] u) "
        "{ y = MatMul(x, z) a = Transpose<perm=[1,0]>(x) b = Transpose<perm=[1,0]>(z) "
        "u = MatMul(b, a) }",
        {}, 2 * M * K * N,
    ),
    "one expression twice": (
        f"(float[{M},{K}] x) => (float[{M},{N}] y) "
        "{ a = MatMul(x, w) b = MatMul(x, w) c = Sigmoid(a) y = Mul(c, b) }",
        {"w": (K, N)}, 2 * M * K * N + 8 * M * N,
    ),
    "x - x": (
        f"(float[{M},{K}] x, float[{M},{N}] z) => (float[{M},{N}] y) "
        "{ a = MatMul(x, w) b = Sub(a, a) y = Add(b, z) }",
        {"w": (K, N)}, M * N,
    ),
    "relu of relu": (
        f"(float[{M},{K}] x) => (float[{M},{K}] y) {{ a = Relu(x) b = Relu(a) y = Relu(b) }}",
        {}, M * K,
    ),
    "a b + a c": (
        f"(float[{M},{K}] a, float[{M},{K}] b, float[{M},{K}] c) => (float[{M},{K}] y) "
        "{ p = Mul(a, b) q = Mul(a, c) y = Add(p, q) }",
        {}, 2 * M * K,
    ),
    "A B + A C": (
        f"(float[{M},{K}] a, float[{K},{N}] b, float[{K},{N}] c) => (float[{M},{N}] y) "
        "{ p = MatMul(a, b) q = MatMul(a, c) y = Add(p, q) }",
        {}, 2 * M * K * N + K * N,
    ),
    "the last token of a layer": (
        f"(float[{M},{K}] x) => (float[1,{N}] y) "
        "{ h = MatMul(x, w) b = Add(h, c) r = Relu(b) "
        f"s = Constant<value = int64[1] {{{M - 1}}}>() e = Constant<value = int64[1] {{{M}}}>() "
        "y = Slice(r, s, e) }",
        {"w": (K, N), "c": (N,)}, 2 * K * N + 2 * N,
    ),
    "channels of a window that nobody reads": (
        "(float[1,32,28,28] x) => (float[1,8,28,28] y) "
        "{ r = Relu(x) h = Conv<pads=[1,1,1,1]>(r, w) s = Constant<value = int64[1] {0}>() "
        "e = Constant<value = int64[1] {8}>() a = Constant<value = int64[1] {1}>() "
        "y = Slice(h, s, e, a) }",
        {"w": (32, 32, 3, 3)}, 2 * 28 * 28 * 9 * 32 * 8 + 32 * 28 * 28,
    ),
    "a 1x1 convolution of what is resized": (
        "(float[1,64,14,14] x) => (float[1,8,56,56] y) "
        "{ f = Constant<value = float[4] {1.0, 1.0, 4.0, 4.0}>() "
        "h = Resize<mode=\"nearest\", coordinate_transformation_mode=\"asymmetric\", "
        "nearest_mode=\"floor\">(x, , f) y = Conv(h, w) }",
        {"w": (8, 64, 1, 1)}, 2 * 14 * 14 * 64 * 8,
    ),
    "a transposed convolution by phases": (
        "(float[1,32,16,16] x) => (float[1,16,32,32] y) "
        "{ r = Relu(x) y = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(r, w) }",
        {"w": (32, 16, 4, 4)}, 2 * 33 * 33 * 4 * 32 * 16 + 32 * 16 * 16,
    ),
    "a scale before a window, in its weights": (
        "(float[1,3,28,28] x) => (float[1,32,28,28] y) "
        "{ i = Conv<pads=[1,1,1,1]>(x, v) r = Relu(i) h = Mul(r, f) "
        "y = Conv<pads=[1,1,1,1]>(h, w) }",
        {"v": (32, 3, 3, 3), "w": (32, 32, 3, 3), "f": (1, 32, 1, 1)},
        28 * 28 * (2 * 9 * 35 * 32 + 32),
    ),
    "a bias before a layer, behind it": (
        f"(float[4096,{K}] x) => (float[4096,{R}] y) {{ h = Add(x, b) y = MatMul(h, w) }}",
        {"w": (K, R), "b": (K,)}, 2 * 4096 * K * R + 4096 * R,
    ),
    "powers and quotients by numbers": (
        f"(float[{M},{K}] x) => (float[{M},{K}] y) "
        "{ two = Constant<value = float {2.0}>() four = Constant<value = float {4.0}>() "
        "a = Pow(x, two) y = Div(a, four) }",
        {}, 2 * M * K,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_more_is_computed_than_has_to_be(name: str) -> None:
    text, weights, least = CASES[name]
    _, after, _ = searched(model(text, **weights))
    assert after <= least


def test_windows_of_one_image_share_its_halo() -> None:
    """Zeros around an image lie there once: its producer writes between, readers copy none."""
    graph = model(
        "(float[1,3,28,28] x) => (float[1,16,28,28] y) "
        "{ r = Conv<pads=[1,1,1,1]>(x, i) a = Conv<pads=[1,1,1,1]>(r, w) "
        "b = Conv<pads=[2,2,2,2]>(r, v) y = Add(a, b) }",
        i=(16, 3, 3, 3), w=(16, 16, 3, 3), v=(16, 16, 5, 5),
    )  # fmt: skip
    calls = partition(optimize(graph)).calls
    kernels = [{node.op for node in call.task.nodes} for call in calls]
    assert sum("conv2d" in ops for ops in kernels) == 3
    assert all("conv2d" in ops or ops == {"transpose"} for ops in kernels)


def test_zeros_before_a_model_s_first_window_are_not_written() -> None:
    graph = model(
        "(float[1,3,28,28] x) => (float[1,16,14,14] y) "
        "{ z = Constant<value = int64[8] {0,0,0,0,0,0,1,1}>() p = Pad(x, z) "
        "r = Conv<strides=[2,2]>(p, w) y = Relu(r) }",
        w=(16, 3, 3, 3),
    )
    _, _, tasks = searched(graph)
    assert "pad" not in {node.op for task in tasks for node in task.nodes}


def merged(cheaper: bool) -> bool:
    """Whether products that share their rows become one, where that measures so."""
    graph = model(
        f"(float[{M},{K}] x) => (float[{M},{N}] y, float[{M},{N}] z) "
        "{ y = MatMul(x, w) z = MatMul(x, v) }", w=(K, N), v=(K, N),
    )  # fmt: skip

    def measured(task: Task) -> float:
        wide = any(task.value(node.outputs[0]).type.shape[-1] == 2 * N for node in task.nodes)
        return (1e-3 if cheaper else 3e-3) if wide else 1e-3 * (task.op == "matmul")

    found = search(optimize(graph, CLEAN), shipped(), Costs(COSTS.machine.target, measured))
    return "merge-products" in [step.rewrite for step in found.steps]


def test_products_are_merged_where_that_measures_faster() -> None:
    assert merged(cheaper=True)
    assert not merged(cheaper=False)
