"""Regions and deformed kernels, pools that say where their elements lie, what puts these back."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from autotune.graph.interp import run_graph
from autotune.types import Array
from tests.unit.frontend.onnx_models import (
    assert_close,
    check,
    floats,
    imported,
    ints,
    node_model,
    nodes_model,
)
from tests.unit.frontend.test_onnx_errors import refused

REGIONS = np.array(
    [[0, 0, 9, 7], [1.5, 2.5, 6, 4], [-3, -2, 30, 20], [4, 4, 4.2, 4.1], [8, 6, 2, 1]], np.float32
)


def as_reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    expected = ReferenceEvaluator(model).run(None, feeds)  # type: ignore[arg-type]
    got = run_graph(imported(model), feeds)
    for array, reference in zip(got.values(), expected, strict=True):
        assert_close(array, np.asarray(reference), 1e-5, "result")


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinate", ["half_pixel", "output_half_pixel"])
def test_regions(mode: str, coordinate: str) -> None:
    feeds = {"x": floats(2, 3, 9, 11), "rois": REGIONS, "batch": ints(0, 1, 0, 1, 1)}
    model = node_model(
        "RoiAlign", feeds, opset=16, mode=mode, coordinate_transformation_mode=coordinate,
        output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.8,
    )  # fmt: skip
    as_reference(model, feeds)


def test_regions_with_as_many_samples_as_elements() -> None:
    feeds = {"x": floats(1, 1, 9, 9), "rois": REGIONS[:1], "batch": ints(0)}
    refused(node_model("RoiAlign", feeds, opset=16), "sampling_ratio 0 .* sampling_ratio=2")


def test_regions_of_largest_elements() -> None:
    feeds = {"x": floats(1, 1, 9, 9), "rois": floats(2, 5)}
    model = node_model("MaxRoiPool", feeds, pooled_shape=[2, 2])
    refused(model, "MaxRoiPool .* known to a run only; export the model with RoiAlign")


@pytest.mark.parametrize(
    ("groups", "parts", "size", "attrs"),
    [
        (1, 1, (7, 8), {"pads": [1, 1, 1, 1]}),
        (2, 1, (3, 4), {"strides": [2, 2], "pads": [0, 1, 1, 1]}),
        (2, 4, (5, 6), {"dilations": [2, 1], "pads": [1, 0, 1, 0]}),
        (1, 2, (5, 6), {}),
    ],
)
def test_deformed_kernels(
    groups: int, parts: int, size: tuple[int, int], attrs: dict[str, Any]
) -> None:
    rng = np.random.default_rng(1)
    feeds = {
        "x": floats(2, 4, 7, 8), "w": floats(6, 4 // groups, 3, 3),
        "offset": (3 * rng.standard_normal((2, parts * 18, *size))).astype(np.float32),
        "b": floats(6), "mask": floats(2, parts * 9, *size),
    }  # fmt: skip
    model = node_model("DeformConv", feeds, opset=19, group=groups, offset_group=parts, **attrs)
    as_reference(model, feeds)


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((2, 3, 8, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((1, 2, 7, 9), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((1, 2, 9, 9), {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 2, 0, 1]}),
        ((1, 2, 7, 7), {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}),
        ((1, 2, 6, 5), {"kernel_shape": [2, 2], "storage_order": 1}),
        ((2, 2, 10), {"kernel_shape": [3], "strides": [2]}),
        ((1, 2, 4, 5, 6), {"kernel_shape": [2, 2, 3], "strides": [1, 2, 2]}),
    ],
)
def test_places_of_the_largest(shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check(node_model("MaxPool", {"x": floats(*shape)}, outputs=2, **attrs), {"x": floats(*shape)})


def test_the_first_of_equal_elements() -> None:
    feeds = {"x": np.full((1, 1, 4, 4), -np.inf, np.float32)}
    model = node_model("MaxPool", feeds, outputs=2, kernel_shape=[3, 3], pads=[1, 1, 0, 0])
    places = run_graph(imported(model), feeds)["y1"]
    np.testing.assert_array_equal(places.ravel(), [0, 0, 1, 0, 0, 1, 4, 4, 5])


@pytest.mark.parametrize("shape", [(1, 2, 6, 8), (2, 1, 5, 7), (1, 3, 9)])
def test_what_a_pool_took_is_put_back(shape: tuple[int, ...]) -> None:
    """Also where the size is odd, so that the result's shape must be said."""
    rank = len(shape) - 2
    window = {"kernel_shape": [2] * rank, "strides": [2] * rank}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["v", "i"], **window),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("MaxUnpool", ["v", "i", "s"], ["y"], **window),
    ]
    feeds = {"x": floats(*shape)}
    got = run_graph(imported(nodes_model(nodes, feeds, [], ["y"])), feeds)["y"]
    kept = got != 0
    np.testing.assert_array_equal(got[kept], feeds["x"][kept])
    assert kept.sum() == np.prod([e // 2 for e in shape[2:]]) * shape[0] * shape[1]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows(p: int) -> None:
    feeds = {"x": floats(1, 2, 7, 8)}
    attrs: dict[str, Any] = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    check(node_model("LpPool", feeds, p=p, **attrs), feeds)
    check(node_model("GlobalLpPool", feeds, p=p), feeds)
