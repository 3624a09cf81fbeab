"""Transposed convolutions whose phases are computed apart: where, and what kernels compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.frontend import open_model
from autotune.graph.ir import Graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.placement.partition import partition
from autotune.rewrite.apply import apply
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import shipped
from autotune.rewrite.match import Finder
from autotune.rewrite.search import search
from autotune.target import load_target
from tests.graph_verify import verify_graph


def decoder(image: tuple[int, int, int], out: int, kernel: int, **attrs: object) -> bytes:
    """A transposed convolution by 2 of an image [C, H, W], its bias, a relu, and a convolution
    that reads zeros around it."""
    rng = np.random.default_rng(0)
    shapes = {"w": (image[0], out, kernel, kernel), "b": (out,), "v": (4, out, 3, 3)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["t"], strides=[2, 2], **attrs),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *image])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "decoder", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def cleaned(model: bytes) -> Graph:
    return optimize(open_model(model), CLEAN)


def in_parts(graph: Graph, name: str) -> Graph:
    """The graph with this rewrite at its first place, whatever it costs."""
    rewrite = next(r for r in shipped() if r.name == name)
    made = apply(graph, [next(Finder(graph).matches(rewrite))])
    assert made is not None
    verify_graph(made)
    return made


CASES = [
    ("woven-convolution-by-parts", (6, 5, 7), 8, 4, {"pads": [1, 1, 1, 1]}),
    ("woven-convolution-by-parts", (6, 4, 4), 3, 3, {"pads": [1] * 4, "output_padding": [1, 1]}),
    ("woven-convolution-by-parts", (6, 8, 6), 16, 4, {"pads": [1, 2, 1, 0]}),
    ("woven-convolution-by-rows", (6, 5, 7), 8, 2, {}),
    ("woven-convolution-by-rows", (6, 3, 4), 3, 4, {}),
]


@pytest.mark.parametrize(("name", "image", "out", "kernel", "attrs"), CASES)
def test_parts_are_what_the_whole_was(
    name: str, image: tuple[int, int, int], out: int, kernel: int, attrs: dict[str, object]
) -> None:
    model = decoder(image, out, kernel, **attrs)
    made = in_parts(cleaned(model), name)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, *image)).astype(np.float32)}
    expected = ReferenceEvaluator(onnx.load_from_string(model)).run(None, feeds)[0]
    got = autotune.compile(made, threads=1, rewrites="none").run(feeds)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize(("name", "image", "out", "kernel", "attrs"), CASES)
def test_a_part_s_kernel_adds_the_bias_and_writes_where_it_lies(
    name: str, image: tuple[int, int, int], out: int, kernel: int, attrs: dict[str, object]
) -> None:
    made = in_parts(cleaned(decoder(image, out, kernel, **attrs)), name)
    calls = partition(optimize(made)).calls
    ops = [[node.op for node in call.task.nodes] for call in calls]
    parts = 4 if name.endswith("parts") else 2
    assert ops.count(["conv2d", "add", "relu"]) + ops.count(["matmul", "add", "relu"]) == parts
    assert len(ops) <= parts + 3  # what is left: images turned at both ends, the last convolution


def test_parts_are_taken_where_edges_are_many(tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    path.write_bytes(decoder((256, 8, 8), 128, 4, pads=[1, 1, 1, 1]))
    graph = optimize(open_model(path), CLEAN)
    found = search(graph, shipped(), Costs(load_target("x86-64-v4")), time_s=60.0)
    assert [step.rewrite for step in found.steps] == ["woven-convolution-by-parts"]
