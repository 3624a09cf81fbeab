"""Answers known beforehand, where a reference could share a mistake with its expression."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.ops import OPS
from autotune.types import Array, Attr


def _run(op: str, *arrays: Array, **attrs: Attr) -> Array:
    return OPS.get(op).reference(arrays, attrs)


def _image(*rows: list[float]) -> Array:
    return np.asarray(rows, np.float64)[None, :, :, None]


def test_convolution_is_a_cross_correlation() -> None:
    x = _image([1, 2, 3], [4, 5, 6])
    w = np.asarray([[1.0, 10.0]])[:, :, None, None]
    got = _run("conv2d", x, w)
    np.testing.assert_array_equal(got[0, :, :, 0], [[21, 32], [54, 65]])


def test_pads_are_top_left_bottom_right() -> None:
    x, w = _image([1, 2]), np.ones((1, 1, 1, 1))
    got = _run("conv2d", x, w, pads=(1, 2, 0, 1))
    np.testing.assert_array_equal(got[0, :, :, 0], [[0, 0, 0, 0, 0], [0, 0, 1, 2, 0]])


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("slice", {"starts": (), "stops": (), "steps": ()}),
        ("expand", {"shape": ()}),
        ("pad", {"pads": ()}),
    ],
)
def test_what_has_no_dimensions_gets_none(op: str, attrs: dict[str, Attr]) -> None:
    got = _run(op, np.asarray(3.0), **attrs)
    assert got.shape == ()
    assert got == 3.0


def test_groups_keep_channels_apart() -> None:
    x = np.asarray([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    w = np.ones((1, 1, 2, 2)) * np.asarray([1.0, 10.0])
    np.testing.assert_array_equal(_run("conv2d", x, w, groups=2).ravel(), [3, 70])


def test_strides_and_dilations_pick_elements() -> None:
    x, w = _image(list(range(8))), np.ones((1, 2, 1, 1))
    got = _run("conv2d", x, w, strides=(1, 2), dilations=(1, 3))
    np.testing.assert_array_equal(got.ravel(), [3, 7, 11])


@pytest.mark.parametrize(
    ("attrs", "want"),
    [
        ({}, [1.5, 2.5, 3]),
        ({"count_include_pad": True}, [1.5, 2.5, 1.5]),
        ({"count_include_pad": True, "valid_pads": (0, 0, 0, 0)}, [1.5, 2.5, 3]),
    ],
)
def test_averages_count_what_they_should(attrs: dict[str, Attr], want: list[float]) -> None:
    x = _image([1, 2, 3])
    got = _run("avg_pool2d", x, kernel=(1, 2), pads=(0, 0, 0, 1), **attrs)
    np.testing.assert_array_equal(got.ravel(), want)


def test_padding_never_wins_a_maximum() -> None:
    x = _image([-3, -2])
    got = _run("max_pool2d", x, kernel=(1, 2), pads=(0, 1, 0, 1))
    np.testing.assert_array_equal(got.ravel(), [-3, -2, -2])


def test_argmax_is_the_first_of_equals() -> None:
    assert _run("argmax", np.asarray([1.0, 7.0, 7.0]), axis=0, keepdims=False) == 1


def test_softmax_survives_large_values() -> None:
    got = _run("softmax", np.asarray([1000.0, 1000.0, -1000.0]))
    np.testing.assert_array_equal(got, [0.5, 0.5, 0])


def test_layer_norm_centres_and_scales() -> None:
    got = _run("layer_norm", np.asarray([[1.0, 3.0]]), np.asarray([2.0]), axis=1, epsilon=0.0)
    np.testing.assert_array_equal(got, [[-2, 2]])


def test_lrn_looks_at_neighbouring_channels() -> None:
    x = np.asarray([[1.0, 2.0, 3.0]])
    got = _run("lrn", x, size=3, alpha=3.0, beta=1.0, bias=0.0)
    np.testing.assert_allclose(got, [[1 / 5, 2 / 14, 3 / 13]])


@pytest.mark.parametrize(
    ("attrs", "want"),
    [
        ({"mode": "nearest", "coordinate": "asymmetric", "nearest_mode": "floor"}, [1, 1, 5, 5]),
        ({"mode": "linear", "coordinate": "half_pixel"}, [1, 2, 4, 5]),
        ({"mode": "linear", "coordinate": "align_corners"}, [1, 7 / 3, 11 / 3, 5]),
    ],
)
def test_resize(attrs: dict[str, Attr], want: list[float]) -> None:
    got = _run("resize", np.asarray([1.0, 5.0]), out_shape=(4,), **attrs)
    np.testing.assert_allclose(got, want)


def test_negative_gather_indices_count_from_the_end() -> None:
    got = _run("gather", np.asarray([1.0, 2.0, 3.0]), np.asarray([-1, 0]))
    np.testing.assert_array_equal(got, [3, 1])


@pytest.mark.parametrize(
    ("op", "attrs", "x", "want"),
    [
        ("relu", {}, [-1, 2], [0, 2]),
        ("clip", {"min": 0.0, "max": 6.0}, [-1, 2, 9], [0, 2, 6]),
        ("leaky_relu", {"alpha": 0.1}, [-1, 2], [-0.1, 2]),
        ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}, [-9, 0, 9], [0, 0.5, 1]),
        ("hard_swish", {}, [-3, 0, 3], [0, 0, 3]),
        ("gelu", {}, [0, 1], [0, 0.841344746]),
        ("gelu", {"approximate": "tanh"}, [0, 1], [0, 0.841191991]),
        ("silu", {}, [0, 1], [0, 0.731058579]),
        ("snap", {"step": 0.5, "zero": 100.0}, [-60, -0.3, 0.2, 99], [-50, -0.5, 0, 77.5]),
        ("softplus", {}, [0, 100], [0.693147181, 100]),
        ("mish", {}, [0, 1], [0, 0.865098388]),
        ("elu", {"alpha": 2.0}, [-1, 1], [-1.264241118, 1]),
    ],
)
def test_activations(op: str, attrs: dict[str, Attr], x: list[float], want: list[float]) -> None:
    np.testing.assert_allclose(_run(op, np.asarray(x, np.float64), **attrs), want, atol=1e-9)
