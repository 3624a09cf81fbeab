"""Less work by the rules of algebra, each on a small graph where it pays: the rewrite is found,
the result stays, and what is left are as few kernels as there should be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.graph.interp import run_graph
from autotune.graph.pipeline import CLEAN, optimize
from autotune.rewrite.cost import Costs
from autotune.rewrite.files import shipped
from autotune.rewrite.search import Found, search
from autotune.target import load_target
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import Net, random_feeds

COSTS = Costs(load_target("x86-64-v4"))
MOST_LOST = 1e-5
"""Share of the largest value that a rewrite may lose."""
PADS = {"pads": (1,) * 4}


def nothing(n: Net) -> str:
    y = n.op("exp", n.feed("x", 256, 256))
    return n.op("add", n.op("sub", y, y), n.feed("z", 256, 256))


def scaled_rows(n: Net) -> str:
    x = n.op("div", n.feed("x", 512, 512), n.feed("r", 512, 1))
    return n.op("matmul", x, n.feed("w", 512, 8))


def difference(n: Net) -> str:
    a, b, c = (n.feed(name, 256, 256) for name in "abc")
    return n.op("sub", n.op("matmul", a, b), n.op("matmul", a, c))


def adapter(n: Net) -> str:
    x = n.feed("x", 128, 256)
    low = n.op("matmul", n.op("matmul", x, n.weights(256, 8)), n.weights(8, 256))
    return n.op("add", n.linear(x, 256), low)


def repeated_row(n: Net) -> str:
    """PointNet: what all points have alike beside each one's own."""
    alike = n.op("expand", n.feed("y", 1, 128), shape=(256, 128))
    return n.op("matmul", n.op("concat", n.feed("x", 256, 128), alike, axis=1), n.weights(256, 64))


def mean_of_rows(n: Net) -> str:
    y = n.linear(n.feed("x", 1, 128, 256), 256)
    return n.op("reduce_mean", y, axes=(1,), keepdims=False)


def transition(n: Net) -> str:
    """DenseNet: a mix of channels, then means of 2x2."""
    y = n.op("conv2d", n.feed("x", 1, 28, 28, 64), n.weights(1, 1, 64, 64))
    return n.op("avg_pool2d", y, kernel=(2, 2), strides=(2, 2))


def shrunk(n: Net) -> str:
    y = n.op("conv2d", n.feed("x", 1, 56, 56, 64), n.weights(1, 1, 64, 64))
    return n.op("resize", y, out_shape=(1, 14, 14, 64), mode="linear")


def every_other(n: Net) -> str:
    y = n.op("conv2d", n.feed("x", 1, 56, 56, 64), n.weights(1, 1, 64, 64))
    return n.op("slice", y, starts=(0,) * 4, stops=(1, 56, 56, 64), steps=(1, 2, 2, 1))


def branches(n: Net) -> str:
    """RepVGG: a window and one point beside it."""
    x = n.op("relu", n.op("conv2d", n.feed("x", 1, 28, 28, 8), n.weights(1, 1, 8, 64)))
    one = n.op("add", n.op("conv2d", x, n.weights(3, 3, 64, 64), **PADS), n.weights(64))
    return n.op("add", one, n.op("add", n.op("conv2d", x, n.weights(1, 1, 64, 64)), n.weights(64)))


def one_window(n: Net) -> str:
    x, y, k = n.feed("x", 1, 28, 28, 64), n.feed("y", 1, 28, 28, 64), n.weights(3, 3, 64, 64)
    return n.op("add", n.op("conv2d", x, k, **PADS), n.op("conv2d", y, k, **PADS))


def window_and_mix(n: Net) -> str:
    y = n.op("conv2d", n.feed("x", 1, 28, 28, 16), n.weights(3, 3, 16, 64), **PADS)
    return n.op("conv2d", n.op("add", y, n.weights(64)), n.weights(1, 1, 64, 16))


def mix_and_window(n: Net) -> str:
    y = n.op("conv2d", n.feed("x", 1, 56, 56, 16), n.weights(1, 1, 16, 64))
    return n.op("conv2d", y, n.weights(3, 3, 64, 16), **PADS)


def pooled_branch(n: Net) -> str:
    """DeepLab: one point that all places have alike, last of the parts that are mixed."""
    wide = n.op("resize", n.feed("y", 1, 1, 1, 64), out_shape=(1, 28, 28, 64), mode="linear")
    both = n.op("concat", n.feed("x", 1, 28, 28, 64), wide, axis=3)
    return n.op("conv2d", both, n.weights(1, 1, 128, 64))


def with_zeros(n: Net, channels: int = 32, step: int = 2) -> str:
    """An image with zeros between its places."""
    x = n.op("relu", n.feed("x", 1, 16, 16, channels))
    apart = n.op("reshape", x, shape=(1, 16, 1, 16, 1, channels))
    zeros = (0,) * 8 + (step - 1, 0, step - 1, 0)
    apart = n.op("pad", apart, pads=zeros, value=0.0)
    return n.op("reshape", apart, shape=(1, 16 * step, 16 * step, channels))


def transposed_by_two(n: Net) -> str:
    """A transposed convolution as PyTorch code writes it out: rows cut first, then columns."""
    y = n.op("slice", with_zeros(n), starts=(0,) * 4, stops=(1, 31, 32, 32), steps=(1,) * 4)
    y = n.op("slice", y, starts=(0,) * 4, stops=(1, 31, 31, 32), steps=(1,) * 4)
    y = n.op("pad", y, pads=(0, 2, 2, 0, 0, 2, 2, 0), value=0.0)
    return n.op("relu", n.op("conv2d", y, n.weights(4, 4, 32, 16)))


def transposed_by_three(n: Net) -> str:
    return n.op("conv2d", with_zeros(n, step=3), n.weights(5, 4, 32, 16), pads=(2, 1, 0, 2))


def doubled(n: Net) -> str:
    """A decoder's layer: an image twice as large, and a window."""
    x = n.op("relu", n.feed("x", 1, 16, 16, 128))
    y = n.op("resize", x, out_shape=(1, 32, 32, 128), coordinate="asymmetric",
             mode="nearest", nearest_mode="floor")  # fmt: skip
    return n.op("relu", n.op("conv2d", y, n.weights(3, 3, 128, 64), **PADS))


def rows_and_columns(n: Net) -> str:
    """ACNet: rows and columns beside the whole window."""
    x = n.op("relu", n.feed("x", 1, 28, 28, 64))
    y = n.op("add", n.op("conv2d", x, n.weights(3, 3, 64, 64), **PADS), n.weights(64))
    for shape, pads in (((1, 3), (0, 1, 0, 1)), ((3, 1), (1, 0, 1, 0))):
        part = n.op("conv2d", x, n.weights(*shape, 64, 64), pads=pads)
        y = n.op("add", y, n.op("add", part, n.weights(64)))
    return n.op("relu", y)


def scaled_image(n: Net) -> str:
    """RepVGG's norm of its image, beside a window."""
    x = n.op("relu", n.feed("x", 1, 28, 28, 64))
    y = n.op("add", n.op("conv2d", x, n.weights(3, 3, 64, 64), **PADS), n.weights(64))
    norm = n.op("add", n.op("mul", x, n.weights(64)), n.weights(64))
    return n.op("relu", n.op("add", y, norm))


def windows_by_channel(n: Net) -> str:
    """RepLKNet: a small window beside a large one, a channel each."""
    x = n.op("relu", n.feed("x", 1, 28, 28, 64))
    large = n.op("conv2d", x, n.weights(9, 9, 1, 64), pads=(4,) * 4, groups=64)
    small = n.op("conv2d", x, n.weights(5, 5, 1, 64), pads=(2,) * 4, groups=64)
    return n.op("add", n.op("add", large, n.weights(64)), n.op("add", small, n.weights(64)))


def scaled_by_channel(n: Net) -> str:
    """MobileOne's norm of its image, beside windows of a channel each."""
    x = n.op("relu", n.feed("x", 1, 28, 28, 64))
    y = n.op("conv2d", x, n.weights(3, 3, 1, 64), groups=64, **PADS)
    norm = n.op("add", n.op("mul", x, n.weights(64)), n.weights(64))
    return n.op("relu", n.op("add", n.op("add", y, n.weights(64)), norm))


def discriminator(n: Net) -> str:
    """Means of two by two behind a window and its bias."""
    x = n.feed("x", 1, 32, 32, 64)
    y = n.op("add", n.op("conv2d", x, n.weights(3, 3, 64, 128), **PADS), n.weights(128))
    return n.op("leaky_relu", n.op("avg_pool2d", y, kernel=(2, 2), strides=(2, 2)), alpha=0.2)


def context(n: Net) -> str:
    """The mean of an image beside each of its places."""
    x = n.op("relu", n.feed("x", 1, 28, 28, 64))
    alike = n.op("reduce_mean", x, axes=(1, 2), keepdims=True)
    whole = n.op("expand", alike, shape=(1, 28, 28, 64))
    return n.op("conv2d", n.op("concat", x, whole, axis=3), n.weights(1, 1, 128, 64))


def imported_discriminator(n: Net) -> str:
    """The same as files give it, with all attributes."""
    x = n.feed("x", 1, 32, 32, 64)
    y = n.op("add", n.op("conv2d", x, n.weights(3, 3, 64, 128), **PADS), n.weights(128))
    none, two = (0, 0, 0, 0), (2, 2)
    return n.op(
        "avg_pool2d", y, kernel=two, strides=two, pads=none, valid_pads=none, dilations=(1, 1),
        count_include_pad=True,
    )  # fmt: skip


def kept_keys(n: Net) -> str:
    """A token's attention to what was kept beside its own key and value."""
    q, k, v = (n.linear(n.feed(name, 4, 1, 64), 64) for name in "qkv")
    keys = n.op("concat", n.feed("keys", 4, 512, 64), k, axis=1)
    seen = n.op("softmax", n.op("matmul", q, keys, transpose_b=True), axis=2)
    return n.op("matmul", seen, n.op("concat", n.feed("values", 4, 512, 64), v, axis=1))


def squeezed(n: Net) -> str:
    """Squeeze and excitation before a mix to few channels."""
    x = n.op("relu", n.feed("x", 1, 56, 56, 64))
    small = n.op("reduce_mean", x, axes=(1, 2), keepdims=True)
    share = n.op("sigmoid", n.op("conv2d", small, n.weights(1, 1, 64, 64)))
    return n.op("conv2d", n.op("mul", x, share), n.weights(1, 1, 64, 16))


def imported_transition(n: Net) -> str:
    """Means as files give them, with all attributes."""
    y = n.op("conv2d", n.feed("x", 1, 28, 28, 64), n.weights(1, 1, 64, 64))
    none, two = (0, 0, 0, 0), (2, 2)
    return n.op(
        "avg_pool2d", y, kernel=two, strides=two, pads=none, valid_pads=none, dilations=(1, 1),
        count_include_pad=True,
    )  # fmt: skip


def searched(n: Net, value: str) -> Found:
    """What the search finds, which loses nothing that matters."""
    graph = n.graph(value)
    found = search(optimize(graph, CLEAN), shipped(), COSTS, time_s=60.0)
    verify_graph(found.graph)
    feeds = random_feeds(graph)
    got = run_graph(found.graph, feeds, "float32")
    for name, expected in run_graph(graph, feeds).items():
        assert np.abs(got[name] - expected).max() <= MOST_LOST * np.abs(expected).max()
    return found


@pytest.mark.parametrize(
    ("net", "rewrite", "kernels"),
    [
        (nothing, "nothing-left", {"exp": 0}),
        (scaled_rows, "scaled-rows-behind-product-div", {"matmul": 1}),
        (difference, "factor-out-of-columns-of-difference", {"matmul": 1}),
        (adapter, "fold-adapter-beside-bias", {"matmul": 1}),
        (repeated_row, "product-beside-repeated-row", {"concat": 0, "matmul": 2}),
        (mean_of_rows, "mean-of-rows-before-layer-and-bias-False", {"matmul": 1}),
        (transition, "means-before-pointwise-convolution-False", {"conv2d": 1}),
        (shrunk, "pointwise-convolution-behind-resize-linear", {"conv2d": 1}),
        (every_other, "slice-places-before-pointwise-convolution", {"conv2d": 1}),
        (branches, "window-into-window-with-biases", {"conv2d": 2}),
        (rows_and_columns, "window-into-window-with-biases", {"conv2d": 1}),
        (scaled_image, "scaled-image-into-window", {"conv2d": 1, "mul": 0}),
        (windows_by_channel, "window-into-window-with-biases", {"conv2d": 1}),
        (scaled_by_channel, "scaled-image-into-depthwise-window", {"conv2d": 1, "mul": 0}),
        (discriminator, "means-behind-convolution-and-bias-False", {"conv2d": 1}),
        (imported_discriminator, "means-behind-convolution-and-bias-True", {"avg_pool2d": 0}),
        (context, "pointwise-convolution-beside-repeated-channels", {"concat": 0, "conv2d": 2}),
        (one_window, "factor-out-window", {"conv2d": 1}),
        (window_and_mix, "fold-pointwise-behind-convolution-with-bias", {"conv2d": 1}),
        (mix_and_window, "fold-pointwise-before-convolution", {"conv2d": 1}),
        (pooled_branch, "pointwise-convolution-beside-resized-linear", {"concat": 0}),
        (transposed_by_two, "convolution-of-spread-image", {"pad": 0}),
        (transposed_by_three, "convolution-of-wholly-spread-image", {"pad": 0, "conv2d": 1}),
        (doubled, "window-behind-repeated-image-asymmetric-floor", {"resize": 0, "conv2d": 4}),
        (kept_keys, "sums-along-joined-rows", {}),
        (kept_keys, "product-by-joined-rows", {}),
        (squeezed, "scale-into-pointwise-convolution", {"conv2d": 1, "matmul": 1}),
        (imported_transition, "means-before-pointwise-convolution-True", {"conv2d": 1}),
    ],
)
def test_less_work_is_found(
    net: Callable[[Net], str], rewrite: str, kernels: dict[str, int]
) -> None:
    n = Net()
    found = searched(n, net(n))
    assert rewrite in [step.rewrite for step in found.steps]
    there = [node.op for node in found.graph.nodes]
    assert {op: there.count(op) for op in kernels} == kernels


def test_a_slice_goes_through_a_whole_layer() -> None:
    """Of a layer whose last token alone is read, keys and values alone are of every token."""
    n = Net()
    x = n.feed("x", 1, 128, 64)
    y = n.layer_norm(n.op("add", x, n.attention(x, 4)))
    y = n.op("add", y, n.linear(n.op("gelu", n.linear(y, 256)), 64))
    y = n.linear(n.layer_norm(y), 512)
    found = searched(n, n.op("slice", y, starts=(0, 127, 0), stops=(1, 128, 512), steps=(1,) * 3))
    kinds = found.graph.types
    whole = [
        node.op for node in found.graph.nodes
        if node.op == "matmul" and kinds[node.output].size >= 128 * 64
    ]  # fmt: skip
    assert len(whole) == 2
    assert "with the next one" in str(found.steps[0])
    assert "us become" in str(found.steps[-1])


def test_what_is_read_elsewhere_is_not_computed_twice() -> None:
    n = Net()
    y = n.linear(n.feed("x", 128, 256), 256)
    some = n.op("slice", y, starts=(0, 0), stops=(64, 256), steps=(1, 1))
    graph = optimize(n.graph(y, some), CLEAN)
    assert search(graph, shipped(), COSTS).steps == ()
