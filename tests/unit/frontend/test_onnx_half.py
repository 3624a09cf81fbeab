"""Models of 16-bit floats: they are computed in float32, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.frontend.onnx.importer import import_model
from autotune.types import Array
from tests.unit.frontend.onnx_models import check, floats, nodes_model


def network(dtype: type = np.float16) -> tuple[onnx.ModelProto, dict[str, Array]]:
    feeds = {"x": floats(1, 3, 6, 6).astype(dtype)}
    weights = {"w": floats(4, 3, 3, 3, seed=1), "b": floats(4, seed=2)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Softmax", ["c"], ["s"], axis=1),
        helper.make_node("Cast", ["s"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Sqrt", ["wide"], ["root"]),
        helper.make_node("Cast", ["root"], ["y"], to=TensorProto.FLOAT16),
    ]
    tensors = [numpy_helper.from_array(a.astype(dtype), n) for n, a in weights.items()]
    return nodes_model(nodes, feeds, tensors, ["y"]), feeds


def test_nothing_is_rounded_but_what_the_file_holds() -> None:
    model, feeds = network()
    graph = check(model, feeds, tolerance=2e-3)
    assert {t.dtype for t in graph.types.values()} == {"float32"}


def test_compiled_model_takes_both_and_gives_what_is_declared(tmp_path: Path) -> None:
    model, feeds = network()
    onnx.save(model, tmp_path / "half.onnx")
    compiled = autotune.compile(tmp_path / "half.onnx")
    (given,) = compiled.run(feeds).values()
    (wide,) = compiled.run({"x": feeds["x"].astype(np.float32)}).values()
    assert given.dtype == np.float16
    np.testing.assert_array_equal(given, wide)


@pytest.mark.parametrize("kind", ["constant", "initializer"])
def test_bfloat16_weights(kind: str) -> None:
    weights = helper.make_tensor("w", TensorProto.BFLOAT16, [2], [1.5, -2.0])
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    if kind == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=weights))
    model = nodes_model(nodes, {"x": floats(2)}, [] if kind == "constant" else [weights], ["y"])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    (array,) = import_model(model, {}).constants.values()
    assert array.dtype == np.float32
    assert array.tolist() == [1.5, -2.0]
