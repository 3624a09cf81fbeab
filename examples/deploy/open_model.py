"""Write a small classifier of images whose number and size are open: python open_model.py FILE."""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def main(path: str) -> None:
    rng = np.random.default_rng(0)
    shapes = {"kernel": (8, 3, 3, 3), "classes": (8, 5)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["images", "kernel"], ["filtered"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["filtered"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("MatMul", ["flat", "classes"], ["scores"]),
    ]
    images = helper.make_tensor_value_info(
        "images", TensorProto.FLOAT, ["batch", 3, "height", "width"]
    )
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 5])
    graph = helper.make_graph(nodes, "open", [images], [scores], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
