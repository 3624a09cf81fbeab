"""The registry of zoo models, and the builder of ONNX graphs that they are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autotune.registry import Registry
from autotune.types import Array

OPSET = 17
"""Version of ONNX's operators that the models are written in."""
IR_VERSION = 8
"""Version of ONNX's format."""

ZooModel = Callable[[], onnx.ModelProto]
ZOO: Registry[ZooModel] = Registry("zoo model")


def zoo_model(name: str) -> Callable[[ZooModel], ZooModel]:
    """Register a function that builds a model."""
    return lambda build: ZOO.add(name, build)


class Network:
    """An ONNX graph being written; methods return the name of the value they made.

    Weights are He-scaled and come from a generator seeded by `seed`."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self._inputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def input(self, name: str, dtype: type[np.generic], shape: Sequence[int]) -> str:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def constant(self, array: Array | float) -> str:
        name = f"w{len(self._weights)}"
        value = np.array(array, np.float32) if isinstance(array, float) else array
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights(self, shape: Sequence[int], fan_in: int) -> str:
        """Normal weights that keep the variance through a following rectifier (He et al. 2015)."""
        scale = np.float32(np.sqrt(2 / fan_in))
        return self.constant(self.random.standard_normal(shape, dtype=np.float32) * scale)

    def vector(self, size: int, around: float = 0.0, spread: float = 0.1) -> str:
        """A per-channel parameter, uniform in around ± spread."""
        values = self.random.uniform(around - spread, around + spread, size)
        return self.constant(values.astype(np.float32))

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        output = f"{kind.lower()}{len(self._nodes)}"
        node = helper.make_node(kind, list(inputs), [output], name=output, **attrs)
        self._nodes.append(node)
        return output

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        y = self.op("MatMul", x, self.weights((inputs, outputs), fan_in=2 * inputs))
        return self.op("Add", y, self.vector(outputs))

    def finish(self, outputs: dict[str, tuple[str, Sequence[int]]]) -> onnx.ModelProto:
        """The checked model; `outputs` maps public names to (value, shape), all float32."""
        infos = []
        for name, (value, shape) in outputs.items():
            self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
            infos.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
        graph = helper.make_graph(self._nodes, self.name, self._inputs, infos, self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model
