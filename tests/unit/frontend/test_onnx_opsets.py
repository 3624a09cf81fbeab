"""Operators whose meaning or form depends on the opset, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.types import Array
from tests.unit.frontend.onnx_models import check, floats, ints, node_model


def node(op: str, x: Array, *constants: Array | None, **options: object) -> None:
    feeds = {"x": x}
    check(node_model(op, feeds, constants, **options), feeds)  # type: ignore[arg-type]


@pytest.mark.parametrize("opset", [7, 11, 12])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_was_over_all_axes_behind(op: str, axis: int, opset: int) -> None:
    node(op, floats(2, 3, 4), opset=opset, axis=axis)


@pytest.mark.parametrize("opset", [7, 12, 13, 17])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_default_axis(op: str, opset: int) -> None:
    node(op, floats(2, 3, 4), opset=opset)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_over_one_axis(axis: int) -> None:
    node("Softmax", floats(2, 3, 4), opset=13, axis=axis)


def test_clip_by_attributes() -> None:
    node("Clip", floats(3, 5), opset=7, min=-0.5, max=0.25)


@pytest.mark.parametrize("low", [None, np.float32(-0.5)])
@pytest.mark.parametrize("high", [None, np.float32(0.25)])
def test_clip_by_inputs(low: Array | None, high: Array | None) -> None:
    node("Clip", floats(3, 5), low, high, opset=11)


def test_clip_of_integers() -> None:
    node("Clip", ints(-9, 1, 9), np.int64(-2), np.int64(3), opset=13)


def test_clip_by_computed_bounds() -> None:
    feeds = {"x": floats(3, 5), "low": np.array(-0.1, np.float32)}
    check(node_model("Clip", feeds, opset=13), feeds)


def test_dropout_by_attribute() -> None:
    node("Dropout", floats(3, 5), opset=7, ratio=0.3)


def test_dropout_by_inputs() -> None:
    node("Dropout", floats(3, 5), np.float32(0.3), np.bool_(False), opset=13)


def test_slice_by_attributes() -> None:
    node("Slice", floats(4, 6), opset=9, starts=[1, -3], ends=[100, -1], axes=[0, 1])


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slice_by_inputs(step: int) -> None:
    start, end = (1, 100) if step > 0 else (100, -100)
    node("Slice", floats(4, 7), ints(start), ints(end), ints(1), ints(step), opset=13)


def test_slice_backward_to_the_smallest_end() -> None:
    end = np.array([np.iinfo(np.int64).min])
    node("Slice", floats(4, 7), ints(-1), end, ints(-1), ints(-2), opset=13)


def test_squeeze_by_attribute() -> None:
    node("Squeeze", floats(1, 3, 1), opset=11, axes=[-1])


def test_squeeze_by_input() -> None:
    node("Squeeze", floats(1, 3, 1), ints(0), opset=13)


def test_squeeze_of_everything() -> None:
    node("Squeeze", floats(1, 3, 1), opset=13)


def test_unsqueeze_by_attribute() -> None:
    node("Unsqueeze", floats(3, 4), opset=11, axes=[0, -1])


def test_unsqueeze_by_input() -> None:
    node("Unsqueeze", floats(3, 4), ints(3, 1), opset=13)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceProd"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reduction_by_attribute(op: str, keepdims: int) -> None:
    node(op, floats(2, 3, 4), opset=11, axes=[-1, 0], keepdims=keepdims)


def test_reduce_sum_by_input_came_first() -> None:
    node("ReduceSum", floats(2, 3, 4), ints(1), opset=13, keepdims=0)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMin", "ReduceLogSumExp", "ReduceL1"])
def test_reduction_by_input(op: str) -> None:
    node(op, floats(2, 3, 4), ints(1, 2), opset=18, keepdims=0)


def test_reduction_of_no_axes() -> None:
    node("ReduceSum", floats(2, 3), opset=13, noop_with_empty_axes=1)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceL2"])
def test_reduction_to_a_number_keeps_dimensions_for_vectors(op: str) -> None:
    feeds = {"x": floats(2, 3, 4)}
    graph = check(node_model(op, feeds, opset=11, keepdims=0), feeds)
    assert graph.types[graph.outputs[0][1]].shape == ()
    shapes = [graph.types[n.output].shape for n in graph.nodes if n.op == "reduce_sum"]
    assert shapes == [(1, 1, 1)]


def test_split_by_attribute() -> None:
    node("Split", floats(6, 4), opset=11, axis=0, split=[1, 3, 2], outputs=3)


def test_split_by_input() -> None:
    node("Split", floats(6, 4), ints(1, 3, 2), opset=13, axis=0, outputs=3)


def test_split_into_equal_parts_and_a_rest() -> None:
    node("Split", floats(2, 7), opset=18, axis=1, num_outputs=3, outputs=3)


def test_pad_by_attributes() -> None:
    node("Pad", floats(2, 3), opset=7, pads=[0, 1, 2, -1], value=1.5)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad_by_inputs(mode: str) -> None:
    node("Pad", floats(4, 5), ints(1, 2, 0, 3), np.float32(2), opset=13, mode=mode)


def test_pad_of_some_axes() -> None:
    node("Pad", floats(4, 5), ints(1, 2), np.float32(2), ints(-1), opset=18)


@pytest.mark.parametrize("extent", [1, 2])
@pytest.mark.parametrize("pads", [(5, -3), (-3, 5)])
def test_pads_that_cut_more_than_there_is(extent: int, pads: tuple[int, int]) -> None:
    node("Pad", floats(extent), ints(*pads), np.float32(2), opset=13)


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(opset: int) -> None:
    positive = np.abs(floats(3, seed=4)) + np.float32(0.5)
    parameters = (floats(3, seed=1), floats(3, seed=2), floats(3, seed=3), positive)
    node("BatchNormalization", floats(2, 3, 4, 5), *parameters, opset=opset, epsilon=1e-3)


def test_upsample_by_attribute() -> None:
    node("Upsample", floats(1, 2, 3, 4), opset=7, scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_by_input(mode: str) -> None:
    scales = np.array([1, 1, 2, 3], np.float32)
    node("Upsample", floats(1, 2, 3, 4), scales, opset=9, mode=mode)


@pytest.mark.parametrize("scales", [(2, 2), (0.5, 0.6), (2, 0.5), (1.5, 1.6666666)])
def test_resize_before_rois(scales: tuple[float, float]) -> None:
    factors = np.array([1, 1, *scales], np.float32)
    node("Resize", floats(1, 2, 6, 9), factors, opset=10, mode="nearest")


COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size", [(7, 10), (3, 4), (5, 1)])
def test_resize_to_sizes(mode: str, coordinate: str, size: tuple[int, int]) -> None:
    options = {"mode": mode, "coordinate_transformation_mode": coordinate}
    node("Resize", floats(1, 2, 5, 6), None, None, ints(1, 2, *size), opset=13, **options)


@pytest.mark.parametrize("scales", [(2, 2), (1.5, 1.6666666), (0.7, 2.3)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_by_scales(mode: str, scales: tuple[float, float]) -> None:
    factors = np.array([1, 1, *scales], np.float32)
    node("Resize", floats(1, 2, 6, 9), None, factors, opset=19, mode=mode)


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("length", "size"), [(9, 18), (11, 4), (200, 331)])
def test_resize_of_lines(mode: str, coordinate: str, length: int, size: int) -> None:
    options = {"mode": mode, "coordinate_transformation_mode": coordinate}
    node("Resize", floats(2, 3, length), None, None, ints(2, 3, size), opset=13, **options)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_long_rows_are_resized_by_factors_that_are_not_exact(mode: str) -> None:
    factors = np.array([1, 1, 1, 0.5], np.float32)  # 301 become 150
    node("Resize", floats(1, 2, 3, 301), None, factors, opset=19, mode=mode)


@pytest.mark.parametrize("opset", [7, 13, 14])
def test_reshape_keeps_and_fills(opset: int) -> None:
    node("Reshape", floats(2, 3, 4), ints(0, -1, 2), opset=opset)


def test_gelu() -> None:
    node("Gelu", floats(3, 5), opset=20, approximate="tanh")


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_normalization_without_bias(axis: int) -> None:
    shape = (2, 3, 4)[axis:]
    node("LayerNormalization", floats(2, 3, 4), floats(*shape, seed=1), opset=17, axis=axis)


def test_group_normalization_of_channels() -> None:
    scale, bias = floats(6, seed=1), floats(6, seed=2)
    node("GroupNormalization", floats(2, 6, 3, 3), scale, bias, opset=21, num_groups=3)


@pytest.mark.parametrize("opset", [7, 13])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(transposed: int, opset: int) -> None:
    weights = floats(5, 4, seed=1) if transposed else floats(4, 5, seed=1)
    options = {"transB": transposed, "alpha": 0.5, "beta": 2.0}
    node("Gemm", floats(3, 4), weights, floats(5, seed=2), opset=opset, **options)


@pytest.mark.parametrize("shapes", [((4,), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,))])
def test_matmul_of_vectors(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    feeds = {"a": floats(*shapes[0]), "b": floats(*shapes[1], seed=1)}
    check(node_model("MatMul", feeds), feeds)


EQUATIONS = ["bhid,bhjd->bhij", "ij,jk->ki", "abc,cd->abd", "ab,cd->acbd", "ab,ab->a", "abc->ca"]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    extents = {c: i + 2 for i, c in enumerate("abcdhijk")}
    terms = equation.split("->", maxsplit=1)[0].split(",")
    feeds = {f"x{i}": floats(*(extents[c] for c in t), seed=i) for i, t in enumerate(terms)}
    check(node_model("Einsum", feeds, equation=equation), feeds)


@pytest.mark.parametrize("rounding", ["floor", "ceil"])
@pytest.mark.parametrize("factor", [0.5, 1.5, 0.7])
def test_symmetric_places_are_rounded_where_onnxruntime_rounds(
    rounding: str, factor: float
) -> None:
    """Many of these places are whole numbers: float32 decides on which side."""
    scales = np.array([1, 1, factor, factor], np.float32)
    how = {"coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": rounding}
    node("Resize", floats(1, 1, 17, 7), None, scales, opset=19, mode="nearest", **how)
