"""ONNX importers: matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx_context import NodeContext, importer


@importer("MatMul")
def matmul(n: NodeContext) -> str:
    a, b = n.input(0), n.input(1)
    if n.rank(a) == 0 or n.rank(b) == 0:
        raise ModelError("operands must have at least one dimension")
    row, column = n.rank(a) == 1, n.rank(b) == 1
    if row:
        a = n.reshape(a, (1, *n.shape(a)))
    if column:
        b = n.reshape(b, (*n.shape(b), 1))
    y = n.op("matmul", a, b, transpose_b=False)
    *batch, m, k = n.shape(y)
    return n.reshape(y, (*batch, *(() if row else (m,)), *(() if column else (k,))))


@importer("Gemm")
def gemm(n: NodeContext) -> str:
    return matrix_product(n)


def matrix_product(n: NodeContext) -> str:
    """alpha * A @ B + beta * C."""
    a, b, c = n.input(0), n.input(1), n.optional(2)
    alpha, beta = n.number("alpha", 1.0), n.number("beta", 1.0)
    if n.rank(a) != 2 or n.rank(b) != 2:
        raise ModelError(f"operands must be matrices, got {n.shape(a)} and {n.shape(b)}")
    if n.integer("transA", 0):
        a = n.transpose(a, (1, 0))
    transposed = bool(n.integer("transB", 0))
    if transposed and n.known(b) is not None:
        b, transposed = n.transpose(b, (1, 0)), False
    y = n.op("matmul", a, b, transpose_b=transposed)
    if alpha != 1.0:
        y = n.op("mul", y, n.like(alpha, y))
    if c is None or beta == 0.0:
        return y
    if beta != 1.0:
        c = n.op("mul", c, n.like(beta, c))
    return n.op("add", y, c)


@importer("Einsum")
def einsum(n: NodeContext) -> str:
    """Products of one or two operands without repeated labels: transposes, sums and one matmul."""
    equation = n.text("equation", "").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        result = "".join(sorted(c for c in left if left.count(c) == 1 and c.isalpha()))
    simple = all(len(set(t)) == len(t) and t.isalpha() for t in terms if t)
    if len(terms) != len(n.inputs) or len(terms) > 2 or not simple:
        raise UnsupportedOpError(
            f"equation {equation!r} is not supported: expected one or two operands and labels "
            "without repetition or ellipsis; write it as MatMul"
        )
    operands = [
        _summed(n, n.input(i), t, _elsewhere(terms, i, result)) for i, t in enumerate(terms)
    ]
    if len(operands) == 1:
        value, labels = operands[0]
        return n.transpose(value, [labels.index(c) for c in result])
    return _product(n, operands[0], operands[1], result)


def _elsewhere(terms: Sequence[str], position: int, result: str) -> str:
    return result + "".join(t for i, t in enumerate(terms) if i != position)


def _summed(n: NodeContext, value: str, labels: str, needed: str) -> tuple[str, str]:
    """The operand summed over the labels that only it has."""
    if len(labels) != n.rank(value):
        raise ModelError(f"labels {labels!r} do not fit an operand of shape {n.shape(value)}")
    axes = tuple(i for i, c in enumerate(labels) if c not in needed)
    if axes:
        value = n.op("reduce_sum", value, axes=axes, keepdims=False)
    return value, "".join(c for c in labels if c in needed)


def _product(n: NodeContext, a: tuple[str, str], b: tuple[str, str], result: str) -> str:
    """[batch, rows, sum] x [batch, sum, columns] by labels."""
    extents = dict(zip(a[1], n.shape(a[0]), strict=True)) | dict(
        zip(b[1], n.shape(b[0]), strict=True)
    )
    batch = [c for c in a[1] if c in b[1] and c in result]
    rows = [c for c in a[1] if c not in b[1]]
    columns = [c for c in b[1] if c not in a[1]]
    summed = [c for c in a[1] if c in b[1] and c not in result]

    def matrix(operand: tuple[str, str], *parts: Sequence[str]) -> str:
        order = [operand[1].index(c) for c in (*batch, *parts[0], *parts[1])]
        shape = [*(extents[c] for c in batch), *(math.prod(extents[c] for c in p) for p in parts)]
        return n.reshape(n.transpose(operand[0], order), shape)

    y = n.op("matmul", matrix(a, rows, summed), matrix(b, summed, columns), transpose_b=False)
    order = [*batch, *rows, *columns]
    y = n.reshape(y, [extents[c] for c in order])
    return n.transpose(y, [order.index(c) for c in result])
