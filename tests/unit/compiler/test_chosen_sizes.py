"""Sizes that a model limits, compares, or counts by: one program where they have one answer."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.runtime.sized import SizedModel

LENGTH = [
    helper.make_node("Shape", ["x"], ["shape"]),
    helper.make_node("Gather", ["shape", "last"], ["length"]),
]
CONSTANTS = {"last": [1], "one": [1], "two": [2], "few": [6], "rows": [3]}


def branch(op: str) -> onnx.GraphProto:
    info = helper.make_tensor_value_info(op, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [info])


MODELS = {
    "at least one": [
        helper.make_node("Div", ["length", "few"], ["part"]),
        helper.make_node("Max", ["part", "one"], ["some"]),
        helper.make_node("Concat", ["rows", "some"], ["wide"], axis=0),
        helper.make_node("ReduceMax", ["x"], ["top"]),
        helper.make_node("Expand", ["top", "wide"], ["y"]),
    ],
    "at most a few": [
        helper.make_node("Min", ["length", "few"], ["end"]),
        helper.make_node("Slice", ["x", "one", "end", "one"], ["y"]),
    ],
    "a branch": [
        helper.make_node("Greater", ["length", "few"], ["long"]),
        helper.make_node(
            "If", ["long"], ["y"], then_branch=branch("Exp"), else_branch=branch("Relu")
        ),
    ],
    "the first half": [
        helper.make_node("Add", ["length", "one"], ["more"]),
        helper.make_node("Div", ["more", "two"], ["half"]),
        helper.make_node("TopK", ["x", "half"], ["y", "places"], axis=1),
    ],
}


@pytest.mark.parametrize("name", MODELS)
def test_one_program_serves_from_where_there_is_one_answer(name: str) -> None:
    """Shorter ones are compiled when they are met."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [*LENGTH, *MODELS[name]],
        "chosen",
        [info("x", TensorProto.FLOAT, ["N", "T"])],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), n) for n, v in CONSTANTS.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    model = autotune.compile(proto, ranges={"N": (1, 4), "T": (2, 40)})
    assert isinstance(model, SizedModel)
    assert model.serves_all, model.notes
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for sizes in ((2, 9), (1, 2), (4, 40), (3, 17), (1, 8), (2, 3)):
        x = np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-5, err_msg=str(sizes))
