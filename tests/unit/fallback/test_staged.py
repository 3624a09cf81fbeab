"""Models in stages: values that decide shapes, nodes that others run, sequences, empty tensors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.errors import FallbackWarning, UnsupportedOpError
from autotune.fallback.foreign import evaluator
from autotune.fallback.model import StagedModel
from autotune.fallback.stages import Cut, cut

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def built(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Sequence[str],
) -> bytes:
    infos = [helper.make_tensor_value_info(n, *kind) for n, kind in inputs.items()]
    made = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(list(nodes), "staged", infos, made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def compiled(model: bytes, **options: Any) -> StagedModel:
    made = autotune.compile(model, machine="nominal", **options)
    assert isinstance(made, StagedModel)
    return made


RESHAPED = built(
    [helper.make_node("Reshape", ["x", "to"], ["t"]), helper.make_node("Relu", ["t"], ["y"])],
    {"x": (TensorProto.FLOAT, (3, 4)), "to": (TensorProto.INT64, (2,))},
    ["y"],
)


@pytest.mark.parametrize("fallback", [True, False])
def test_a_shape_is_given_with_the_run(fallback: bool) -> None:
    with compiled(RESHAPED, fallback=fallback) as model:
        for shape in ((4, 3), (-1, 2), (4, 3)):
            found = model.run({"x": X - 5, "to": np.array(shape)})["y"]
            np.testing.assert_array_equal(found, np.maximum(X - 5, 0).reshape(shape))
        assert (model.own, model.deciding, model.notes) == (True, {"to"}, ())


def test_a_computed_length_cuts_the_model() -> None:
    """How many of x are taken is computed from x: the sum is a stage before."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=1),
        helper.make_node("Reshape", ["most", "one"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["count"], to=TensorProto.INT64),
        helper.make_node("TopK", ["x", "count"], ["y", "where"]),
    ]
    constant = helper.make_node("Constant", [], ["one"], value_ints=[1])
    model = built([constant, *nodes], {"x": (TensorProto.FLOAT, (9000,))}, ["y"])
    x = np.zeros(9000, np.float32)
    x[7], x[9] = 3, 2
    with compiled(model, fallback=False) as staged:
        np.testing.assert_array_equal(staged.run({"x": x})["y"], np.float32([3, 2, 0]))
        x[11] = 4
        np.testing.assert_array_equal(staged.run({"x": x})["y"], np.float32([4, 3, 2, 0]))


BINARIZER = built(
    [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Binarizer", ["square"], ["some"], domain="ai.onnx.ml", threshold=2.0),
        helper.make_node("Exp", ["some"], ["y"]),
    ],
    {"x": (TensorProto.FLOAT, ("n",))},
    ["y"],
)


def test_what_has_no_kernel_runs_elsewhere_and_is_said() -> None:
    with pytest.warns(FallbackWarning, match="1 node of 'Binarizer' runs in onnxruntime"):
        model = compiled(BINARIZER)
    with model:
        for x in ([1, -1, 2], [3, 3, -3, 2]):
            found = model.run({"x": np.float32(x)})["y"]
            np.testing.assert_allclose(found, np.exp(np.float32(np.square(x) > 2)), rtol=1e-5)
        assert model.notes == ("1 node of 'Binarizer' runs in onnxruntime",)


def test_without_fallback_it_is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="operator Binarizer"):
        autotune.compile(BINARIZER, fallback=False)


def test_foreign_nodes_that_can_wait_share_a_stage() -> None:
    nodes = [
        helper.make_node("Unique", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("Unique", ["b"], ["c"]), helper.make_node("Add", ["a", "c"], ["y"]),
    ]  # fmt: skip
    model = onnx.load_from_string(built(nodes, {"x": (TensorProto.FLOAT, ("n",))}, ["y"]))
    stages = cut(model.graph, Cut(foreign=frozenset({"a", "c"})))
    assert [(s.kind, len(s.nodes)) for s in stages] == [("own", 1), ("foreign", 2), ("own", 1)]
    assert [s.outputs for s in stages] == [("b",), ("a", "c"), ("y",)]


def test_sequences_go_in_and_out() -> None:
    node = helper.make_node("SequenceInsert", ["s", "x"], ["t"])
    model = onnx.load_from_string(built([node], {"x": (TensorProto.FLOAT, (3,))}, ["t"]))
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    model.graph.input.insert(
        0, helper.make_value_info("s", helper.make_sequence_type_proto(inner))
    )
    with compiled(model.SerializeToString()) as staged:
        for count in (2, 0):
            given = [np.full(2, i, np.float32) for i in range(count)]
            found = staged.run({"s": given, "x": np.ones(3, np.float32)})["t"]
            assert [item.tolist() for item in found] == [[i, i] for i in range(count)] + [[1] * 3]


def test_warnings_are_given_once() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = compiled(BINARIZER)
        for _ in range(2):
            model.run({"x": np.float32([1, 2])})
    assert len([w for w in told if w.category is FallbackWarning]) == 1
    with pytest.raises(autotune.InputError, match="in stages"):
        model.save("x")
    model.close()
    with pytest.raises(autotune.InputError, match="closed"):
        model.run({"x": np.float32([1, 2])})


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4"])
def test_short_types_come_from_others_as_what_they_are(kind: str) -> None:
    """And not as their bits."""
    number = getattr(TensorProto, kind)
    cast = helper.make_node("Cast", ["x"], ["y"], to=number)
    info = helper.make_tensor_value_info("y", number, (4,))
    graph = helper.make_graph(
        [cast], "short", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))], [info]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    values = np.array([0.4789, 5.0, 2.0, 0.25], np.float32)
    _, call = evaluator(model, {"x": values})
    (found,) = call({"x": values})
    expected = values.astype(helper.tensor_dtype_to_np_dtype(number))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.filterwarnings("ignore::autotune.errors.FallbackWarning")
def test_what_a_seed_decides_is_the_standard_s_and_the_same_in_every_run() -> None:
    given = {"share": np.array(0.5, np.float32), "on": np.array(True)}
    constants = [
        helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value))
        for name, value in given.items()
    ]
    drop = helper.make_node("Dropout", ["x", "share", "on"], ["y"], seed=3)
    inputs = {"x": (TensorProto.FLOAT, (3, 4))}
    kept = np.random.RandomState(3).uniform(0, 1, X.shape) >= 0.5
    with compiled(built([*constants, drop], inputs, ["y"])) as model:
        for _ in range(2):
            np.testing.assert_array_equal(model.run({"x": X})["y"], X * kept * 2)
        assert model.notes == ("1 node of 'Dropout' runs in the reference evaluator of onnx",)
