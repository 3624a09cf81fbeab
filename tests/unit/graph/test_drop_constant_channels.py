"""Products of bytes lose channels that are the same number everywhere, and keep every bit."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.build import GraphBuilder
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.passes.drop_constant_channels import DropConstantChannels
from autotune.graph.passes.fold_affine import FoldAffine
from autotune.types import Array, TensorType

RNG = np.random.default_rng(0)
PASS = DropConstantChannels(together=4)


def scaled(g: GraphBuilder, total: str, bias: Array) -> str:
    """Sums as bytes: a bias, a shift, limits."""
    total = g.op("add", total, g.constant(bias.astype(np.int32)))
    total = g.op("shift_right", total, g.constant(np.full(1, 7, np.int32)))
    return g.op("to_uint8", g.op("clip", total, min=0, max=255))


def conv(g: GraphBuilder, x: str, weights: Array, **attrs: object) -> str:
    given = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "groups": 1}
    return g.op("conv2d", x, g.constant(weights), **(given | attrs))  # type: ignore[arg-type]


def weights_of(shape: tuple[int, ...], empty: tuple[int, ...]) -> Array:
    """Random filters, some of them all zero."""
    out = RNG.integers(-128, 128, shape).astype(np.int8)
    out[..., list(empty)] = 0
    return out


def biases(count: int) -> Array:
    return RNG.integers(-2000, 30000, count)


def block(*, pads: tuple[int, int, int, int] = (0, 0, 0, 0), last: int = 16) -> Graph:
    """Products, a filter for each channel, products."""
    g = GraphBuilder("block")
    g.input("x", TensorType(dtype="uint8", shape=(1, 6, 7, 8)))
    y = scaled(g, conv(g, "x", weights_of((1, 1, 8, 16), tuple(range(3, 12)))), biases(16))
    each = weights_of((3, 3, 1, 16), (13,))
    y = scaled(g, conv(g, y, each, pads=pads, groups=16), biases(16))
    y = conv(g, y, weights_of((1, 1, 16, last), ()))
    return g.finish([("y", y)])


def widths(graph: Graph) -> list[tuple[int, ...]]:
    return [graph.constants[n.inputs[1]].shape for n in graph.nodes if n.op == "conv2d"]


def same(graph: Graph) -> Graph:
    """The graph after the pass, which gives the same bytes."""
    after = PASS.run(graph)
    same_results(graph, after)
    return after


def same_results(graph: Graph, after: Graph) -> None:
    feeds = {
        name: RNG.integers(0, 256, kind.shape).astype(kind.dtype) for name, kind in graph.inputs
    }
    asked = run_graph(graph, feeds)
    for name, found in run_graph(after, feeds).items():
        np.testing.assert_array_equal(found, asked[name])


def test_empty_filters_and_what_is_made_of_them_leave() -> None:
    """Seven of sixteen channels have something in them: two are made up."""
    after = same(block())
    assert widths(after) == [(1, 1, 8, 8), (3, 3, 1, 8), (1, 1, 8, 16)]


def test_no_node_is_added() -> None:
    """What a bias is added to anyway gets the constants with it."""
    g = GraphBuilder("two")
    g.input("x", TensorType(dtype="uint8", shape=(1, 2, 2, 8)))
    y = scaled(g, conv(g, "x", weights_of((1, 1, 8, 8), (0, 1, 2, 3, 4))), biases(8))
    y = scaled(g, conv(g, y, weights_of((1, 1, 8, 8), ())), biases(8))
    graph = g.finish([("y", y)])
    after = FoldAffine().run(same(graph))
    assert len(after.nodes) == len(graph.nodes)
    same_results(graph, after)


def test_zeros_beside_the_image_are_no_constants_of_others() -> None:
    """A filter that sees both gives other numbers at the edge: its channel stays."""
    after = same(block(pads=(1, 1, 1, 1)))
    assert widths(after)[1] == (3, 3, 1, 16)


def test_channels_that_nothing_reads_leave() -> None:
    g = GraphBuilder("unread")
    g.input("x", TensorType(dtype="uint8", shape=(1, 2, 2, 8)))
    y = scaled(g, conv(g, "x", weights_of((1, 1, 8, 8), (0,))), biases(8))
    weights = weights_of((1, 1, 8, 8), ())
    weights[:, :, :5] = 0
    graph = g.finish([("y", conv(g, y, weights))])
    assert widths(same(graph)) == [(1, 1, 8, 4), (1, 1, 4, 8)]


def test_results_and_sums_of_two_branches_keep_theirs() -> None:
    g = GraphBuilder("branches")
    g.input("x", TensorType(dtype="uint8", shape=(1, 3, 3, 8)))
    a = scaled(g, conv(g, "x", weights_of((1, 1, 8, 8), (0, 1, 2, 3, 4, 5))), biases(8))
    b = scaled(g, conv(g, "x", weights_of((1, 1, 8, 8), (0, 1, 2, 3, 6, 7))), biases(8))
    y = g.op("max", a, b)
    y = conv(g, y, weights_of((1, 1, 8, 4), ()))
    graph = g.finish([("y", y), ("b", b)])
    assert widths(same(graph)) == widths(graph)
    graph = g.finish([("y", y)])
    assert widths(same(graph)) == [(1, 1, 8, 4), (1, 1, 8, 4), (1, 1, 4, 4)]


@pytest.mark.parametrize("seed", range(6))
def test_random_chains_keep_every_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels, g = 12, GraphBuilder("chain")
    y = g.input("x", TensorType(dtype="uint8", shape=(1, 5, 5, 12)))
    for _ in range(4):
        empty = tuple(np.flatnonzero(rng.random(channels) < 0.5))
        pads = (1, 1, 1, 1) if rng.random() < 0.5 else (0, 0, 0, 0)
        if rng.random() < 0.4:
            filters = weights_of((3, 3, 1, channels), empty)
            y = conv(g, y, filters, pads=(1, 1, 1, 1), groups=channels)
        else:
            size = 3 if pads[0] else 1
            y = conv(g, y, weights_of((size, size, channels, channels), empty), pads=pads)
        low = 0 if rng.random() < 0.5 else -2000
        y = scaled(g, y, rng.integers(low, 30000, channels) * (rng.random(channels) < 0.5))
    same(g.finish([("y", conv(g, y, weights_of((1, 1, channels, 4), ())))]))


def test_copies_along_other_axes_have_as_many_channels() -> None:
    g = GraphBuilder("copies")
    g.input("x", TensorType(dtype="uint8", shape=(1, 1, 3, 8)))
    y = scaled(g, conv(g, "x", weights_of((1, 1, 8, 8), (0, 1, 2, 3, 4))), biases(8))
    y = g.op("expand", y, shape=(1, 2, 3, 8))
    graph = g.finish([("y", conv(g, y, weights_of((1, 1, 8, 4), ())))])
    assert widths(same(graph)) == [(1, 1, 8, 4), (1, 1, 4, 4)]


def test_a_constant_may_be_a_single_number_without_axes() -> None:
    g = GraphBuilder("number")
    g.input("x", TensorType(dtype="uint8", shape=(1, 2, 2, 8)))
    y = conv(g, "x", weights_of((1, 1, 8, 8), (0, 1, 2, 3, 4)))
    y = g.op("add", y, g.constant(np.array(700, np.int32)))
    y = g.op("to_uint8", g.op("clip", y, min=0, max=255))
    graph = g.finish([("y", conv(g, y, weights_of((1, 1, 8, 4), ())))])
    assert widths(same(graph)) == [(1, 1, 8, 4), (1, 1, 4, 4)]


def test_channels_stay_where_it_matters_which_they_are() -> None:
    """A causal mask hides a channel by its place among the others."""
    g = GraphBuilder("masked")
    g.input("x", TensorType(dtype="uint8", shape=(8, 8)))
    y = g.op("matmul", "x", g.constant(weights_of((8, 8), (0,))))
    y = g.op("clip", g.op("causal", g.op("to_float32", y)), min=0, max=255)
    last = weights_of((8, 4), ())
    last[:4] = 0
    graph = g.finish([("y", g.op("matmul", g.op("to_uint8", y), g.constant(last)))])
    assert same(graph) == graph
