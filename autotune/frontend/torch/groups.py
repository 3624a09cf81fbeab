"""ATen importers: products of groups of rows, each with a matrix of its own, as mixtures of
experts have them."""

from __future__ import annotations

import numpy as np

from autotune.frontend.torch.context import AtenCall, aten

MOST_WORK = 1 << 27
"""Multiply-adds beyond which a product of every row with every matrix is left to PyTorch, which
takes each group's rows alone."""
MOST_PICKED = 1 << 25
"""Elements of matrices, picked row by row."""
PICKING = 16
"""Matrices from which on picking one for each row (12 bytes an element at 20 GB/s) takes less time
than multiplying with all of them (50 GFLOP/s)."""


@aten("_grouped_mm", "transformers.grouped_mm_fallback")
def grouped_product(n: AtenCall) -> str:
    """Rows [S, K], in order of their groups, by matrices [G, K, N]; `offs` says where each group
    ends. Rows behind the last group are zeros."""
    of_aten = n.has("mat2")
    x, w = n.value("self" if of_aten else "input"), n.value("mat2" if of_aten else "weight")
    if n.given("offs") is None or (n.rank(x), n.rank(w)) != (2, 3) or 0 in n.shape(x):
        n.refuse(f"groups of {n.shape(x)} by {n.shape(w)}")
    if of_aten and n.given("bias") is not None:
        n.refuse("groups with a bias")
    ends, (rows, depth), (groups, _, width) = n.value("offs"), n.shape(x), n.shape(w)
    row = n.constant(np.arange(rows, dtype=np.int64)[:, None])
    passed = n.op("ge", row, n.reshape(n.cast(ends, "int64"), (1, groups)))
    group = n.op("reduce_sum", n.cast(passed, "int64"), axes=(1,), keepdims=False)
    if groups >= PICKING and rows * depth * width <= MOST_PICKED:
        return _picked(n, x, w, group)
    if rows * groups * depth * width > MOST_WORK:
        n.refuse(f"{groups} groups of {rows} rows by {depth} x {width}")
    # A row stands in its group's part of a longer one, beside zeros.
    own = n.constant(np.arange(groups, dtype=np.int64)[None])
    here = n.op("eq", n.reshape(group, (rows, 1)), own)
    wide = n.op(
        "where", n.reshape(here, (rows, groups, 1)), n.reshape(x, (rows, 1, depth)), n.like(0, x)
    )
    table = n.reshape(w, (groups * depth, width))
    wide = n.reshape(wide, (rows, groups * depth))
    return n.op("matmul", wide, table, transpose_b=False)


def _picked(n: AtenCall, x: str, w: str, group: str) -> str:
    """Each row by the matrix of its group."""
    rows, depth = n.shape(x)
    groups, _, width = n.shape(w)
    inside = n.op("lt", group, n.like(groups, group))
    tables = n.op("gather", w, n.op("min", group, n.like(groups - 1, group)), axis=0)
    y = n.op("matmul", n.reshape(x, (rows, 1, depth)), tables, transpose_b=False)
    y = n.reshape(y, (rows, width))
    return n.op("where", n.reshape(inside, (rows, 1)), y, n.like(0, x))
