"""Operators that give as much as their values say run in code of ours, and give what ONNX Runtime
gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.fallback.model import StagedModel
from autotune.fallback.parts import OwnPart
from autotune.runtime.counting import Counting, Suppression
from autotune.target import host_target
from autotune.types import Array

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(5)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Array],
    outputs: list[str],
    tensors: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in (tensors or {}).items()]
    graph = helper.make_graph(nodes, "counted", infos, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(model: onnx.ModelProto, *runs: dict[str, Array]) -> StagedModel:
    """Equal to ONNX Runtime, and nothing of it is run elsewhere."""
    ours = autotune.compile(model.SerializeToString(), machine="nominal", fallback=False)
    theirs = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for feeds in runs:
        for got, want in zip(ours.run(feeds).values(), theirs.run(None, feeds), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert isinstance(ours, StagedModel)
    assert ours.own
    assert not ours.notes
    return ours


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(97,), (8, 33), (3, 4, 70)])
def test_what_is_not_zero_is_found(dtype: str, shape: tuple[int, ...]) -> None:
    counting = Counting(host_target())
    for share in (0.0, 0.02, 0.5, 1.0):
        x = (RNG.random(shape) < share).astype(dtype)
        np.testing.assert_array_equal(counting.non_zero(x), np.stack(np.nonzero(x)))


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 64, 1000])
def test_places_are_found_at_every_length(count: int) -> None:
    x = RNG.standard_normal(count).astype(np.float32) * (RNG.random(count) < 0.3)
    np.testing.assert_array_equal(Counting(host_target()).places(x), np.flatnonzero(x))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis: int | None) -> None:
    options = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Compress", ["a", "c"], ["k"], **options),
        helper.make_node("Mul", ["k", "k"], ["y"]),
    ]
    x = RNG.standard_normal((6, 7)).astype(np.float32)
    length = x.size if axis is None else x.shape[axis]
    runs = [{"x": x, "c": RNG.random(length) < share} for share in (0.4, 0.8, 1.0)]
    check(model_of(nodes, runs[0], ["y"]), *runs)


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique(axis: int | None, ordered: int) -> None:
    options = {"sorted": ordered} | ({} if axis is None else {"axis": axis})
    outputs = ["y", "first", "which", "counts"]
    nodes = [helper.make_node("Unique", ["x"], outputs, **options)]
    x = RNG.integers(0, 3, (9, 2)).astype(np.float32)
    check(model_of(nodes, {"x": x}, outputs), {"x": x}, {"x": x[::-1].copy()})


def boxes_of(batch: int, count: int) -> Array:
    first = RNG.random((batch, count, 2)) * 50
    return np.concatenate([first, first + RNG.random((batch, count, 2)) * 30], 2).astype("f4")


@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize(("most", "overlap", "score"), [(5, 0.5, 0.2), (100, 0.1, 0.9), (0, 0, 0)])
def test_suppression_is_that_of_onnx_runtime(
    most: int, overlap: float, score: float, centered: int
) -> None:
    """Of equal scores too, and of boxes that are given from any corner."""
    names = ["boxes", "scores", "most", "overlap", "score"]
    nodes = [helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=centered)]
    options = {"most": np.int64([most]), "overlap": np.float32([overlap]),
               "score": np.float32([score])}  # fmt: skip
    boxes, scores = boxes_of(2, 90), RNG.integers(0, 20, (2, 3, 90)).astype("f4") / 20
    turned = boxes[..., [2, 3, 0, 1]] if not centered else boxes
    runs = [{"boxes": b, "scores": scores} for b in (boxes, turned)]
    check(model_of(nodes, runs[0], ["y"], options), *runs)


@pytest.mark.parametrize("least", [None, 0.9])
@pytest.mark.parametrize("spread", [1.0, 40.0])
def test_the_best_boxes_are_looked_at_first_and_the_others_where_need_be(
    spread: float, least: float | None
) -> None:
    """Boxes that lie apart: the first few of many are enough. On one place: they are not."""
    r = np.random.default_rng(7)
    corners = r.random((2, 90, 2), np.float32) * np.float32(spread)
    boxes = np.concatenate([corners, corners + 1], 2)
    scores = np.round(r.random((2, 3, 90), np.float32), 2)
    scores[0, 0] = 0.5
    scores[1, 2, 5:] = 0.0
    most = 7
    how = Suppression(most=most, overlap=0.3, score=least)
    found = Counting(host_target()).suppressed(boxes, scores, how)
    numbers = {"most": np.array([most]), "overlap": np.array([0.3], np.float32)}
    numbers |= {} if least is None else {"least": np.array([least], np.float32)}
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("b", "s")]
    node = helper.make_node("NonMaxSuppression", ["b", "s", *numbers], ["y"])
    result = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    tensors = [numpy_helper.from_array(a, n) for n, a in numbers.items()]
    made = helper.make_model(
        helper.make_graph([node], "nms", kinds, [result], tensors),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(
        None, {"b": boxes, "s": scores}
    )
    np.testing.assert_array_equal(found, wanted)


def test_boxes_that_do_not_fit_are_said() -> None:
    with pytest.raises(autotune.InputError, match="do not fit scores"):
        Counting(host_target()).suppressed(
            boxes_of(1, 4), np.zeros((1, 2, 5), np.float32), Suppression(most=3)
        )


def detector() -> tuple[onnx.ModelProto, Array]:
    """A small one-stage detector: an image, boxes on a grid, suppression, and what is left."""
    x = RNG.standard_normal((1, 3, 64, 64)).astype(np.float32)

    def weights(*shape: int) -> Array:
        return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    tensors = {
        "w1": weights(16, 3, 3, 3), "w2": weights(24, 16, 3, 3), "wb": weights(4, 24, 1, 1),
        "wc": weights(5, 24, 1, 1) * 4, "most": np.int64([20]), "overlap": np.float32([0.4]),
        "score": np.float32([0.55]), "rows": np.int64([1, 4, 256]), 
        "classes": np.int64([1, 5, 256]),
        "two": np.int64([2]), "only": np.int64([0]), "big": np.int64([9]), "one": np.int64([1]),
        "grid": RNG.random((1, 256, 4)).astype(np.float32) * 40, "axis": np.int64([1]),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c2"], ["r2"]),
        node("Conv", ["r2", "wb"], ["b4"]),
        node("Reshape", ["b4", "rows"], ["b3"]),
        node("Transpose", ["b3"], ["bt"], perm=[0, 2, 1]),
        node("Add", ["bt", "grid"], ["boxes"]),
        node("Conv", ["r2", "wc"], ["s4"]),
        node("Reshape", ["s4", "classes"], ["s3"]),
        node("Sigmoid", ["s3"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "score"], ["kept"]),
        node("Slice", ["kept", "two", "big", "axis"], ["at2"]),
        node("Squeeze", ["at2", "axis"], ["at"]),
        node("Gather", ["boxes", "at"], ["picked"], axis=1),
        node("Squeeze", ["picked", "only"], ["found"]),
        node("Slice", ["kept", "one", "two", "axis"], ["class2"]),
        node("Squeeze", ["class2", "axis"], ["class"]),
        node("Transpose", ["scores"], ["by_box"], perm=[0, 2, 1]),
        node("Concat", ["only.of", "at2", "class2"], ["where"], axis=1),
        node("GatherND", ["by_box", "where"], ["score_of"]),
    ]
    nodes.insert(19, node("Slice", ["kept", "only", "one", "axis"], ["only.of"]))
    return model_of(nodes, {"x": x}, ["found", "class", "score_of"], tensors), x


def test_a_detector_is_wholly_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes behind the suppression is not compiled for every number of boxes."""
    model, x = detector()
    fixed, imported = list[object](), OwnPart._imported
    monkeypatch.setattr(OwnPart, "_imported", lambda *a: fixed.append(a) or imported(*a))
    runs = [{"x": (x * scale).astype(np.float32)} for scale in (1, 0.5, 1.5, 0.8, 1.2, 2, 0.0)]
    check(model, *runs).close()
    assert len(fixed) <= 5  # the parts once, and no boxes at all, beside cuts anew
