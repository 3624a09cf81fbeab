"""Resizes between extents that only a run knows, as onnx's reference evaluator does them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.runtime.sized import SizedModel
from autotune.types import Array

SIZES = ((3, 7), (9, 4), (5, 5), (2, 11), (12, 5))
"""Before and after."""


def resize(mode: str, coordinate: str, nearest: str, lead: Sequence[int]) -> onnx.ModelProto:
    """x resized along its last axis to the length of another input."""
    node = helper.make_node
    nodes = [
        node("Shape", ["like"], ["length"]),
        node("Concat", ["lead", "length"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode, nearest_mode=nearest,
             coordinate_transformation_mode=coordinate),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [*lead, "L"]),
            helper.make_tensor_value_info("like", TensorProto.FLOAT, ["M"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(lead, np.int64), "lead")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def both(model: onnx.ModelProto, lead: Sequence[int]) -> list[tuple[Array, Array]]:
    """What one program gives at several sizes, and what the evaluator does."""
    made = autotune.compile(model, ranges={"L": (1, 16), "M": (1, 16)}, threads=1)
    assert isinstance(made, SizedModel)
    assert made.serves_all, made.notes
    judge, out = ReferenceEvaluator(model), []
    for before, after in SIZES:
        x = np.random.default_rng(before).standard_normal((*lead, before)).astype(np.float32)
        feeds = {"x": x, "like": np.zeros(after, np.float32)}
        out.append((made.run(feeds)["y"], np.asarray(judge.run(None, feeds)[0])))
    return out


COORDINATES = ("half_pixel", "align_corners", "asymmetric")


@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_nearest(nearest: str) -> None:
    for coordinate in COORDINATES:
        for got, want in both(resize("nearest", coordinate, nearest, (2, 3)), (2, 3)):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("mode", "coordinate"),
    [
        ("linear", "pytorch_half_pixel"),
        ("linear", "half_pixel"),
        ("cubic", "align_corners"),
        pytest.param("linear", "align_corners", marks=pytest.mark.slow),
        pytest.param("linear", "asymmetric", marks=pytest.mark.slow),
        pytest.param("cubic", "half_pixel", marks=pytest.mark.slow),
        pytest.param("cubic", "asymmetric", marks=pytest.mark.slow),
    ],
)
def test_mixed(mode: str, coordinate: str) -> None:
    lead = (1, 2, 3)
    for got, want in both(resize(mode, coordinate, "floor", lead), lead):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_open_images_grow_with_their_corners_aligned(mode: str) -> None:
    """The factor is known, how far apart the places of elements lie is not."""
    nodes = [
        helper.make_node(
            "Resize", ["x", "", "scales"], ["y"], mode=mode,
            coordinate_transformation_mode="align_corners",
        )
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 1, 2, 3], np.float32), "scales")],
    )
    opset = [helper.make_opsetid("", 19)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    made = autotune.compile(model, ranges={"H": (1, 9), "W": (1, 9)}, threads=1)
    assert isinstance(made, SizedModel)
    assert made.serves_all, made.notes
    judge = ReferenceEvaluator(model)
    for height, width in ((1, 1), (3, 9), (8, 2)):
        x = np.random.default_rng(width).standard_normal((1, 2, height, width), np.float32)
        got, want = made.run({"x": x})["y"], judge.run(None, {"x": x})[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
