"""Heads that share keys and values, a row at a time."""

from __future__ import annotations

import pytest

from autotune.graph.passes.group_heads import GroupHeads
from autotune.graph.pipeline import optimize
from tests.unit.graph.nets import Net, op_counts
from tests.unit.graph.test_passes import run


def _repeated(n: Net, x: str, count: int) -> str:
    batch, heads, rows, width = n.shape(x)
    apart = n.op("reshape", x, shape=(batch, heads, 1, rows, width))
    many = n.op("expand", apart, shape=(batch, heads, count, rows, width))
    return n.op("reshape", many, shape=(batch, heads * count, rows, width))


@pytest.mark.parametrize("transpose_b", [False, True])
def test_keys_of_several_heads_are_not_copied(transpose_b: bool) -> None:
    n = Net()
    keys = _repeated(n, n.feed("k", 2, 2, 5, 5), 3)
    y = n.op("matmul", n.feed("q", 2, 6, 1, 5), keys, transpose_b=transpose_b)
    found = run(GroupHeads(), n.graph(y))
    assert op_counts(found) == {"reshape": 4, "matmul": 1}
    assert found.types[found.outputs[0][1]].shape == (2, 6, 1, 5)


def test_nor_where_they_are_transposed_behind_the_copy() -> None:
    n = Net()
    apart = n.op("reshape", n.feed("k", 1, 7, 2, 4), shape=(1, 7, 2, 1, 4))
    many = n.op("expand", apart, shape=(1, 7, 2, 3, 4))
    keys = n.op("transpose", n.op("reshape", many, shape=(1, 7, 6, 4)), perm=(0, 2, 3, 1))
    y = n.op("matmul", n.feed("q", 1, 6, 1, 4), keys, transpose_b=False)
    assert op_counts(run(GroupHeads(), n.graph(y)))["expand"] == 0


def test_several_rows_keep_their_copies() -> None:
    n = Net()
    keys = _repeated(n, n.feed("k", 1, 2, 5, 8), 3)
    y = n.op("matmul", n.feed("q", 1, 6, 4, 8), keys, transpose_b=True)
    assert op_counts(run(GroupHeads(), n.graph(y)))["expand"] == 1


def test_repeated_keys_of_one_head_keep_their_copies() -> None:
    n = Net()
    apart = n.op("reshape", n.feed("k", 1, 6, 5, 8), shape=(1, 6, 5, 1, 8))
    many = n.op("expand", apart, shape=(1, 6, 5, 3, 8))
    keys = n.op("reshape", many, shape=(1, 6, 15, 8))
    y = n.op("matmul", n.feed("q", 1, 6, 1, 8), keys, transpose_b=True)
    assert op_counts(run(GroupHeads(), n.graph(y)))["expand"] == 1


def test_other_expansions_are_left_alone() -> None:
    n = Net()
    single = n.op("expand", n.feed("k", 1, 1, 5, 8), shape=(1, 6, 5, 8))
    other = n.op("reshape", n.op("expand", n.feed("v", 1, 1, 8), shape=(6, 5, 8)),
                 shape=(1, 6, 5, 8))  # fmt: skip
    q = n.feed("q", 1, 6, 1, 8)
    y = n.op("add", *(n.op("matmul", q, b, transpose_b=True) for b in (single, other)))
    assert op_counts(run(GroupHeads(), n.graph(y)))["matmul"] == 2


def test_a_step_of_attention_expands_nothing() -> None:
    n = Net()
    keys, values = (_repeated(n, n.feed(f, 1, 2, 40, 64), 4) for f in "kv")
    scores = n.op("matmul", n.feed("q", 1, 8, 1, 64), keys, transpose_b=True)
    weights = n.op("softmax", n.op("mul", scores, n.scalar(0.125)), axis=3)
    counts = op_counts(optimize(n.graph(n.op("matmul", weights, values, transpose_b=False))))
    assert counts["expand"] == 0
    assert counts["reduce_sum"] == 1
