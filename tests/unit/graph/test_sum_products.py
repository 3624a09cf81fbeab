"""Products of a few rows, as sums."""

from __future__ import annotations

import pytest

from autotune.graph.fusion import fuse
from autotune.graph.passes.sum_products import LEAST_DEPTH, MOST_ROWS, SumProducts
from tests.unit.graph.nets import Net, op_counts
from tests.unit.graph.test_passes import run


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3, 1, 32), (2, 3, 9, 32)), ((2, 3, 4, 32), (9, 32)), ((3, 40), (3, 9, 40))]
)
def test_rows_are_multiplied_with_rows(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    n = Net()
    y = n.op("matmul", n.feed("a", *a), n.feed("b", *b), transpose_b=True)
    counts = op_counts(run(SumProducts(), n.graph(y)))
    assert counts == {"reshape": 2, "mul": 1, "reduce_sum": 1}


@pytest.mark.parametrize(
    ("a", "b", "constant"),
    [
        ((4, 9, 512), (4, 512, 1), False),
        ((2, 4, 9, 64), (64, 1), False),
        ((40, 64), (64, 1), True),
    ],
)
def test_one_column_is_multiplied_as_a_row(
    a: tuple[int, ...], b: tuple[int, ...], constant: bool
) -> None:
    n = Net()
    column = n.weights(*b) if constant else n.feed("b", *b)
    found = run(SumProducts(), n.graph(n.op("matmul", n.feed("a", *a), column)))
    counts = op_counts(found)
    assert (counts["mul"], counts["reduce_sum"], counts.get("matmul", 0)) == (1, 1, 0)


def test_what_follows_joins_the_sums() -> None:
    n = Net()
    y = n.op("matmul", n.feed("a", 2, 1, 64), n.feed("b", 2, 9, 64), transpose_b=True)
    found = run(SumProducts(), n.graph(n.op("mul", y, n.scalar(0.125))))
    assert [[node.op for node in group.nodes] for group in fuse(found)] == [
        ["mul", "reduce_sum", "mul"]
    ]


@pytest.mark.parametrize(
    ("rows", "depth", "transposed", "constant"),
    [
        (MOST_ROWS + 1, 64, True, False),
        (1, LEAST_DEPTH - 1, True, False),
        (1, 64, False, False),
        (1, 64, True, True),
    ],
)
def test_other_products_stay(rows: int, depth: int, transposed: bool, constant: bool) -> None:
    n = Net()
    shape = (64, depth) if transposed else (depth, 64)
    b = n.weights(*shape) if constant else n.feed("b", *shape)
    y = n.op("matmul", n.feed("a", rows, depth), b, transpose_b=transposed)
    assert op_counts(run(SumProducts(), n.graph(y))) == {"matmul": 1}
