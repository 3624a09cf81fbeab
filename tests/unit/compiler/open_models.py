"""Small models of open sizes, for whoever compiles them."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """The same in every test, whatever ran before."""
    numbers = np.random.default_rng(crc32(f"{name} {shape}".encode())).standard_normal(shape)
    scale = np.sqrt(np.prod(shape[1:]))
    return numpy_helper.from_array((numbers / scale).astype(np.float32), name)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any]]],
    output: list[Any],
    weights: list[onnx.TensorProto],
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in inputs.items()]
    out = helper.make_tensor_value_info("y", FLOAT, output)
    graph = helper.make_graph(nodes, "net", infos, [out], weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def convolutions() -> onnx.ModelProto:
    """Any batch, height and width."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c", "w2"], ["d"], pads=[1] * 4),
        node("GlobalAveragePool", ["d"], ["e"]),
        node("Flatten", ["e"], ["f"]),
        node("Gemm", ["f", "w3"], ["y"], transB=1),
    ]
    weights = [weight("w1", 16, 3, 3, 3), weight("w2", 32, 16, 3, 3), weight("w3", 10, 32)]
    return model_of(nodes, {"x": (FLOAT, ["N", 3, "H", "W"])}, ["N", 10], weights)


def detector() -> onnx.ModelProto:
    """Any height and width: SiLU, pools that keep the size, features of two scales joined."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1] * 4, strides=[2, 2]),
        node("Sigmoid", ["a"], ["s"]),
        node("Mul", ["a", "s"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1] * 4, strides=[2, 2]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[5, 5], pads=[2] * 4),
        node("Concat", ["c", "p"], ["q"], axis=1),
        node("Conv", ["q", "w3"], ["d"]),
        node("Resize", ["d", "", "scales"], ["u"], mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Concat", ["u", "b"], ["j"], axis=1),
        node("Conv", ["j", "w4"], ["h"]),
        node("Sigmoid", ["h"], ["y"]),
    ]  # fmt: skip
    weights = [weight("w1", 16, 3, 3, 3), weight("w2", 32, 16, 3, 3), weight("w3", 16, 64, 1, 1)]
    weights.append(weight("w4", 20, 32, 1, 1))
    weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    return model_of(nodes, {"x": (FLOAT, ["N", 3, "H", "W"])}, ["N", 20, "h", "w"], weights)


def windows() -> onnx.ModelProto:
    """Images that keep their size, so that every place of the last window is seen."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[2] * 4, group=4),
        node("Conv", ["c", "w3"], ["y"], pads=[1] * 4),
    ]
    weights = [weight("w1", 16, 3, 3, 3), weight("w2", 32, 4, 5, 5), weight("w3", 8, 32, 3, 3)]
    return model_of(nodes, {"x": (FLOAT, ["N", 3, "H", "W"])}, ["N", 8, "H", "W"], weights)


def attention() -> onnx.ModelProto:
    """One head over a batch of sequences with a mask and learned places, as BERT has it."""
    node = helper.make_node
    nodes = [
        node("Shape", ["ids"], ["shape"]),
        node("Gather", ["shape", "last"], ["length"]),
        node("Range", ["zero", "length", "step"], ["range"]),
        node("Gather", ["places", "range"], ["at"]),
        node("Gather", ["table", "ids"], ["word"]),
        node("Add", ["word", "at"], ["t"]),
        *(node("MatMul", ["t", w], [v]) for w, v in (("wq", "q"), ("wk", "k"), ("wv", "v"))),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Unsqueeze", ["mask", "one"], ["m"]),
        node("Add", ["scores", "m"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Add", ["o", "t"], ["r"]),
        node("LayerNormalization", ["r", "gain", "bias"], ["y"], axis=-1),
    ]
    weights = [weight("table", 50, 32), *(weight(n, 32, 32) for n in ("wq", "wk", "wv"))]
    weights += [weight("gain", 32), weight("bias", 32)]
    weights.append(weight("places", 256, 32))
    numbers = {"one": [1], "zero": 0, "step": 1, "last": 1}
    weights += [numpy_helper.from_array(np.array(n), name) for name, n in numbers.items()]
    inputs = {"ids": (INT64, ["B", "S"]), "mask": (FLOAT, ["B", "S"])}
    return model_of(nodes, inputs, ["B", "S", 32], weights)
