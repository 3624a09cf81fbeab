"""Models that are quantized already compute what onnxruntime computes, on bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from autotune.compiler.driver import compile_graph
from autotune.compiler.prepare import prepare
from autotune.frontend.onnx.importer import import_model
from autotune.graph.interp import run_graph
from autotune.target import host_target
from autotune.types import Array
from tests.graph_verify import verify_graph
from tests.unit.frontend.onnx_models import node_model, nodes_model

RNG = np.random.default_rng(0)


def whole(dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def weights(*shape: int) -> Array:
    return RNG.integers(-100, 100, shape).astype(np.int8)


def run_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return [np.asarray(a) for a in session.run(None, inputs)]


def f4(*values: float) -> Array:
    return np.array(values, np.float32) if len(values) > 1 else np.float32(values[0]).reshape(())


def one(value: int, dtype: str) -> Array:
    return np.array(value, dtype)


X = RNG.standard_normal((1, 6, 5, 7)).astype(np.float32) * 3
CASES: dict[str, tuple[str, dict[str, Array], list[Any], dict[str, Any]]] = {
    "quantize": ("QuantizeLinear", {"x": X}, [f4(0.03), one(120, "uint8")], {}),
    "quantize signed": ("QuantizeLinear", {"x": X}, [f4(0.05), one(-3, "int8")], {}),
    "quantize channels": (
        "QuantizeLinear", {"x": X}, [np.linspace(0.01, 0.1, 6).astype("f4"), whole("uint8", 6)],
        {"axis": 1},
    ),
    "dequantize": ("DequantizeLinear", {"x": whole("int8", 3, 4)}, [f4(0.2), one(5, "int8")], {}),
    "dequantize rows": (
        "DequantizeLinear", {"x": whole("uint8", 3, 4)}, [f4(0.1, 0.2, 0.3), whole("uint8", 3)],
        {"axis": 0},
    ),
    "matmul": ("MatMulInteger", {"x": whole("uint8", 5, 8)},
               [weights(8, 6), one(17, "uint8"), one(0, "int8")], {}),
    "matmul batch": ("MatMulInteger", {"x": whole("uint8", 2, 5, 8)}, [weights(2, 8, 6)], {}),
    "matmul unsigned": ("MatMulInteger", {"x": whole("uint8", 5, 8)},
                        [whole("uint8", 8, 6), one(3, "uint8"), one(128, "uint8")], {}),
    "conv": ("ConvInteger", {"x": whole("uint8", 1, 3, 6, 5)},
             [whole("uint8", 4, 3, 3, 3), one(9, "uint8"), one(128, "uint8")],
             {"pads": [1, 0, 1, 2]}),
    "matmul far": ("MatMulInteger", {"x": whole("int8", 2, 5, 8)},
                   [whole("uint8", 8, 6), one(-3, "int8"), one(201, "uint8")], {}),
    "matmul far columns": ("MatMulInteger", {"x": whole("uint8", 5, 8)},
                           [whole("uint8", 8, 6), one(17, "uint8"), whole("uint8", 6)], {}),
    "conv far": ("ConvInteger", {"x": whole("uint8", 1, 6, 6, 5)},
                 [whole("uint8", 4, 6, 3, 3), one(9, "uint8"), one(3, "uint8")],
                 {"pads": [1, 0, 1, 2]}),
    "conv far groups": ("ConvInteger", {"x": whole("uint8", 1, 8, 6, 5)},
                        [whole("uint8", 6, 4, 3, 3), one(9, "uint8"), one(250, "uint8")],
                        {"pads": [1, 0, 1, 2], "group": 2}),
    "conv far depthwise": ("ConvInteger", {"x": whole("int8", 1, 8, 6, 5)},
                           [whole("int8", 8, 1, 3, 3), one(9, "int8"), one(-90, "int8")],
                           {"pads": [1, 0, 1, 2], "group": 8}),
    "conv of groups": ("ConvInteger", {"x": whole("uint8", 1, 8, 6, 5)},
                       [weights(2, 4, 3, 3), one(9, "uint8")], {"group": 2}),
    "qconv": ("QLinearConv", {"x": whole("uint8", 1, 8, 6, 5)},
              [f4(0.02), one(31, "uint8"), weights(4, 8, 3, 3), f4(.01, .02, .03, .04),
               np.zeros(4, np.int8), f4(0.9), one(100, "uint8"), whole("int8", 4).astype("i4")],
              {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    "qconv signed": ("QLinearConv", {"x": whole("int8", 1, 8, 6, 5)},
                     [f4(0.02), one(-9, "int8"), weights(4, 4, 1, 1), f4(0.01),
                      one(0, "int8"), f4(0.3), one(4, "int8")], {"group": 2}),
    "qmatmul": ("QLinearMatMul", {"x": whole("uint8", 5, 8)},
                [f4(0.02), one(31, "uint8"), weights(8, 6), f4(0.03), one(0, "int8"), f4(0.4),
                 one(128, "uint8")], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators_are_those_of_onnxruntime(name: str) -> None:
    op, inputs, constants, attrs = CASES[name]
    model = node_model(op, inputs, constants, **attrs)
    graph = import_model(model, {})
    verify_graph(graph)
    (wanted,) = run_onnxruntime(model, inputs)
    (got,) = run_graph(graph, inputs, "float32").values()
    assert got.dtype == wanted.dtype
    apart = np.abs(got.astype(np.float64) - wanted)
    if got.dtype.kind == "f" or op.endswith("Integer"):
        assert apart.max() <= 1e-6 * np.abs(wanted).max()
    else:
        assert apart.max() <= 1
        assert (apart > 0).mean() < 0.02


def test_ranges_found_at_run_time() -> None:
    model = node_model("DynamicQuantizeLinear", {"x": X}, outputs=3)
    wanted = run_onnxruntime(model, {"x": X})
    got = list(run_graph(import_model(model, {}), {"x": X}, "float32").values())
    assert np.abs(got[0].astype(int) - wanted[0]).max() <= 1
    assert got[1] == pytest.approx(wanted[1], rel=1e-6)
    assert got[2] == wanted[2]


LINEAR: dict[str, tuple[str, Sequence[Any], dict[str, Any]]] = {
    "leaky": ("QLinearLeakyRelu", (whole("uint8", 2, 9),), {"alpha": 0.1}),
    "pool": ("QLinearAveragePool", (whole("uint8", 1, 4, 9, 9),),
             {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "where": ("QLinearWhere", (whole("uint8", 2, 9), whole("uint8", 2, 9)), {}),
    "softmax": ("QLinearSoftmax", (whole("uint8", 2, 9),), {"axis": -1, "opset": 13}),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_operators_on_bytes_are_those_of_onnxruntime(name: str) -> None:
    op, arrays, attrs = LINEAR[name]
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    names = ["chosen"] if name == "where" else []
    for given in inputs:
        names += [given, "scale", "zero"]
    node = helper.make_node(
        op, [*names, "scale", "result"], ["y"], domain="com.microsoft", **attrs
    )
    if name == "where":
        inputs["chosen"] = np.array([[True], [False]])
    parts = (("scale", f4(0.02)), ("zero", one(120, "uint8")), ("result", one(60, "uint8")))
    tensors = [numpy_helper.from_array(a, n) for n, a in parts]
    model = nodes_model([node], inputs, tensors, ["y"])
    (wanted,) = run_onnxruntime(model, inputs)
    (got,) = run_graph(import_model(model, {}), inputs, "float32").values()
    assert got.dtype == wanted.dtype
    assert np.abs(got.astype(int) - wanted).max() <= 1


def test_products_of_two_activations() -> None:
    zeros = {"xz": one(4, "uint8"), "wz": one(7, "int8")}
    inputs = {"x": whole("uint8", 2, 5, 8), "w": whole("int8", 2, 8, 6)}
    model = node_model("MatMulInteger", {**inputs, **zeros})
    (wanted,) = run_onnxruntime(model, {**inputs, **zeros})
    (got,) = run_graph(import_model(model, {}), {**inputs, **zeros}, "float32").values()
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("group", [1, 2])
def test_padding_of_a_zero_point_that_only_a_run_knows(group: int, kind: str) -> None:
    """As dynamic quantization writes convolutions."""
    inputs = {"x": whole(kind, 2, 4, 7, 5), "w": weights(6, 4 // group, 3, 2)}
    attrs = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "group": group}
    zero = one(5, kind)
    known = node_model("ConvInteger", {"x": inputs["x"]}, [inputs["w"], zero], **attrs)
    (wanted,) = run_graph(import_model(known, {}), {"x": inputs["x"]}).values()
    nodes = [helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], **attrs)]
    tensors = [numpy_helper.from_array(inputs["w"], "w")]
    feeds = {"x": inputs["x"], "z": zero}
    model = nodes_model(nodes, feeds, tensors, ["y"])
    (got,) = run_graph(import_model(model, {}), feeds).values()
    assert np.array_equal(got, wanted)
    if kind == "uint8":  # ONNX Runtime has no kernel for signed data
        assert np.array_equal(got, run_onnxruntime(model, feeds)[0])


@pytest.mark.parametrize("channels", [3, 40])
def test_weights_of_a_run_are_summed_exactly(channels: int) -> None:
    """With more products than float32 has the sums of."""
    feeds = {"x": whole("uint8", 1, channels, 6, 5), "w": whole("uint8", 4, channels, 3, 3)}
    model = node_model("ConvInteger", feeds)
    (got,) = compile_graph(import_model(model, {}), host_target()).run(feeds).values()
    assert np.array_equal(got, run_onnxruntime(model, feeds)[0])


def test_compiled_products_by_their_own_range() -> None:
    x = X.reshape(5, 42)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["wide"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "s"], ["y"]),
    ]
    weights_ = (("w", whole("uint8", 42, 6)), ("wz", one(3, "uint8")))
    tensors = [numpy_helper.from_array(a, n) for n, a in weights_]
    model = nodes_model(nodes, {"x": x}, tensors, ["y"])
    (wanted,) = run_onnxruntime(model, {"x": x})
    (got,) = compile_graph(import_model(model, {}), host_target(), processes=1).run(
        {"x": x}
    ).values()  # fmt: skip
    assert np.abs(got - wanted).max() <= 1e-6 * np.abs(wanted).max()


COMPILED = ["conv", "conv far", "conv far groups", "conv far depthwise", "conv of groups", "qconv",
            "qconv signed", "qmatmul"]  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_models_agree(name: str) -> None:
    op, inputs, constants, attrs = CASES[name]
    model = node_model(op, inputs, constants, **attrs)
    compiled = compile_graph(import_model(model, {}), host_target(), processes=1)
    (wanted,) = run_onnxruntime(model, inputs)
    (got,) = compiled.run(inputs).values()
    assert got.dtype == wanted.dtype
    assert np.abs(got.astype(np.int64) - wanted).max() <= (0 if op == "ConvInteger" else 1)


def test_a_scalar_in_bytes_stays_a_scalar() -> None:
    feeds = {"x": f4(4.0)}
    model = node_model("QuantizeLinear", feeds, [f4(0.5), one(3, "uint8")], opset=19)
    (got,) = run_graph(prepare(import_model(model, {}), "float32").graph, feeds).values()
    assert (got.shape, int(got)) == ((), 11)


@pytest.mark.parametrize("zero", [41, 116, 255])
def test_bytes_at_their_zero_point_are_exactly_0(zero: int) -> None:
    """Their number was `byte * scale - zero * scale`, of which the second product was rounded."""
    known = (("s", np.float32(0.09267620742321014)), ("z", np.uint8(zero)))
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["d"]),
        helper.make_node("Abs", ["d"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in known]
    x = np.array([[1e-5, -3.0, 0.5, 1e-3]], np.float32)
    graph = import_model(nodes_model(nodes, {"x": x}, tensors, ["y"]), {})
    (got,) = compile_graph(graph, host_target(1), processes=1).run({"x": x}).values()
    assert ((got == 0) == [[True, True, zero == 255, True]]).all()
