"""Which nodes share a kernel."""

from __future__ import annotations

import pytest

from autotune.graph.fusion import fuse
from autotune.graph.ir import Graph
from autotune.graph.pipeline import optimize
from tests.unit.graph.nets import Net


def groups(graph: Graph) -> list[str]:
    """Ops of every group, in execution order, scalars left out."""
    return [
        " ".join(n.op for n in group.nodes if n.op != "scalar") for group in fuse(optimize(graph))
    ]


def image_groups(net: Net, *values: str) -> list[str]:
    """Groups of an image network, every output reduced to a vector first."""
    pooled = [net.op("reduce_mean", v, axes=(2, 3), keepdims=False) for v in values]
    return [g for g in groups(net.graph(*pooled)) if g != "reduce_mean"]


def test_bias_residual_and_activation_join_the_convolution() -> None:
    n = Net()
    x = n.feed("x", 1, 4, 6, 6)
    first = n.op("relu", n.batch_norm(n.conv(x, 4)))
    second = n.op("relu", n.op("add", n.batch_norm(n.conv(first, 4)), first))
    assert image_groups(n, second) == ["conv2d add relu", "conv2d add add relu"]


def test_of_two_convolutions_the_later_takes_the_residual_add() -> None:
    n = Net()
    x = n.feed("x", 1, 4, 6, 6)
    left, right = n.batch_norm(n.conv(x, 4, k=1)), n.batch_norm(n.conv(x, 4))
    assert image_groups(n, n.op("add", left, right)) == ["conv2d add", "conv2d add add"]
    assert image_groups(n, n.op("add", right, left)) == ["conv2d add", "conv2d add add"]


def test_gelu_from_erf_joins_the_matmul() -> None:
    n = Net()
    x = n.linear(n.feed("x", 4, 8), 8)
    one = n.op("add", n.op("erf", n.op("div", x, n.scalar(1.5))), n.scalar(1.0))
    gelu = n.op("mul", n.op("mul", x, one), n.scalar(0.5))
    assert groups(n.graph(gelu)) == ["matmul add mul erf add mul mul"]


def test_a_value_read_outside_ends_the_group() -> None:
    n = Net()
    x = n.linear(n.feed("x", 4, 8), 8)
    graph = n.graph(n.op("relu", x), n.op("matmul", x, n.weights(8, 2), transpose_b=False))
    assert sorted(groups(graph)) == ["matmul", "matmul add", "relu"]


def test_an_output_of_the_graph_ends_the_group() -> None:
    n = Net()
    x = n.linear(n.feed("x", 4, 8), 8)
    assert groups(n.graph(x, n.op("relu", x))) == ["matmul add", "relu"]


def test_an_operand_that_depends_on_the_group_is_not_taken() -> None:
    n = Net()
    x = n.linear(n.feed("x", 4, 8), 8)
    assert groups(n.graph(n.op("add", x, n.linear(x, 8)))) == ["matmul add", "matmul add add"]


def test_what_broadcasts_to_a_larger_shape_stays_outside() -> None:
    n = Net()
    row = n.op("matmul", n.feed("x", 1, 8), n.weights(8, 4), transpose_b=False)
    assert groups(n.graph(n.op("add", row, n.feed("y", 3, 4)))) == ["matmul", "add"]


def test_a_row_operator_takes_elementwise_nodes_on_both_sides() -> None:
    n = Net()
    x = n.op("add", n.feed("x", 4, 8), n.feed("y", 4, 8))
    after = n.op("mul", n.op("softmax", n.op("exp", x), axis=1), n.feed("z", 4, 8))
    assert groups(n.graph(after)) == ["add exp softmax mul"]


def test_a_prologue_with_another_reader_stays_outside() -> None:
    n = Net()
    x = n.op("exp", n.feed("x", 4, 8))
    assert sorted(groups(n.graph(n.op("softmax", x, axis=1), n.op("neg", x)))) == [
        "exp", "neg", "softmax",
    ]  # fmt: skip


def test_a_reduction_takes_an_epilogue_in_its_result_shape() -> None:
    n = Net()
    total = n.op("reduce_sum", n.feed("x", 4, 8), axes=(1,), keepdims=True)
    assert groups(n.graph(n.op("sqrt", total))) == ["reduce_sum sqrt"]


def test_elementwise_nodes_form_one_kernel_with_one_output() -> None:
    n = Net()
    x = n.op("exp", n.feed("x", 5))
    assert groups(n.graph(n.op("add", n.op("neg", x), n.op("tanh", x)))) == ["exp neg tanh add"]


def test_an_elementwise_side_branch_joins_the_kernel_it_feeds() -> None:
    n = Net()
    x = n.linear(n.feed("x", 4, 8), 8)
    side = n.op("mul", n.feed("y", 4, 8), n.weights(8))
    assert groups(n.graph(n.op("add", x, side))) == ["matmul add mul add"]


def test_scalars_are_copied_into_every_group() -> None:
    n = Net()
    half = n.op("scalar", value=0.5, dtype="float32")
    x = n.feed("x", 3)
    first, second = n.op("mul", x, half), n.op("sub", x, half)
    found = fuse(n.graph(first, second))
    assert [[m.op for m in g.nodes] for g in found] == [["scalar", "mul"], ["scalar", "sub"]]


def test_embedding_sum_joins_the_gather() -> None:
    n = Net()
    table, positions = n.weights(20, 6), n.weights(1, 5, 6)
    ids = n.op("to_int64", n.feed("x", 1, 5))
    found = n.op("add", n.op("gather", table, ids, axis=0), positions)
    assert groups(n.graph(n.layer_norm(found))) == ["to_int64", "gather add", "layer_norm"]


def scores_and_values(n: Net, rows: int = 16, keys: int = 96) -> tuple[str, str]:
    """Scaled products of two inputs, and a third input."""
    q, k, v = n.feed("q", 2, rows, 8), n.feed("k", 2, keys, 8), n.feed("v", 2, keys, 12)
    scores = n.op("matmul", q, k, transpose_b=True)
    return n.op("mul", scores, n.scalar(0.5)), v


def test_products_and_the_softmax_between_them_are_one_kernel() -> None:
    n = Net()
    scores, v = scores_and_values(n)
    masked = n.op("add", scores, n.feed("mask", 1, 96))
    mixed = n.op("matmul", n.op("softmax", masked, axis=2), v, transpose_b=False)
    result = n.op("add", mixed, n.feed("r", 2, 16, 12))
    assert groups(n.graph(result)) == ["matmul mul add softmax matmul add"]


def test_attention_is_three_kernels_where_that_is_asked_for() -> None:
    n = Net()
    scores, v = scores_and_values(n)
    graph = optimize(
        n.graph(n.op("matmul", n.op("softmax", scores, axis=2), v, transpose_b=False))
    )
    assert [len(g.nodes) for g in fuse(graph, attention=False)] == [3, 1, 1]


@pytest.mark.parametrize(("rows", "keys"), [(2, 96), (16, 48)])
def test_few_scores_are_cheaper_in_three_kernels(rows: int, keys: int) -> None:
    n = Net()
    scores, v = scores_and_values(n, rows, keys)
    mixed = n.op("matmul", n.op("softmax", scores, axis=2), v, transpose_b=False)
    assert groups(n.graph(mixed)) == ["matmul mul", "softmax", "matmul"]


def test_a_softmax_that_others_read_is_a_kernel_of_its_own() -> None:
    n = Net()
    scores, v = scores_and_values(n)
    weights = n.op("softmax", scores, axis=2)
    mixed = n.op("matmul", weights, v, transpose_b=False)
    assert groups(n.graph(mixed, weights)) == ["matmul mul", "softmax", "matmul"]


def test_a_mask_made_of_the_scores_is_not_joined() -> None:
    n = Net()
    scores, v = scores_and_values(n)
    largest = n.op("reduce_max", scores, axes=(2,), keepdims=True)
    weights = n.op("softmax", n.op("sub", scores, largest), axis=2)
    mixed = n.op("matmul", weights, v, transpose_b=False)
    assert "softmax" not in groups(n.graph(mixed))[0]


def test_zeros_for_rows_without_scores_stay_in_the_kernel() -> None:
    n = Net()
    scores, v = scores_and_values(n)
    weights = n.op("softmax", scores, axis=2)
    safe = n.op("where", n.op("ne", weights, weights), n.scalar(0.0), weights)
    mixed = n.op("matmul", safe, v, transpose_b=False)
    assert groups(n.graph(mixed)) == ["matmul mul softmax ne where matmul"]


def test_gathered_rows_join_the_scatter_that_adds_them() -> None:
    n = Net()
    x, factors = n.linear(n.feed("x", 9, 8), 8), n.feed("factors", 20, 1)
    sources = n.feed("sources", 20, dtype="int64")
    places = n.feed("places", 20, 1, dtype="int64")
    messages = n.op("mul", n.op("gather", x, sources, axis=0), factors)
    start = n.op("relu", n.feed("start", 9, 8))
    added = n.op("scatter", start, places, messages, axis=0, reduction="add")
    assert groups(n.graph(added)) == ["matmul add", "gather mul relu scatter"]


def test_messages_that_are_read_twice_have_a_kernel() -> None:
    n = Net()
    places, messages = n.feed("places", 20, 1, dtype="int64"), n.op("relu", n.feed("m", 20, 8))
    added = n.op("scatter", n.feed("start", 9, 8), places, messages, axis=0, reduction="add")
    assert groups(n.graph(added, messages)) == ["relu", "scatter"]


def test_places_are_computed_ahead_of_the_scatter() -> None:
    n = Net()
    wide = n.feed("places", 20, 8, dtype="int64")
    places, start = n.op("abs", wide), n.feed("start", 9, 8)
    added = n.op("scatter", start, places, n.op("relu", n.feed("m", 20, 8)), axis=0)
    assert groups(n.graph(added)) == ["abs", "relu scatter"]


@pytest.mark.parametrize("behind", [False, True])
def test_chains_that_read_values_again_and_again_are_cut(behind: bool) -> None:
    """Written out, 40 swishes with a residual would be 3 ** 40 operations."""
    n = Net()
    x = n.feed("x", 4, 8)
    x = n.linear(x, 8) if behind else x
    for _ in range(40):
        x = n.op("add", n.op("mul", x, n.op("sigmoid", x)), x)
    found = groups(n.graph(x))
    assert " ".join(found).count("add") == 40 + behind
    assert 8 <= len(found) <= 20


def test_truths_lie_between_a_kernel_and_what_they_choose() -> None:
    n = Net()
    x = n.linear(n.feed("x", 4, 8), 8)
    negative = n.op("lt", x, n.scalar(0.0))
    y = n.op("where", negative, n.op("mul", x, n.weights(8)), x)
    assert groups(n.graph(y)) == ["matmul add lt mul where"]


def test_truths_that_are_read_are_not_stored_by_the_kernel() -> None:
    n = Net()
    x = n.linear(n.feed("x", 4, 8), 8)
    assert groups(n.graph(n.op("lt", x, n.scalar(0.0)))) == ["matmul add", "lt"]
