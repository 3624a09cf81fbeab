"""Norms of values whose squares float32 does not hold, against float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import autotune

EPSILON = 1e-5


def normalized(x: np.ndarray, axes: tuple[int, ...], centred: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    wide = wide - wide.mean(axis=axes, keepdims=True) * centred
    return wide / np.sqrt((wide * wide).mean(axis=axes, keepdims=True) + EPSILON)


def _model(
    node: onnx.NodeProto, x: np.ndarray, constants: dict[str, np.ndarray], opset: int
) -> onnx.ModelProto:
    info = [helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, x.shape) for v in "xy"]
    given = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "norm", info[:1], info[1:], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e18, 1e30])
@pytest.mark.parametrize("columns", [8, 37, 768])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization", "InstanceNormalization"])
def test_large_values_are_normalized(op: str, columns: int, size: float) -> None:
    rng = np.random.default_rng(columns)
    image = op.startswith("Instance")
    x = (rng.standard_normal((2, 3, columns)) * size).astype(np.float32)
    scale = np.ones(3 if image else columns, np.float32)
    names = ["x", "scale", "bias"] if image else ["x", "scale"]
    node = helper.make_node(op, names, ["y"], epsilon=EPSILON)
    given = {"scale": scale} | ({"bias": 0 * scale} if image else {})
    model = _model(node, x, given, opset=23)
    got = autotune.compile(model).run({"x": x})["y"]
    want = normalized(x, (2,), centred=not op.startswith("RMS"))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 1e18, 1e26])
def test_large_values_are_normalized_without_parameters(size: float) -> None:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((3, 4, 5, 7)) * size).astype(np.float32)
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
    got = autotune.compile(_model(node, x, {}, opset=13)).run({"x": x})["y"]
    wide = x.astype(np.float64)
    wide = wide - wide.mean(axis=(0, 2, 3), keepdims=True)
    want = wide / (np.sqrt((wide * wide).mean(axis=(0, 2, 3), keepdims=True)) + 1e-9)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e18, 1e30])
def test_large_values_are_normalized_by_the_batch(size: float) -> None:
    rng = np.random.default_rng(6)
    x = (rng.standard_normal((3, 4, 5, 7)) * size).astype(np.float32)
    ones = np.ones(4, np.float32)
    given = {"scale": ones, "bias": 0 * ones, "mean": 0 * ones, "var": ones}
    attributes = {"epsilon": EPSILON, "training_mode": 1}
    node = helper.make_node("BatchNormalization", ["x", *given], ["y"], **attributes)
    got = autotune.compile(_model(node, x, given, opset=15)).run({"x": x})["y"]
    np.testing.assert_allclose(got, normalized(x, (0, 2, 3), centred=True), rtol=1e-4, atol=1e-5)
