"""Models that onnxruntime quantized: bytes between kernels, by the model's own steps, and the
outputs that onnxruntime computes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from autotune.compiler.driver import compile_graph
from autotune.compiler.prepare import prepare
from autotune.frontend.onnx.importer import import_model, import_onnx
from autotune.graph.int8.qdq import unit_of
from autotune.graph.int8.quantize import Lowered, Slower
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.placement.partition import partition
from autotune.target import host_target
from autotune.types import Array
from tests.graph_verify import verify_graph
from tests.unit.frontend.onnx_models import nodes_model

SHAPE = (1, 3, 12, 12)
RNG = np.random.default_rng(0)
SAMPLES = [RNG.standard_normal(SHAPE).astype(np.float32) + 0.3 for _ in range(4)]


def float_net(path: Path) -> None:
    """Pixels, a value without a relu, a depthwise layer, a sum, pools, a classifier."""
    weights: list[onnx.TensorProto] = []

    def known(name: str, *shape: int) -> str:
        array = RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def conv(x: str, y: str, *shape: int, **attrs: Any) -> onnx.NodeProto:
        inputs = [x, known(f"w_{y}", *shape), known(f"b_{y}", shape[0])]
        return helper.make_node("Conv", inputs, [y], **attrs)

    nodes = [
        conv("x", "a", 16, 3, 3, 3, pads=[1] * 4),
        conv("a", "b", 16, 16, 3, 3, pads=[1] * 4),
        helper.make_node("Relu", ["b"], ["c"]),
        conv("c", "d", 16, 1, 3, 3, pads=[1] * 4, group=16, strides=[2, 2]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("MaxPool", ["c"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Add", ["e", "f"], ["g"]),
        helper.make_node("Sigmoid", ["g"], ["s"]),
        helper.make_node("Mul", ["g", "s"], ["m"]),
        helper.make_node("Concat", ["m", "g"], ["k"], axis=1),
        helper.make_node("GlobalAveragePool", ["k"], ["h"]),
        helper.make_node("Flatten", ["h"], ["i"]),
        helper.make_node("Gemm", ["i", known("w", 10, 32), known("v", 10)], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))],
        weights,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self.left = list(SAMPLES)

    def get_next(self) -> dict[str, Array] | None:
        return {"x": self.left.pop()} if self.left else None


KINDS: dict[str, dict[str, Any]] = {
    "pairs": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8},
    "pairs, signed": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QInt8},
    "pairs, one step": {
        "quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8,
        "per_channel": False, "reduce_range": True,
    },
    "operators": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8},
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized")
    float_net(folder / "float.onnx")
    options = {"per_channel": True, "weight_type": QuantType.QInt8, **KINDS[request.param]}
    quantize_static(str(folder / "float.onnx"), str(folder / "q.onnx"), Samples(), **options)
    return folder / "q.onnx"


def prepared(path: Path) -> Graph:
    graph = prepare(import_onnx(path), "float32").graph
    verify_graph(graph)
    return graph


def wanted(path: Path) -> Array:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": SAMPLES[0]})[0])


def test_every_contraction_multiplies_bytes(model: Path) -> None:
    calls = partition(prepared(model)).calls
    for call in calls:
        if call.task.op in ("conv2d", "matmul"):
            assert next(v.type.dtype for v in call.task.by_role("input")) == "uint8"
    assert sum(call.task.op == "conv2d" for call in calls) == 3


def test_outputs_are_those_of_onnxruntime(model: Path) -> None:
    (got,) = run_graph(prepared(model), {"x": SAMPLES[0]}, "float32").values()
    exact = wanted(model)
    # A byte more or less here and there: halves are rounded after other sums.
    assert np.abs(got - exact).max() < 0.02 * np.abs(exact).max()


def test_compiled_outputs_are_those_of_onnxruntime(model: Path) -> None:
    compiled = compile_graph(prepared(model), host_target(), processes=1)
    (got,) = compiled.run({"x": SAMPLES[0]}).values()
    exact = wanted(model)
    assert np.abs(got - exact).max() < 0.02 * np.abs(exact).max()


def test_outputs_are_the_same_where_products_stay_in_float32(model: Path) -> None:
    def all_stay(_: Graph, __: Lowered, contractions: frozenset[str]) -> Slower:
        return Slower(times=dict.fromkeys(contractions, (1.0, 2.0)))

    graph = prepare(import_onnx(model), "float32", pays=all_stay).graph
    verify_graph(graph)
    assert all(graph.types[n.output].dtype == "float32" for n in graph.nodes if n.op == "conv2d")
    (got,) = run_graph(graph, {"x": SAMPLES[0]}, "float32").values()
    exact = wanted(model)
    assert np.abs(got - exact).max() < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("largest", [127, 100, 128])
def test_steps_of_weights_are_found(largest: int) -> None:
    counts = RNG.integers(-90, 90, (3, 3, 8, 5)).astype(np.float64)
    counts[0, 0, 0] = -largest
    steps = np.array([0.5, 1e-3, 0.07, 3.0, 1e-5])
    unit = unit_of((counts * steps).astype(np.float32))
    assert unit is not None
    assert np.array_equal(np.rint(counts * steps / unit), counts)


def test_weights_that_are_no_multiples_have_no_step() -> None:
    assert unit_of(RNG.standard_normal((3, 3, 8, 5)).astype(np.float32)) is None


def quantized_input(reader: str) -> onnx.ModelProto:
    """An input that becomes bytes for a reader that does not multiply bytes."""
    levels = np.random.default_rng(3).integers(-127, 128, (17, 12)).astype(np.int8)
    tensors = [
        numpy_helper.from_array(array, name)
        for name, array in (
            ("s", np.float32(0.5)), ("z", np.uint8(128)), ("w", levels),
            ("u", np.float32(0.02)), ("n", np.int8(0)),
        )
    ]  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["f"]),
    ]
    if reader == "MatMul":
        nodes.append(helper.make_node("DequantizeLinear", ["w", "u", "n"], ["v"]))
        nodes.append(helper.make_node("MatMul", ["f", "v"], ["y"]))
    else:
        nodes.append(helper.make_node(reader, ["f"], ["y"]))
    return nodes_model(nodes, {"x": np.zeros((4, 17), np.float32)}, tensors, ["y"])


@pytest.mark.parametrize("reader", ["MatMul", "Sigmoid", "Softmax", "Transpose"])
def test_who_reads_a_quantized_input_as_floats_reads_it_rounded(reader: str) -> None:
    """A reduction of 17 is no product of bytes; it read the input as it was before rounding."""
    model = quantized_input(reader)
    x = np.random.default_rng(4).standard_normal((4, 17)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (exact,) = session.run(None, {"x": x})
    graph = prepare(import_model(model, {}), "float32").graph
    (got,) = run_graph(graph, {"x": x}, "float32").values()
    np.testing.assert_allclose(got, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    (got,) = compile_graph(graph, host_target(1), processes=1).run({"x": x}).values()
    np.testing.assert_allclose(got, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("channels", [1, 9, 17, 33])
def test_bytes_of_a_single_channel_write_nothing_behind_it(channels: int) -> None:
    """LLVM stored the last of 17 channels as four bytes, over the first three of a pixel that was
    there already."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 3, 8)).astype(np.float32)
    weights = rng.standard_normal((channels, 3, 1, 1)).astype(np.float32)
    known = (("w", weights), ("s", np.float32(0.0503)), ("z", np.uint8(0)))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in known]
    graph = import_model(nodes_model(nodes, {"x": x}, tensors, ["y"]), {})
    (exact,) = run_graph(graph, {"x": x}).values()
    (got,) = compile_graph(graph, host_target(1), processes=1).run({"x": x}).values()
    assert np.abs(got - exact).max() < 0.06
