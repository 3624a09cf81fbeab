"""What each pass does, on the smallest graph that shows it."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.fusion import fuse
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.graph.passes import push_orders
from autotune.graph.passes.canonical_operands import CanonicalOperands
from autotune.graph.passes.canonical_weights import CanonicalWeights
from autotune.graph.passes.common_subexpressions import ShareCommonSubexpressions
from autotune.graph.passes.concats import NestConcats, SplitOverConcat
from autotune.graph.passes.fold_affine import FoldAffine
from autotune.graph.passes.fold_constants import FoldConstants
from autotune.graph.passes.push_orders import PushOrders
from autotune.graph.passes.push_transposes import PushTransposes
from autotune.graph.passes.remove_identities import RemoveIdentities
from autotune.graph.pipeline import Pass, optimize
from autotune.shapes import factor_groups
from tests.graph_verify import verify_graph
from tests.unit.graph.nets import TO_NCHW, TO_NHWC, Net, op_counts, random_feeds


def run(step: Pass, graph: Graph) -> Graph:
    """The pass's result, verified to be valid and to compute the same."""
    after = step.run(graph)
    verify_graph(after)
    feeds = random_feeds(graph)
    expected, got = run_graph(graph, feeds), run_graph(after, feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5)
    return after


def test_constants_are_folded() -> None:
    n = Net()
    shifted = n.op("add", n.weights(4), n.op("mul", n.weights(4), n.scalar(2.0)))
    graph = run(FoldConstants(), n.graph(n.op("add", n.feed("x", 4), shifted)))
    assert op_counts(graph) == {"add": 1}


def test_folding_does_not_blow_up_weights() -> None:
    n = Net()
    wide = n.op("expand", n.weights(1, 8), shape=(64, 8))
    graph = n.graph(n.op("matmul", n.feed("x", 2, 64), wide, transpose_b=False))
    assert op_counts(run(FoldConstants(small_bytes=0), graph))["expand"] == 1
    assert op_counts(run(FoldConstants(), graph))["expand"] == 0


def test_dead_nodes_go_and_inputs_stay() -> None:
    n = Net()
    n.feed("unused", 3)
    x = n.feed("x", 3)
    full = n.finish([("y", n.op("relu", x)), ("z", n.op("exp", x))])
    graph = FoldConstants().run(Graph(
        name="net", inputs=full.inputs, outputs=full.outputs[:1], nodes=full.nodes,
        constants=full.constants, types=full.types,
    ))  # fmt: skip
    assert op_counts(graph) == {"relu": 1}
    assert [name for name, _ in graph.inputs] == ["unused", "x"]


def test_equal_nodes_are_shared_even_with_operands_swapped() -> None:
    n = Net()
    x, y = n.feed("x", 3), n.feed("y", 3)
    total = n.op("mul", n.op("add", x, y), n.op("add", y, x))
    assert op_counts(run(ShareCommonSubexpressions(), n.graph(total))) == {"add": 1, "mul": 1}


def test_equal_constants_are_shared() -> None:
    n = Net()
    ones = np.ones(3, np.float32)
    x = n.feed("x", 3)
    sums = [n.op("sub", x, n.constant(ones.copy())) for _ in range(2)]
    assert op_counts(run(ShareCommonSubexpressions(), n.graph(*sums))) == {"sub": 1}


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("copy", {}),
        ("reshape", {"shape": (2, 3)}),
        ("transpose", {"perm": (0, 1)}),
        ("slice", {"starts": (0, 0), "stops": (2, 3), "steps": (1, 1)}),
        ("pad", {"pads": (0, 0, 0, 0)}),
        ("to_float32", {}),
    ],
)
def test_identities_are_removed(op: str, attrs: dict[str, tuple[int, ...]]) -> None:
    n = Net()
    same = n.op(op, n.feed("x", 2, 3), **attrs)
    assert op_counts(run(RemoveIdentities(), n.graph(n.op("relu", same)))) == {"relu": 1}


def test_a_pad_that_cuts_as_much_as_it_fills_up_stays() -> None:
    n = Net()
    moved = n.op("pad", n.feed("x", 5), pads=(1, -1), value=1.0)
    assert op_counts(run(RemoveIdentities(), n.graph(moved))) == {"pad": 1}


def test_neutral_constants_are_removed_unless_they_broadcast() -> None:
    n = Net()
    x = n.feed("x", 3)
    one = n.op("mul", x, n.scalar(1.0))
    wider = n.op("add", one, n.constant(np.zeros((2, 3), np.float32)))
    assert op_counts(run(RemoveIdentities(), n.graph(wider))) == {"add": 1}


def test_inverse_transposes_cancel_and_reshapes_merge() -> None:
    n = Net()
    there = n.op("transpose", n.feed("x", 2, 3, 4, 5), perm=TO_NHWC)
    back = n.op("transpose", there, perm=TO_NCHW)
    flat = n.op("reshape", n.op("reshape", back, shape=(6, 20)), shape=(120,))
    assert op_counts(run(RemoveIdentities(), n.graph(flat))) == {"reshape": 1}


def test_a_transpose_of_units_is_a_reshape() -> None:
    n = Net()
    graph = n.graph(n.op("transpose", n.feed("x", 1, 8, 1, 1), perm=TO_NHWC))
    assert op_counts(run(RemoveIdentities(), graph)) == {"reshape": 1}


def test_division_by_a_scalar_becomes_multiplication() -> None:
    n = Net()
    graph = n.graph(n.op("div", n.feed("x", 3), n.scalar(4.0)))
    assert op_counts(run(RemoveIdentities(), graph)) == {"mul": 1}


def test_division_by_zero_stays() -> None:
    n = Net()
    graph = RemoveIdentities().run(n.graph(n.op("div", n.feed("x", 3), n.scalar(0.0))))
    assert op_counts(graph) == {"div": 1}


def test_an_expand_before_a_broadcasting_reader_goes() -> None:
    n = Net()
    wide = n.op("expand", n.feed("x", 1, 4), shape=(3, 4))
    graph = n.graph(n.op("add", wide, n.feed("y", 3, 4)))
    assert op_counts(run(RemoveIdentities(), graph)) == {"add": 1}


def test_transposes_between_image_operators_cancel() -> None:
    n = Net()
    x = n.op("relu", n.batch_norm(n.conv(n.feed("x", 1, 3, 8, 8), 4)))
    y = n.op("concat", n.max_pool(x), n.conv(x, 4, stride=2), axis=1)
    graph = run(PushTransposes(), n.graph(n.op("reduce_mean", y, axes=(2, 3), keepdims=False)))
    assert op_counts(graph)["transpose"] == 1
    assert graph.nodes[0].op == "transpose"


def test_what_is_repeated_over_an_image_is_turned_before_that() -> None:
    """The whole image was turned instead, to the order of what is repeated, and back."""
    n = Net()
    image = n.conv(n.feed("x", 1, 8, 12, 12), 8)
    alike = n.op("expand", n.feed("y", 1, 8, 1, 1), shape=(1, 8, 12, 12))
    joined = n.op("concat", image, alike, axis=1)
    graph = optimize(n.graph(n.conv(joined, 8)))
    assert op_counts(graph)["transpose"] == 2  # of the input and of the output


def test_a_transposed_output_keeps_its_transpose() -> None:
    n = Net()
    graph = run(PushTransposes(), n.graph(n.op("relu", n.conv(n.feed("x", 1, 3, 6, 5), 4))))
    assert graph.nodes[-1].op == "transpose"


def test_channel_shuffle_needs_one_transpose() -> None:
    n = Net()
    x = n.conv(n.feed("x", 2, 3, 5, 5), 6)
    parts = n.op("reshape", x, shape=(2, 2, 3, 5, 5))
    mixed = n.op("transpose", parts, perm=(0, 2, 1, 3, 4))
    shuffled = n.op("reshape", mixed, shape=(2, 6, 5, 5))
    last = n.op("reduce_mean", n.conv(shuffled, 4, k=1), axes=(2, 3), keepdims=False)
    graph = run(PushTransposes(), n.graph(last))
    assert op_counts(graph)["transpose"] == 2  # of the input, and of the groups


def test_slice_pad_softmax_argmax_take_any_order() -> None:
    n = Net()
    x = n.conv(n.feed("x", 1, 3, 6, 5), 4)
    x = n.op("slice", x, starts=(0, 1, 0, 2), stops=(1, 4, 6, 5), steps=(1, 1, 2, 1))
    x = n.op("softmax", n.op("pad", x, pads=(0, 0, 1, 0, 0, 1, 0, 2), value=0.0), axis=1)
    graph = run(PushTransposes(), n.graph(n.op("argmax", x, axis=1, keepdims=False)))
    assert op_counts(graph)["transpose"] == 1


def test_keys_of_attention_are_read_transposed() -> None:
    n = Net()
    graph = optimize(n.graph(n.attention(n.feed("x", 1, 6, 16), heads=2)))
    flags = [node.attributes["transpose_b"] for node in graph.nodes if node.op == "matmul"]
    assert flags == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ((6, 1, 4), (2, 3, 4), [([0], [0, 1]), ([2], [2])]),
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((4, 6), (8, 3), [([0, 1], [0, 1])]),
        ((1, 1), (1,), []),
    ],
)
def test_reshapes_factor(
    before: tuple[int, ...], after: tuple[int, ...], groups: list[tuple[list[int], list[int]]]
) -> None:
    assert factor_groups(before, after) == groups


def test_the_transpose_before_a_flatten_goes_into_the_weights() -> None:
    n = Net()
    image = n.conv(n.feed("x", 2, 3, 4, 5), 6)
    flat = n.op("reshape", image, shape=(2, 120))
    graph = PushTransposes().run(n.graph(n.linear(flat, 7)))
    assert op_counts(graph)["transpose"] == 2
    assert op_counts(run(PushOrders(), graph))["transpose"] == 1


def test_large_weights_of_many_columns_stay_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A permuted copy would take as much memory again; moving the activations takes no time."""
    n = Net()
    image = n.op("transpose", n.feed("x", 2, 4, 5, 6), perm=TO_NCHW)
    flat = n.op("reshape", image, shape=(2, 120))
    graph = n.graph(n.linear(flat, 7))
    monkeypatch.setattr(push_orders, "LARGE_BYTES", 120 * 7 * 4)
    assert op_counts(run(PushOrders(), graph)).get("transpose") is None
    monkeypatch.setattr(push_orders, "FEW_COLUMNS", 7)
    assert op_counts(run(PushOrders(), graph))["transpose"] == 1


def test_batch_norm_and_bias_go_into_weights() -> None:
    n = Net()
    x = n.conv(n.feed("x", 1, 3, 6, 6), 4)
    x = n.batch_norm(n.batch_norm(n.op("add", x, n.weights(1, 4, 1, 1))))
    graph = run(FoldAffine(), PushTransposes().run(n.graph(n.op("relu", x))))
    assert op_counts(graph) == {"transpose": 2, "conv2d": 1, "add": 1, "relu": 1}


def test_batch_norm_stays_where_the_convolution_has_another_reader() -> None:
    n = Net()
    x = n.conv(n.feed("x", 1, 3, 6, 6), 4)
    graph = run(FoldAffine(), PushTransposes().run(n.graph(n.batch_norm(x), n.op("relu", x))))
    assert op_counts(graph)["mul"] == 1


def test_weights_of_bytes_take_no_factor() -> None:
    n = Net()
    weights = n.constant(np.arange(-24, 24, dtype=np.int8).reshape(8, 6))
    product = n.op("matmul", n.feed("x", 2, 8), weights, transpose_b=False)
    graph = run(FoldAffine(), n.graph(n.op("mul", product, n.weights(6))))
    assert op_counts(graph) == {"matmul": 1, "mul": 1}


def test_a_scale_reaches_the_weights_through_views() -> None:
    n = Net()
    x = n.op("reshape", n.linear(n.feed("x", 4, 8), 6), shape=(4, 2, 3))
    scaled = n.op("mul", n.op("transpose", x, perm=(1, 0, 2)), n.scalar(0.125))
    graph = run(FoldAffine(), n.graph(scaled))
    assert op_counts(graph) == {"matmul": 1, "add": 1, "reshape": 1, "transpose": 1}


def test_operand_constants_take_one_form() -> None:
    n = Net()
    x = n.op("add", n.feed("x", 2, 5, 4), n.constant(np.full((1, 1, 1), 2.0, np.float32)))
    graph = run(CanonicalOperands(), n.graph(n.op("mul", x, n.weights(1, 1, 4))))
    assert op_counts(graph) == {"scalar": 1, "add": 1, "mul": 1}
    assert [a.shape for a in graph.constants.values()] == [(4,)]


def test_a_scalar_read_as_a_tensor_becomes_a_constant() -> None:
    n = Net()
    graph = n.graph(n.op("reshape", n.op("scalar", value=2.0, dtype="float32"), shape=(1,)))
    assert op_counts(run(CanonicalOperands(), graph)) == {"reshape": 1}


def test_constant_matmul_weights_are_not_transposed() -> None:
    n = Net()
    graph = n.graph(n.op("matmul", n.feed("x", 2, 3), n.weights(5, 3), transpose_b=True))
    (node,) = run(CanonicalWeights(), graph).nodes
    assert node.attributes["transpose_b"] is False


def test_growing_concats_nest() -> None:
    n = Net()
    a, b, c = (n.feed(name, 2, 3) for name in "abc")
    first, second = n.op("concat", a, b, axis=1), n.op("concat", a, b, c, axis=1)
    graph = run(NestConcats(), n.graph(first, second))
    assert graph.nodes[1].inputs == (graph.nodes[0].output, "c")


def test_an_activation_moves_in_front_of_a_concat() -> None:
    n = Net()
    x = n.feed("x", 2, 3)
    graph = n.graph(n.op("relu", n.op("concat", n.linear(x, 2), n.linear(x, 4), axis=1)))
    assert run(SplitOverConcat(), graph).nodes[-1].op == "concat"


def test_an_activation_moves_into_joined_parts_that_are_reshaped_or_joined_themselves() -> None:
    n = Net()
    x = n.feed("x", 2, 3)
    parts = [n.op("reshape", n.linear(x, 4), shape=(2, 1, 4)) for _ in range(4)]
    pairs = [n.op("concat", *parts[i : i + 2], axis=1) for i in (0, 2)]
    graph = n.graph(n.op("relu", n.op("concat", *pairs, axis=1)))
    assert op_counts(run(SplitOverConcat(), graph))["relu"] == 2
    assert [len(g.nodes) for g in fuse(optimize(graph))] == [3] * 4


def test_an_activation_stays_behind_a_concat_of_inputs() -> None:
    n = Net()
    graph = n.graph(n.op("relu", n.op("concat", n.feed("x", 2), n.feed("y", 2), axis=0)))
    assert run(SplitOverConcat(), graph).nodes[-1].op == "relu"


def test_additions_of_whole_numbers_merge_as_they_wrap() -> None:
    n = Net()
    x = n.op("to_int8", n.feed("x", 4))
    near = n.op("add", x, n.constant(np.full(4, 100, np.int8)))
    far = n.op("add", near, n.constant(np.full(4, 90, np.int8)))
    graph = run(FoldAffine(), n.graph(far))
    assert op_counts(graph)["add"] == 1
