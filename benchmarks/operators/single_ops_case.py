"""A single operator as a model in a file, and the arrays that cases are drawn with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
OPSET = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`order`: names of the node's inputs where they are not the feeds, then the constants."""

    name: str
    op: str
    feeds: Arrays
    constants: Arrays = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    outputs: int = 1
    opset: int = OPSET

    def write(self, folder: Path) -> Path:
        """The case as a model in a file."""
        import onnx
        from onnx import helper, numpy_helper

        names = self.order or (*self.feeds, *self.constants)
        results = [f"y{n}" for n in range(self.outputs)]
        node = helper.make_node(self.op, names, results, **self.attrs)
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.feeds.items()
        ]
        outputs = [
            helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in results
        ]
        held = [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        graph = helper.make_graph([node], "case", inputs, outputs, held)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9
        )
        model = onnx.shape_inference.infer_shapes(model)
        for value in model.graph.output:  # of a function, whose types are not inferred
            if not value.type.tensor_type.elem_type:
                value.type.tensor_type.elem_type = inputs[0].type.tensor_type.elem_type
        path = folder / (self.name.replace(" ", "_").replace("/", "-") + ".onnx")
        onnx.save(model, path)
        return path


@dataclass(frozen=True, slots=True)
class Draw:
    rng: np.random.Generator

    def floats(self, *shape: int, scale: float = 1.0) -> Any:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def places(self, most: int, *shape: int) -> Any:
        return self.rng.integers(0, most, shape).astype(np.int64)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def size_of(*shape: int) -> str:
    return "x".join(map(str, shape))
