"""Each rewrite that pays, on a small graph where it does: it is found, and keeps the result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import shipped
from autotune.rewrite.search import search
from autotune.target import load_target
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net, random_feeds

TARGET = load_target("x86-64-v4")


def pyramid(n: Net) -> str:
    """Two levels of 32 channels: the smaller one resized, both mixed by a 1x1 convolution."""
    wide = n.op("resize", n.feed("x", 1, 8, 8, 64), out_shape=(1, 32, 32, 64), mode="linear")
    both = n.op("concat", wide, n.feed("y", 1, 32, 32, 32), axis=3)
    return n.op("conv2d", both, n.weights(1, 1, 96, 32))


def linear_attention(n: Net) -> str:
    q, k, v = (n.feed(name, 2, 256, 32) for name in "qkv")
    return n.op("matmul", n.op("matmul", q, k, transpose_b=True), v)


def graph_layer(n: Net) -> str:
    seen = n.op("matmul", n.feed("a", 256, 256), n.feed("x", 256, 128))
    return n.op("matmul", seen, n.weights(128, 8))


def last_token(n: Net) -> str:
    hidden = n.op("relu", n.linear(n.feed("x", 32, 128), 256))
    words = n.linear(n.linear(hidden, 128), 1024)
    return n.op("slice", words, starts=(31, 0), stops=(32, 1024), steps=(1, 1))


def activation_map(n: Net) -> str:
    y = n.op("conv2d", n.feed("x", 1, 14, 14, 64), n.weights(1, 1, 64, 128))
    y = n.op("add", y, n.weights(128))
    return n.op("reduce_mean", y, axes=(1, 2), keepdims=False)


def linear_chain(n: Net) -> str:
    return n.linear(n.linear(n.feed("x", 128, 64), 256), 64)


def products_of_one(n: Net) -> str:
    a, b, c = (n.feed(name, 256, 256) for name in "abc")
    return n.op("add", n.op("matmul", a, c), n.op("matmul", b, c))


def products_with_one(n: Net) -> str:
    a, b, c = (n.feed(name, 256, 256) for name in "abc")
    return n.op("add", n.op("matmul", a, b), n.op("matmul", a, c))


def some_channels(n: Net) -> str:
    y = n.op("conv2d", n.feed("x", 1, 28, 28, 64), n.weights(3, 3, 64, 64), pads=(1,) * 4)
    return n.op("slice", y, starts=(0, 0, 0, 0), stops=(1, 28, 28, 16), steps=(1,) * 4)


def product_and_turned(n: Net) -> str:
    a, b = n.feed("a", 256, 256), n.feed("b", 256, 256)
    there, back = n.op("matmul", a, b), n.op("transpose", b, perm=(1, 0))
    turned = n.op("matmul", back, n.op("transpose", a, perm=(1, 0)))
    return n.op("add", there, n.op("transpose", turned, perm=(1, 0)))


def summed_rows(n: Net) -> str:
    y = n.op("matmul", n.feed("x", 256, 128), n.feed("w", 128, 512))
    return n.op("reduce_sum", y, axes=(0,), keepdims=True)


def summed_columns(n: Net) -> str:
    y = n.op("matmul", n.feed("x", 256, 128), n.feed("w", 128, 512))
    return n.op("reduce_sum", y, axes=(1,), keepdims=True)


def last_words(n: Net) -> str:
    y = n.op("softmax", n.op("matmul", n.feed("x", 64, 128), n.weights(128, 1024)), axis=-1)
    return n.op("slice", y, starts=(63, 0), stops=(64, 1024), steps=(1, 1))


def last_norm(n: Net) -> str:
    x = n.op("matmul", n.feed("x", 64, 256), n.weights(256, 512))
    y = n.op("layer_norm", x, n.weights(512), n.weights(512), axis=-1, epsilon=1e-5)
    return n.op("slice", y, starts=(63, 0), stops=(64, 512), steps=(1, 1))


def window(n: Net, x: str, out: int, size: int = 3, **attrs: object) -> str:
    """A window with as many zeros around the image as keep its size, and a bias."""
    (*_, channels) = n.shape(x)
    y = n.op("conv2d", x, n.weights(size, size, channels, out), pads=(size // 2,) * 4, **attrs)
    return n.op("add", y, n.weights(out))


def every_second_place(n: Net) -> str:
    y = n.op("relu", window(n, n.feed("x", 1, 27, 28, 128), 128))
    return window(n, y, 128, size=1, strides=(2, 2))


def places_cut_out(n: Net) -> str:
    y = n.op("relu", window(n, n.feed("x", 1, 28, 27, 128), 128))
    y = n.op("slice", y, starts=(0, 0, 0, 0), stops=(1, 28, 27, 128), steps=(1, 2, 1, 1))
    y = n.op("slice", y, starts=(0, 0, 0, 0), stops=(1, 14, 27, 128), steps=(1, 1, 2, 1))
    return window(n, y, 128, size=1)


def block_and_shortcut(n: Net) -> str:
    """The end of a residual network's level, and a block that begins with half of its size."""
    x = n.op("relu", n.feed("x", 1, 28, 28, 256))
    y = n.op("relu", window(n, n.op("relu", window(n, x, 64, size=1)), 64))
    x = n.op("relu", n.op("add", x, window(n, y, 256, size=1)))
    y = n.op("relu", window(n, x, 128, size=1, strides=(2, 2)))
    return n.op("add", window(n, y, 256), window(n, x, 256, size=1, strides=(2, 2)))


def joined_levels(n: Net, at: str = "half_pixel", near: str = "round_prefer_floor") -> str:
    small = n.op("relu", n.feed("x", 1, 16, 16, 128))
    how = {"mode": "nearest", "coordinate": at, "nearest_mode": near}
    large = n.op("resize", small, out_shape=(1, 32, 32, 128), **how)
    beside = n.op("relu", window(n, n.feed("y", 1, 32, 32, 64), 64))
    return window(n, n.op("concat", beside, large, axis=3), 64)


def joined_levels_from_the_corner(n: Net) -> str:
    return joined_levels(n, "asymmetric", "floor")


@pytest.mark.parametrize(
    ("net", "rewrites"),
    [
        (every_second_place, {"slice-places-behind-window"}),
        (places_cut_out, {"slice-places-behind-window", "slice-of-slice"}),
        (
            block_and_shortcut,
            {"strided-pointwise-convolutions-read-a-slice-relu", "slice-places-behind-window"},
        ),
        (
            joined_levels,
            {"window-over-doubled-image-that-is-last-half_pixel-round_prefer_floor"},
        ),
        (
            joined_levels_from_the_corner,
            {"window-over-repeated-image-that-is-last-asymmetric-floor"},
        ),
        (products_of_one, {"factor-out-of-rows"}),
        (products_with_one, {"factor-out-of-columns"}),
        (some_channels, {"slice-channels-before-convolution"}),
        (product_and_turned, {"turn-product"}),
        (summed_rows, {"reduce-rows-before-product-sum"}),
        (summed_columns, {"reduce-columns-before-product-sum"}),
        (last_words, {"slice-rows-before-softmax-softmax", "slice-rows-before-product"}),
        (last_norm, {"slice-rows-before-norm", "slice-rows-before-product"}),
        (pyramid, {"pointwise-convolution-over-resized-concat-linear"}),
        (linear_attention, {"reassociate-attention"}),
        (graph_layer, {"reassociate-right"}),
        (last_token, {"slice-rows-before-product", "slice-before-pointwise-relu"}),
        (activation_map, {"mean-before-pointwise-convolution-and-bias-False"}),
        (linear_chain, {"fold-linear-layers-with-bias"}),
    ],
)
def test_a_rewrite_that_pays_is_found(net: Callable[[Net], str], rewrites: set[str]) -> None:
    n = Net()
    graph = n.graph(net(n))
    found = search(optimize(graph, CLEAN), shipped(), Costs(TARGET), time_s=60.0)
    assert rewrites <= {step.rewrite for step in found.steps}
    verify_graph(found.graph)
    feeds = random_feeds(graph)
    got = run_graph(found.graph, feeds)
    for name, expected in run_graph(graph, feeds).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-4)


def test_ordinary_layers_are_left_alone() -> None:
    n = Net()
    x = n.feed("x", 1, 16, 28, 28)
    y = n.op("relu", n.batch_norm(n.conv(n.op("relu", n.conv(x, 16)), 16)))
    graph = optimize(n.graph(n.op("add", x, y)), CLEAN)
    assert search(graph, shipped(), Costs(TARGET)).graph is graph
