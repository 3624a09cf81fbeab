"""Transforms of signals against numpy; einsums, resizes, scales by blocks beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

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
from tests.unit.frontend.test_onnx_errors import malformed, refused


def transform(x: Array, *constants: Array | None, **attrs: Any) -> Array:
    model = node_model("DFT", {"x": x}, constants, opset=20, **attrs)
    return next(iter(run_graph(imported(model), {"x": x}).values()))


def parts(numbers: Array) -> Array:
    return np.stack([numbers.real, numbers.imag], -1)


@pytest.mark.parametrize("length", [5, 8, 12])
@pytest.mark.parametrize("axis", [1, -3])
def test_transform_of_real_numbers(length: int, axis: int) -> None:
    x = floats(2, 8, 3, 1)
    got = transform(x, np.array(length), np.array(axis), onesided=1)
    expected = np.fft.rfft(x[..., 0].astype(np.float64), length, axis=1)
    assert_close(got, parts(expected), 1e-6, "transform")


def test_transform_and_back() -> None:
    x = floats(3, 9, 2)
    there = transform(x).astype(np.float32)
    assert_close(there, parts(np.fft.fft(x[..., 0] + 1j * x[..., 1])), 1e-6, "there")
    assert_close(transform(there, inverse=1), x, 1e-6, "back")


@pytest.mark.parametrize("length", [8, 9])
def test_back_from_half_of_it(length: int) -> None:
    x = floats(2, length)
    half = parts(np.fft.rfft(x)).astype(np.float32)
    got = transform(half, np.array(length), inverse=1, onesided=1)
    assert_close(got, x[..., None], 1e-6, "back")


@pytest.mark.parametrize("length", [163, 300, 1024, 2003, 2 * 1033])
def test_long_transforms(length: int) -> None:
    """One product, by factors, by differences of a prime, and both."""
    x = floats(2, length, 2)
    numbers = x[..., 0].astype(np.float64) + 1j * x[..., 1]
    there = transform(x)
    assert_close(there, parts(np.fft.fft(numbers)), 2e-6, "there")
    assert_close(transform(there.astype(np.float32), inverse=1), x, 2e-6, "back")
    real = x[..., :1]
    half = transform(real, onesided=1)
    assert_close(half, parts(np.fft.rfft(numbers.real)), 2e-6, "half")
    again = transform(half.astype(np.float32), np.array(length), inverse=1, onesided=1)
    assert_close(again, real, 2e-6, "back from half")


@pytest.mark.parametrize("length", [280, 320])
def test_long_transforms_of_what_is_cut_or_filled_up(length: int) -> None:
    x = floats(3, 300, 1)
    expected = np.fft.fft(x[..., 0].astype(np.float64), length)
    assert_close(transform(x, np.array(length)), parts(expected), 2e-6, "transform")


@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize("onesided", [0, 1])
def test_frames(window: bool, onesided: int) -> None:
    x = floats(2, 70, 1)
    taps = np.hanning(16).astype(np.float32) if window else None
    model = node_model("STFT", {"x": x}, (np.array(5), taps, np.array(16)), onesided=onesided)
    check(model, {"x": x})


def test_frames_longer_than_the_signal() -> None:
    model = node_model("STFT", {"x": floats(1, 8, 1)}, (np.array(2), None, np.array(9)))
    malformed(model, "frames of 9, every 2, do not fit a signal of 8")


def test_filters_of_mel() -> None:
    edges = (np.array(20.0, np.float32), np.array(8000.0, np.float32))
    counts = (np.array(40), np.array(400), np.array(16000))
    node = helper.make_node("MelWeightMatrix", ["n", "length", "rate", "low", "high"], ["y"])
    names = zip(node.input, (*counts, *edges), strict=True)
    tensors = [numpy_helper.from_array(a, name) for name, a in names]
    feeds = {"x": floats(2, 201)}
    product = helper.make_node("MatMul", ["x", "y"], ["z"])
    check(nodes_model([node, product], feeds, tensors, ["z"]), feeds)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk,bkl->bil", [(2, 3, 4), (2, 4, 5), (2, 5, 6)]),
        ("i,j,k->kij", [(2,), (3,), (4,)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("ab,cb,ac,d->ad", [(3, 4), (5, 4), (3, 5), (2,)]),
        ("...ij,...jk->...ik", [(2, 3, 4, 5), (3, 5, 6)]),
        ("...ij,...jk->...ik", [(2, 1, 4, 5), (3, 5, 6)]),
        ("b...c,cd", [(2, 3, 4, 5), (5, 6)]),
        ("iji->j", [(3, 4, 3)]),
        ("ii", [(4, 4)]),
        ("aab,b->ab", [(3, 3, 4), (4,)]),
        ("a...,a->...", [(3, 2, 2), (3,)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    feeds = {f"x{i}": floats(*s, seed=i) for i, s in enumerate(shapes)}
    model = node_model("Einsum", feeds, equation=equation)
    (got,) = run_graph(imported(model), feeds).values()
    wide = [a.astype(np.float64) for a in feeds.values()]
    assert_close(got, np.asarray(np.einsum(equation, *wide)), 1e-6, equation)


@pytest.mark.parametrize("equation", ["ij,jk->il", "i,j->ij", "i1,1j->ij"])
def test_einsum_that_is_none(equation: str) -> None:
    malformed(
        node_model("Einsum", {"x": floats(2, 3), "y": floats(3, 2)}, equation=equation), "lab"
    )


def test_large_determinants() -> None:
    refused(node_model("Det", {"x": floats(5, 5)}), "5 x 5 are not supported, only up to 4 x 4")


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("size", [(3, 4), (20, 5), (6, 13)])
@pytest.mark.parametrize("coordinate", ["half_pixel", "align_corners", "tf_crop_and_resize"])
def test_resizes_against_aliases(mode: str, size: tuple[int, int], coordinate: str) -> None:
    cut = coordinate == "tf_crop_and_resize"
    feeds = {"x": floats(1, 2, 9, 11)}
    roi = np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.1] if cut else [], np.float32)
    model = node_model(
        "Resize", feeds, (roi, None, ints(1, 2, *size)), opset=18, mode=mode, antialias=not cut,
        coordinate_transformation_mode=coordinate, extrapolation_value=7.0,
    )  # fmt: skip
    check(model, feeds)


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4])
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_of_four_bits_by_blocks(kind: int, axis: int) -> None:
    low = -8 if kind == onnx.TensorProto.INT4 else 0
    whole = np.random.default_rng(0).integers(low, low + 16, (8, 12))
    blocks = (2, 12) if axis == 0 else (8, 3)
    zeros = np.random.default_rng(1).integers(low, low + 16, blocks)
    tensors = [
        helper.make_tensor("w", kind, whole.shape, whole.ravel().tolist()),
        numpy_helper.from_array(np.abs(floats(*blocks)), "scale"),
        helper.make_tensor("zero", kind, blocks, zeros.ravel().tolist()),
    ]
    nodes = [
        helper.make_node(
            "DequantizeLinear", ["w", "scale", "zero"], ["f"], axis=axis, block_size=4
        ),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    feeds = {"x": floats(3, 8)}
    check(nodes_model(nodes, feeds, tensors, ["y"], opset=21), feeds)


def test_results_of_four_bits() -> None:
    feeds = {"x": floats(4)}
    tensors = [
        numpy_helper.from_array(np.array(0.1, np.float32), "scale"),
        helper.make_tensor("zero", onnx.TensorProto.INT4, [], [0]),
    ]
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], name="q")
    back = helper.make_node("DequantizeLinear", ["y", "scale", "zero"], ["z"])
    check(nodes_model([node, back], feeds, tensors, ["z"], opset=21), feeds)


def test_the_type_of_bytes_may_be_an_attribute() -> None:
    feeds = {"x": 100 * floats(40)}
    scale = (np.array(1, np.float32),)
    model = node_model(
        "QuantizeLinear", feeds, scale, opset=21, output_dtype=onnx.TensorProto.INT8
    )
    check(model, feeds)
