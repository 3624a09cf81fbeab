"""Views and rows of positions along dimensions that a run decides: by one program, or, where an
importer must know a size, by a compile for each. ONNX Runtime is the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import ModelError
from autotune.runtime.sized import SizedModel

node, info = helper.make_node, helper.make_tensor_value_info
NUMBERS = {"zero": [0], "one": [1], "two": [2], "last": [-1], "first": [-(2**62)], "behind": [-4]}
NUMBERS |= {"up": 1, "less": [-2], "five": [5]}
ONE = np.ones(1, np.float32)


def model_of(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    """x float32[B,S] to y."""
    x = info("x", TensorProto.FLOAT, ["B", "S"])
    y = onnx.ValueInfoProto(name="y")
    y.type.tensor_type.elem_type = TensorProto.FLOAT
    weights = [numpy_helper.from_array(np.array(v), n) for n, v in NUMBERS.items()]
    graph = helper.make_graph([*nodes], "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def counted(of: str, axis: int, made: str) -> onnx.NodeProto:
    return node("Shape", [of], [made], start=axis, end=axis + 1)


MODELS = {
    "the last ones": [
        node("Constant", [], ["end"], value=numpy_helper.from_array(np.array([2**62]))),
        node("Slice", ["x", "behind", "end", "one"], ["y"]),
    ],
    "halves": [
        node("Slice", ["x", "zero", "last", "one"], ["a"]),
        node("Concat", ["a", "a"], ["b"], axis=1),
        node("Split", ["b"], ["c", "d"], axis=1),
        node("Sub", ["c", "d"], ["e"]),
        node("Concat", ["e", "c"], ["y"], axis=1),
    ],
    "repeated by sizes": [
        node("ReduceMax", ["x"], ["rows"], axes=[1]),
        counted("x", 0, "b"),
        counted("x", 1, "s"),
        node("Concat", ["b", "s"], ["shape"], axis=0),
        node("Expand", ["rows", "shape"], ["y"]),
    ],
    "above a diagonal": [node("Trilu", ["x"], ["y"])],
    "below another one": [node("Trilu", ["x", "up"], ["y"], upper=0)],
    "turned around": [node("Slice", ["x", "last", "first", "one", "last"], ["y"])],
    "the last ones, turned around": [
        node("Slice", ["x", "last", "behind", "one", "last"], ["y"]),
    ],
    "every other one, going back": [node("Slice", ["x", "two", "first", "one", "less"], ["y"])],
    "from a size on": [
        counted("x", 0, "b"),
        counted("x", 1, "s"),
        node("Add", ["b", "s"], ["end"]),
        *(node("Squeeze", [n], [f"{n}0"]) for n in ("b", "end", "one")),
        node("Range", ["b0", "end0", "one0"], ["places"]),
        node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        node("Add", ["x", "numbers"], ["y"]),
    ],
    "a range of floats": [
        counted("x", 1, "s"),
        node("Squeeze", ["s"], ["s0"]),
        node("Cast", ["s0"], ["end"], to=TensorProto.FLOAT),
        *(node("Squeeze", [n], [f"{n}0"]) for n in ("zero", "one")),
        *(node("Cast", [f"{n}0"], [f"{n}1"], to=TensorProto.FLOAT) for n in ("zero", "one")),
        node("Range", ["zero1", "end", "one1"], ["places"]),
        node("Mul", ["x", "places"], ["y"]),
    ],
    "over the root of a size": [
        counted("x", 1, "s"),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        node("Sqrt", ["f"], ["root"]),
        node("Div", ["x", "root"], ["y"]),
    ],
    "a size in a corner": [
        counted("x", 0, "b"),
        counted("x", 1, "s"),
        node("Concat", ["b", "s", "two"], ["sizes"], axis=0),
        node("Cast", ["sizes"], ["y"], to=TensorProto.FLOAT),
    ],
    "picked by flat places": [
        counted("x", 0, "b"),
        counted("x", 1, "s"),
        *(node("Squeeze", [n], [f"{n}0"]) for n in ("b", "s", "zero", "one")),
        node("Range", ["zero0", "b0", "one0"], ["rows"]),
        node("Range", ["zero0", "s0", "one0"], ["columns"]),
        node("Unsqueeze", ["rows", "one"], ["rows1"]),
        node("Mul", ["rows1", "s"], ["begins"]),
        node("Add", ["begins", "columns"], ["places"]),
        node("Reshape", ["x", "last"], ["flat"]),
        node("Gather", ["flat", "places"], ["y"], axis=0),
    ],
    "full of a number": [
        node("Shape", ["x"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["ones"], value=numpy_helper.from_array(ONE)),
        node("Sub", ["x", "ones"], ["y"]),
    ],
}


def equal(model: SizedModel, proto: onnx.ModelProto, *sizes: tuple[int, int]) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    for batch, length in sizes:
        x = np.random.default_rng(length).standard_normal((batch, length)).astype(np.float32)
        np.testing.assert_allclose(model.run({"x": x})["y"], session.run(None, {"x": x})[0])


@pytest.mark.parametrize("name", MODELS)
def test_one_program_serves_any_sizes(name: str) -> None:
    proto = model_of(*MODELS[name])
    with autotune.compile(proto, ranges={"B": (1, 5), "S": (4, 40)}) as model:
        assert isinstance(model, SizedModel)
        assert "one program" in model.notes[0]
        equal(model, proto, (1, 4), (5, 40), (3, 11), (2, 32))


def test_where_sizes_decide_the_others_are_compiled_when_they_are_met() -> None:
    """Which element is the first of them, going back, is a matter of sizes."""
    proto = model_of(node("Slice", ["x", "five", "first", "one", "last"], ["y"]))
    with autotune.compile(proto, ranges={"B": (1, 5), "S": (4, 40)}) as model:
        assert isinstance(model, SizedModel)
        assert "serves B: 1 to 5, S: 6 to 40; others are compiled when they" in model.notes[0]
        equal(model, proto, (1, 4), (5, 40))


def test_whether_a_start_is_before_the_first_element_may_be_a_matter_of_sizes() -> None:
    end: Any = numpy_helper.from_array(np.array([2**62]))
    proto = model_of(
        node("Constant", [], ["end"], value=end),
        node("Slice", ["x", "behind", "end", "one"], ["y"]),
    )
    with autotune.compile(proto, ranges={"B": (1, 5), "S": (2, 40)}) as model:
        assert isinstance(model, SizedModel)
        equal(model, proto, (1, 2), (3, 3), (2, 9))


def test_what_is_wrong_at_any_size_is_said_at_once() -> None:
    proto = model_of(node("Slice", ["x", "zero", "one", "two"], ["y"]))
    with pytest.raises(ModelError, match="axis 2 is outside"):
        autotune.compile(proto, ranges={"B": (1, 5), "S": (2, 40)})
