"""Sizes that one program is made for where nothing, or little, is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import FeedError, ModelError, UndecidedError
from autotune.runtime.sized import SizedModel
from autotune.sizes import symbol
from autotune.tasks.at_sizes import deciding_lows
from autotune.types import Array
from tests.unit.compiler.open_models import convolutions


def single_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:
    ins = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", ins, outs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_without_ranges_one_program_serves_what_it_can() -> None:
    """Sizes that it does not serve are compiled when they are met: images that nothing is left of
    behind a stride, and very long ones."""
    proto = convolutions()
    with autotune.compile(proto, ranges={"H": (2, 1 << 20)}) as model:
        assert isinstance(model, SizedModel)
        assert "one program serves N: 1 to 65536, H: 2 to 1048576, W: 2 to 65536" in model.notes[0]
        peer = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        for shape in ((1, 3, 9, 14), (1, 3, 2, 65537)):
            x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
            want = peer.run(None, {"x": x})[0]
            np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-3, atol=1e-4)
        assert "compiled for all sizes" in repr(model)


def test_rows_that_others_are_put_behind_may_be_none() -> None:
    """As keys and values at the beginning; of other symbols, none is refused."""
    new, past = ["B", "S", 4], ["B", "P", 4]
    proto = single_model(
        [
            helper.make_node("Transpose", ["past"], ["turned"], perm=[1, 0, 2]),
            helper.make_node("Transpose", ["new"], ["added"], perm=[1, 0, 2]),
            helper.make_node("Concat", ["turned", "added"], ["rows"], axis=0),
            helper.make_node("ReduceMax", ["rows"], ["y"], keepdims=0),
        ],
        {"past": past, "new": new},
        ["rows", "y"],
    )
    rng = np.random.default_rng(6)
    with autotune.compile(proto) as model:
        assert isinstance(model, SizedModel)
        assert model.ranges["P"].least == 0 < model.ranges["S"].least
        for rows in (0, 3, 0, 70):
            feeds = {
                "past": rng.standard_normal((2, rows, 4)).astype(np.float32),
                "new": rng.standard_normal((2, 5, 4)).astype(np.float32),
            }
            got = model.run(feeds)
            want = np.concatenate([feeds["past"], feeds["new"]], 1).swapaxes(0, 1)
            np.testing.assert_array_equal(got["rows"], want)
            assert got["y"] == want.max()
        with pytest.raises(FeedError, match=r"\(S\) is 0, the range is 1 or more"):
            model.run({"past": feeds["past"], "new": feeds["new"][:, :0]})


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "ReduceL2", "ReduceMax"])
def test_rows_of_any_length_are_vectors(op: str) -> None:
    axis = {"axis": -1} if "oftmax" in op else {"axes": [2], "keepdims": 1}
    nodes = [helper.make_node(op, ["x"], ["y"], **axis)]
    proto = single_model(nodes, {"x": ["B", "S", "T"]}, ["y"])
    rng = np.random.default_rng(7)
    with autotune.compile(proto, ranges=dict.fromkeys("BST", (1, 600))) as model:
        assert len(model.notes) == 1, "no part of it runs in plain loops"
        peer = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        for shape in ((1, 1, 1), (2, 3, 5), (1, 7, 16), (3, 9, 131), (1, 33, 600), (2, 1, 64)):
            x = rng.standard_normal(shape).astype(np.float32) * 4
            want = peer.run(None, {"x": x})[0]
            np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-5, atol=1e-6)


def test_sequences_end_where_a_table_of_positions_does() -> None:
    """Longer ones are said to be wrong as at any fixed size."""
    rng = np.random.default_rng(3)
    table = rng.standard_normal((48, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["end"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "end", "zero"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["y"]),
    ]
    weights = {"table": table, "zero": np.zeros(1, np.int64)}
    proto = single_model(nodes, {"x": ["B", "S", 4]}, ["y"], weights)
    with autotune.compile(proto) as model:
        assert isinstance(model, SizedModel)
        assert "serves B: 1 to 65536, S: 1 to 48; others" in model.notes[0]
        for shape in ((3, 1, 4), (1, 48, 4), (2, 17, 4)):
            x = rng.standard_normal(shape).astype(np.float32)
            np.testing.assert_array_equal(model.run({"x": x})["y"], x + table[: shape[1]])
        with pytest.raises(ModelError, match="do not broadcast"):
            model.run({"x": np.zeros((1, 49, 4), np.float32)})


def test_images_that_are_halved_and_doubled_go_up_in_steps() -> None:
    """Other sizes do not fit; the batch, and the height, which nobody halves, may be any."""
    proto = single_model(
        [
            helper.make_node(
                "MaxPool", ["x"], ["half"], kernel_shape=[1, 2], strides=[1, 2], ceil_mode=1
            ),
            helper.make_node("Resize", ["half", "", "scales"], ["twice"], mode="nearest"),
            helper.make_node("Add", ["x", "twice"], ["y"]),
        ],
        {"x": ["N", 2, "H", "W"]},
        ["y"],
        {"scales": np.array([1, 1, 1, 2], np.float32)},
    )  # fmt: skip
    with autotune.compile(proto) as model:
        assert isinstance(model, SizedModel)
        said = "one program serves N: 1 to 65536, H: 1 to 65536, W: 2 to 65536 in steps of 2"
        assert said in model.notes[0]
        peer = onnxruntime.InferenceSession(proto.SerializeToString())
        for shape in ((1, 2, 1, 2), (3, 2, 7, 10)):
            x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
            np.testing.assert_allclose(model.run({"x": x})["y"], peer.run(None, {"x": x})[0])


def test_a_question_about_steps_is_answered_in_sizes() -> None:
    """A row that a window of 40 fits into has 5 steps of 8."""
    window = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[40], strides=[8])
    proto = single_model([window], {"x": [1, 2, "T"]}, ["y"])
    with autotune.compile(proto, ranges={"T": (8, 800, 8)}) as model:
        assert isinstance(model, SizedModel)
        (note,) = model.notes
        least = int(note.partition("serves T: ")[2].split()[0])
        assert 40 <= least <= 64
        assert least % 8 == 0
        peer = onnxruntime.InferenceSession(proto.SerializeToString())
        for extent in (40, 800):
            x = np.random.default_rng(5).standard_normal((1, 2, extent)).astype(np.float32)
            np.testing.assert_array_equal(model.run({"x": x})["y"], peer.run(None, {"x": x})[0])


def test_of_a_question_few_symbols_are_limited() -> None:
    """B images of H rows behind a stride of four: H is to be at least 4, B need not be."""
    b, h = symbol("B"), symbol("H")
    with pytest.raises(UndecidedError) as caught:
        assert b * (h // 4) > 0
    assert deciding_lows(caught.value) == {"H": 4}
    with pytest.raises(UndecidedError) as caught:
        assert symbol("S", 0, 9) > 0
    assert deciding_lows(caught.value) == {"S": 1}
    with pytest.raises(UndecidedError) as caught:
        assert symbol("S", 1, 9) >= 30 - symbol("T", 1, 9) * 4
    assert deciding_lows(caught.value) == {"T": 8}


def test_rows_that_are_too_long_to_be_sorted_are_left_out() -> None:
    """A beam's candidates are several times the symbol: one program up to where their sorting
    ends, which is not begun for lengths that nobody asks for."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["turned", "all"], ["rows"]),
        helper.make_node("TopK", ["rows", "k"], ["y", "places"], axis=-1),
    ]
    given = {"all": np.array([1, -1]), "k": np.array([2])}
    proto = single_model(nodes, {"x": ["V", 512, 4]}, ["y"], given)
    with autotune.compile(proto) as model:
        assert isinstance(model, SizedModel)
        assert "one program serves V: 1 to 32; others" in model.notes[0]
        for size in (1, 5, 33):
            x = np.random.default_rng(size).standard_normal((size, 512, 4)).astype(np.float32)
            want = np.sort(x.reshape(-1))[:-3:-1]
            np.testing.assert_array_equal(model.run({"x": x})["y"], want[None])
