"""Quantized models of open sizes: one program, with ONNX Runtime as the judge."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import autotune
from autotune.runtime.sized import SizedModel
from autotune.types import Array

RANGES = {"N": (1, 3), "H": (5, 24), "S": (1, 20)}
SIZES = ({"N": 2, "H": 9, "S": 7}, {"N": 1, "H": 5, "S": 1}, {"N": 3, "H": 24, "S": 20})
Nodes = list[onnx.NodeProto]


class Samples(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    """Three inputs that say how far values reach."""

    def __init__(self, shape: list[int]) -> None:
        rng = np.random.default_rng(1)
        self.left = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(3)]

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def weights(*shape: int) -> Array:
    scale = np.sqrt(np.prod(shape[1:]))
    drawn = np.random.default_rng(0).standard_normal(shape)
    return np.asarray(drawn / scale, np.float32)


def image_net() -> onnx.ModelProto:
    """A convolution, one by channel with a stride, a residual, a pool."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "w1"], ["d"], pads=[1] * 4, strides=[2, 2], group=8),
        node("Conv", ["d", "w2"], ["e"]),
        node("Add", ["e", "d"], ["a"]),
        node("GlobalAveragePool", ["a"], ["y"]),
        node("Relu", ["a"], ["image"]),
    ]
    tensors = {
        "w0": weights(8, 3, 3, 3), "b0": weights(8, 1)[:, 0],
        "w1": weights(8, 1, 3, 3), "w2": weights(8, 8, 1, 1),
    }  # fmt: skip
    return model(nodes, ["N", 3, "H", 12], ["y", "image"], tensors)


def attention_net() -> onnx.ModelProto:
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w0"], ["q"]),
        node("MatMul", ["x", "w1"], ["k"]),
        node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["q", "t"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "x"], ["m"]),
        node("Add", ["m", "x"], ["y"]),
    ]
    return model(nodes, ["N", "S", 8], ["y"], {"w0": weights(8, 16), "w1": weights(8, 16)})


def model(
    nodes: Nodes, shape: list[Any], outputs: list[str], tensors: dict[str, Array]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def quantized(proto: onnx.ModelProto, how: str) -> onnx.ModelProto:
    """As ONNX Runtime writes it: pairs (qdq), operators (qop), ranges found by a run (dynamic)."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = (str(Path(folder) / name) for name in ("float.onnx", "bytes.onnx"))
        onnx.save(proto, source)
        if how == "dynamic":
            quantize_dynamic(source, made)
        else:
            shape = [
                dim.dim_value or SIZES[0][dim.dim_param]
                for dim in proto.graph.input[0].type.tensor_type.shape.dim
            ]
            quantize_static(
                source, made, Samples(shape),
                quant_format=QuantFormat.QOperator if how == "qop" else QuantFormat.QDQ,
                activation_type=QuantType.QInt8 if how == "signed" else QuantType.QUInt8,
                weight_type=QuantType.QInt8, per_channel=True,
            )  # fmt: skip
        return onnx.load(made)


SLOW = pytest.mark.slow
CASES = [
    pytest.param(image_net, "qdq"),
    pytest.param(attention_net, "qdq"),
    pytest.param(attention_net, "dynamic"),
    pytest.param(image_net, "dynamic", marks=SLOW),
    pytest.param(image_net, "qop", marks=SLOW),
    pytest.param(image_net, "signed", marks=SLOW),
    pytest.param(attention_net, "qop", marks=SLOW),
    pytest.param(attention_net, "signed", marks=SLOW),
]


@pytest.mark.parametrize(("make", "how"), CASES)
def test_one_program_is_what_onnxruntime_computes(make: Any, how: str) -> None:
    """Bytes round at their steps, a tie to another side where sums are of another order: single
    elements may be a step apart."""
    proto = quantized(make(), how)
    dims = [d.dim_param for d in proto.graph.input[0].type.tensor_type.shape.dim]
    ranges = {name: allowed for name, allowed in RANGES.items() if name in dims}
    compiled = autotune.compile(proto, ranges=ranges, threads=1)
    assert isinstance(compiled, SizedModel)
    assert compiled.serves_all, compiled.notes
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(2)
    for sizes in SIZES:
        shape = compiled.inputs["x"].at(sizes).shape
        x = rng.standard_normal(shape).astype(np.float32)
        got, wanted = compiled.run({"x": x}), session.run(None, {"x": x})
        for name, want in zip(got, wanted, strict=True):
            apart = np.abs(got[name] - want) / np.abs(want).max()
            assert apart.max() < 0.02, (name, sizes)
            assert (apart > 1e-4).mean() < 0.1, (name, sizes)
