"""Random networks of open sizes, as ONNX models: images and sequences.

Every value of an image network is [N, channels, height, width] at some scale of the input's; of a
sequence network [B, S, width]. Operators are drawn with their attributes; the sizes are drawn by
whoever runs them.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Network:
    """Nodes and weights so far."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attrs: object) -> str:
        made = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [made], **attrs))
        return made

    def weight(self, *shape: int) -> str:
        scale = np.sqrt(max(1, np.prod(shape[1:])))
        array = (self.rng.standard_normal(shape) / scale).astype(np.float32)
        return self.constant(array)

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def one_of(self, *choices: str) -> str:
        return choices[int(self.rng.integers(len(choices)))]

    def model(self, dims: list[str | int], results: list[str]) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
        outputs = [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results]
        graph = helper.make_graph(self.nodes, "net", [x], outputs, self.weights)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


def image_network(rng: np.random.Generator, depth: int) -> onnx.ModelProto:
    """Input x [N, 3, H, W]. The last output is a value per image and channel."""
    net, channels, value = _Network(rng), 3, "x"
    same: dict[tuple[int, int], list[str]] = {}
    """Values by channels and halvings."""
    halved = 0
    for _ in range(depth):
        op = net.one_of("conv", "conv", "conv", "point", "depthwise", "pool", "join", "halve")
        if op == "conv":
            made = int(rng.choice([8, 16, 20, 32]))
            value = net.node("Conv", value, net.weight(made, channels, 3, 3), pads=[1] * 4)
            channels = made
        elif op == "point":
            made = int(rng.choice([8, 16, 24]))
            bias = net.weight(made)
            value = net.node("Conv", value, net.weight(made, channels, 1, 1), bias)
            channels = made
        elif op == "depthwise":
            weight = net.weight(channels, 1, 3, 3)
            value = net.node("Conv", value, weight, pads=[1] * 4, group=channels)
        elif op == "pool":
            kind = net.one_of("MaxPool", "AveragePool")
            value = net.node(kind, value, kernel_shape=[3, 3], pads=[1] * 4)
        elif op == "halve" and halved < 2:
            weight = net.weight(channels, channels, 3, 3)
            value, halved = (
                net.node("Conv", value, weight, pads=[1] * 4, strides=[2, 2]),
                halved + 1,
            )
        elif op == "join" and (others := same.get((channels, halved))):
            other = others[int(rng.integers(len(others)))]
            value = net.node(net.one_of("Add", "Mul", "Sub"), value, other)
        if rng.random() < 0.5:
            value = net.node(net.one_of("Relu", "Sigmoid", "Tanh", "HardSwish"), value)
        if value != "x":
            same.setdefault((channels, halved), []).append(value)
    if value == "x":
        value = net.node("Relu", value)
    if rng.random() < 0.3:
        value = net.node("Softmax", value, axis=1)
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    wide = net.node(
        "Resize", value, "", scales, mode=net.one_of("nearest", "linear"),
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    return net.model(["N", 3, "H", "W"], [wide, net.node("GlobalAveragePool", value)])


def sequence_network(rng: np.random.Generator, depth: int) -> onnx.ModelProto:
    """Input x [B, S, 16]."""
    net, width, value = _Network(rng), 16, "x"
    last: dict[int, str] = {}
    """Values by width."""
    for _ in range(depth):
        op = net.one_of("dense", "dense", "attend", "norm", "softmax", "sum", "add")
        if op == "dense":
            made = int(rng.choice([16, 24, 48]))
            value, width = net.node("MatMul", value, net.weight(width, made)), made
        elif op == "attend":
            q, k = (net.node("MatMul", value, net.weight(width, 16)) for _ in range(2))
            scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))
            value = net.node("MatMul", net.node("Softmax", scores, axis=-1), value)
        elif op == "norm":
            gain, bias = net.weight(width), net.weight(width)
            value = net.node("LayerNormalization", value, gain, bias, axis=-1)
        elif op == "softmax":
            value = net.node("Softmax", value, axis=int(rng.choice([1, 2])))
        elif op == "sum":
            mean = net.node("ReduceMean", value, axes=[1], keepdims=1)
            value = net.node("Sub", value, mean)
        elif op == "add" and width in last:
            value = net.node("Add", value, last[width])
        if rng.random() < 0.3:
            value = net.node(net.one_of("Relu", "Sigmoid", "Tanh"), value)
        if value != "x":
            last[width] = value
    if value == "x":
        value = net.node("Relu", value)
    return net.model(["B", "S", 16], [value])
