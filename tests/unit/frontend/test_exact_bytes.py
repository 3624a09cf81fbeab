"""Bytes that quantized models make are those of the standard, to the last one, beside ties too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.compiler.driver import compile_graph
from autotune.frontend.onnx.importer import import_model
from autotune.target import host_target
from autotune.types import Array

KINDS = {"uint8": (0, 255), "int8": (-128, 127)}


def made(
    nodes: list[onnx.NodeProto], feeds: Mapping[str, Array], constants: Mapping[str, Any],
    outputs: Mapping[str, str],
) -> onnx.ModelProto:  # fmt: skip
    def typed(name: str, array: Array) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, array.shape)

    ends = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(d)), None)
        for n, d in outputs.items()
    ]
    known = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    given = [typed(k, v) for k, v in feeds.items()]
    graph = helper.make_graph(nodes, "bytes", given, ends, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def ours(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    return compile_graph(import_model(model, {}), host_target()).run(feeds)


def runtimes(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """ONNX Runtime's; its optimizer is off, so that it computes what the model says."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def beside_ties(scale: np.float32, zero: int, dtype: str) -> Array:
    """Numbers at, just above and just below the middles between two bytes, and ends."""
    low, high = KINDS[dtype]
    middles = (np.arange(low - zero, high - zero) + 0.5) * float(scale)
    x = middles.astype(np.float32)
    near = [x]
    for _ in range(3):
        near += [np.nextafter(near[-1], np.float32(np.inf))]
    below = [x]
    for _ in range(3):
        below += [np.nextafter(below[-1], np.float32(-np.inf))]
    ends = np.asarray([np.inf, -np.inf, 3e38, -3e38, 0, 1e-40], np.float32)
    return np.concatenate([*near, *below, ends])


def quantized(x: Array, scale: Any, zero: Array, dtype: str) -> Array:
    """The standard's definition, in float32."""
    with np.errstate(over="ignore"):
        counts = np.rint(x / np.float32(scale)) + zero.astype(np.float32)
    return np.clip(counts, *KINDS[dtype]).astype(dtype)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("number", range(6))
def test_quantizing_divides_rounds_and_then_moves(dtype: str, number: int) -> None:
    rng = np.random.default_rng(number)
    scale = np.float32(1 / 128) if number == 0 else np.float32(rng.uniform(1e-3, 3))
    zero = int(rng.integers(*KINDS[dtype]))
    x = beside_ties(scale, zero, dtype)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    constants = {"s": scale, "z": np.asarray(zero, dtype)}
    got = ours(made([node], {"x": x}, constants, {"y": dtype}), {"x": x})["y"]
    want = quantized(x, scale, np.asarray(zero), dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("number", range(3))
def test_scales_along_an_axis_divide_too(number: int) -> None:
    rng = np.random.default_rng(number)
    scales = rng.uniform(1e-3, 3, 5).astype(np.float32)
    zeros = rng.integers(0, 255, 5).astype(np.uint8)
    x = np.stack([beside_ties(s, int(z), "uint8") for s, z in zip(scales, zeros, strict=True)])
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=0)
    got = ours(made([node], {"x": x}, {"s": scales, "z": zeros}, {"y": "uint8"}), {"x": x})["y"]
    want = quantized(x, scales[:, None], zeros[:, None], "uint8")
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("number", range(4))
def test_dynamic_bytes_are_those_of_onnx_runtime(number: int) -> None:
    x = np.random.default_rng(number).standard_normal((3, 40)).astype(np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    model = made([node], {"x": x}, {}, {"y": "uint8", "s": "float32", "z": "uint8"})
    for got, want in zip(ours(model, {"x": x}).values(), runtimes(model, {"x": x}), strict=True):
        np.testing.assert_array_equal(got, want)


def quantized_layer(operator: str, number: int, dtype: str) -> tuple[onnx.ModelProto, Array]:
    """A quantized product or convolution of bytes from outside, with a bias where it takes one."""
    rng = np.random.default_rng(number)
    conv = operator == "QLinearConv"
    shape = (1, 8, 9, 9) if conv else (17, 32)
    x = rng.integers(*KINDS[dtype], shape, endpoint=True).astype(dtype)
    zeros = [np.asarray(rng.integers(*KINDS[dtype]), dtype) for _ in range(2)]
    w = rng.integers(-127, 127, (16, 8, 3, 3) if conv else (32, 24), endpoint=True).astype(np.int8)
    scales = rng.uniform(0.003, 0.02, 16 if conv else 24).astype(np.float32)
    constants: dict[str, Any] = {
        "xs": np.float32(rng.uniform(0.01, 0.1)), "xz": zeros[0],
        "w": w, "ws": scales, "wz": np.zeros(len(scales), np.int8),
        "ys": np.float32(rng.uniform(0.03, 0.3)), "yz": zeros[1],
    }  # fmt: skip
    inputs = ["x", *constants]
    if conv:
        constants["b"] = rng.integers(-9000, 9000, 16).astype(np.int32)
        inputs.append("b")
    node = helper.make_node(operator, inputs, ["y"])
    return made([node], {"x": x}, constants, {"y": dtype}), x


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("operator", ["QLinearConv", "QLinearMatMul"])
def test_products_of_bytes_are_requantized_as_by_onnx_runtime(
    operator: str, number: int, dtype: str
) -> None:
    model, x = quantized_layer(operator, number, dtype)
    np.testing.assert_array_equal(ours(model, {"x": x})["y"], runtimes(model, {"x": x})[0])


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("operator", ["QLinearConv", "QLinearMatMul"])
def test_products_between_bytes_are_exact_too(operator: str, number: int) -> None:
    """Floats are quantized first, so that the product takes its place among values on bytes."""
    model, x = quantized_layer(operator, number, "uint8")
    graph = model.graph
    known = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    numbers = ((x.astype(np.float32) - known["xz"]) * known["xs"]).astype(np.float32)
    graph.node[0].input[0] = "bytes"
    graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["bytes"]))
    graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT
    want = runtimes(model, {"x": numbers})[0]
    np.testing.assert_array_equal(ours(model, {"x": numbers})["y"], want)
