"""ONNX importers: matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.views import select_ranges

LARGEST_DETERMINANT = 4
"""Rows of a matrix whose determinant is written out: 24 products."""


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


@importer("Det")
def det(n: NodeContext) -> str:
    """By its minors: sums of products of columns that are left."""
    x = n.input(0)
    *outer, rows, columns = n.shape(x)
    if rows != columns or not 1 <= rows <= LARGEST_DETERMINANT:
        raise UnsupportedOpError(
            f"determinants of {rows} x {columns} are not supported, only up to "
            f"{LARGEST_DETERMINANT} x {LARGEST_DETERMINANT}; compute them outside the model"
        )
    flat = n.reshape(x, (*outer, rows * rows))
    items = [
        select_ranges(n, flat, {len(outer): range(place, place + 1)})
        for place in range(rows * rows)
    ]
    return n.reshape(_minor(n, items, rows, tuple(range(rows))), outer)


def _minor(n: NodeContext, items: Sequence[str], rows: int, columns: tuple[int, ...]) -> str:
    """The determinant of the last rows and some columns."""
    row = rows - len(columns)
    total = ""
    for position, column in enumerate(columns):
        term = items[row * rows + column]
        if len(columns) > 1:
            rest = _minor(n, items, rows, (*columns[:position], *columns[position + 1 :]))
            term = n.op("mul", term, rest)
        total = n.op("sub" if position % 2 else "add", total, term) if total else term
    return total


@importer("Einsum")
def einsum(n: NodeContext) -> str:
    """Products of operands from the left: transposes, sums, diagonals and matmuls."""
    equation = n.text("equation", "").replace(" ", "")
    terms, result = _terms(n, equation)
    whole = [_diagonal(n, n.input(i), t) for i, t in enumerate(terms)]
    extents: dict[str, int] = {}
    for given, own in whole:
        for label, extent in zip(own, n.shape(given), strict=True):
            extents[label] = max(extent, extents.get(label, 1))
    operands = [_without_ones(n, given, own, extents) for given, own in whole]
    value, labels = _summed(n, *operands[0], result + "".join(t for _, t in operands[1:]))
    for position, operand in enumerate(operands[1:], 2):
        needed = result + "".join(t for _, t in operands[position:])
        factor, own = _summed(n, *operand, needed + labels)
        value, labels = _summed(n, value, labels, needed + own)
        kept = "".join(dict.fromkeys(c for c in labels + own if c in needed))
        value, labels = _product(n, (value, labels), (factor, own), kept), kept
    return n.transpose(value, [labels.index(c) for c in result])


def _terms(n: NodeContext, equation: str) -> tuple[list[str], str]:
    """The labels of the operands and the result; what an ellipsis stands for gets capital ones
    from a far alphabet, so that those of several operands meet at the end."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(n.inputs):
        raise ModelError(f"equation {equation!r} does not fit {len(n.inputs)} operands")
    hidden = [
        n.rank(n.input(i)) - len(t.replace("...", "")) if "..." in t else 0
        for i, t in enumerate(terms)
    ]
    if min(hidden) < 0:
        raise ModelError(f"equation {equation!r} has more labels than an operand dimensions")
    most = "".join(chr(0x391 + i) for i in range(max(hidden)))
    if not arrow:
        plain = left.replace("...", "").replace(",", "")
        shown = "..." if "..." in left else ""
        result = shown + "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
    written = [t.replace("...", most[len(most) - h :]) for t, h in zip(terms, hidden, strict=True)]
    result = result.replace("...", most)
    known = set("".join(written))
    if not all(c.isalpha() for c in known) or not known.issuperset(result):
        raise ModelError(f"equation {equation!r} is not one of labels that its operands have")
    return written, result


def _diagonal(n: NodeContext, value: str, labels: str) -> tuple[str, str]:
    """The elements where dimensions of equal labels have equal places."""
    if len(labels) != n.rank(value):
        raise ModelError(f"labels {labels!r} do not fit an operand of shape {n.shape(value)}")
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            order = [d for d in range(len(labels)) if d not in (first, second)] + [first, second]
            *rest, extent, again = (n.shape(value)[d] for d in order)
            if extent != again:
                raise ModelError(f"label {label!r} is of {extent} and of {again} elements")
            flat = n.reshape(n.transpose(value, order), (*rest, extent * extent))
            places = n.constant(np.arange(extent) * (extent + 1), "int64")
            value = n.op("gather", flat, places, axis=len(rest))
            labels = "".join(labels[d] for d in order[:-1])
    return value, labels


def _without_ones(
    n: NodeContext, value: str, labels: str, extents: Mapping[str, int]
) -> tuple[str, str]:
    """Without dimensions of one element that are of more elsewhere: those are the same for all."""
    kept = [d for d, c in enumerate(labels) if n.shape(value)[d] == extents[c]]
    if any(n.shape(value)[d] != 1 for d in range(len(labels)) if d not in kept):
        raise ModelError(f"labels {labels!r} of {n.shape(value)} do not fit the other operands'")
    value = n.reshape(value, [n.shape(value)[d] for d in kept])
    return value, "".join(labels[d] for d in kept)


def _summed(n: NodeContext, value: str, labels: str, needed: str) -> tuple[str, str]:
    """The operand summed over the labels that only it has."""
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
