"""Products with weights that are counts of steps, a step for each block of them. A few rows take
no longer than reading the weights: then these stay bytes, multiplied block by block."""

from __future__ import annotations

import math

import numpy as np

from autotune.frontend.assembly import Assembler
from autotune.types import Array

FEW_ROWS = 4
"""Rows of data up to which reading the weights is most of the time of multiplying them."""


def is_few(n: Assembler, x: str) -> bool:
    """Whether reading weights is most of the time of multiplying `x` with them."""
    rows = math.prod(n.shape(x)[:-1])
    return isinstance(rows, int) and rows <= FEW_ROWS


def times_blocks(n: Assembler, x: str, steps: Array, middle: Array, scales: Array) -> str:
    """x @ W.T for W = (steps - middle) * scales: steps [N, blocks, elements], whole numbers;
    middle [N, blocks, 1]; scales [N, blocks]. The product with each block of weights, as bytes
    [blocks, elements, N], then their scaled sum."""
    columns, blocks, block = steps.shape
    shape = n.shape(x)
    rows = math.prod(shape[:-1])
    parts = n.transpose(n.reshape(x, (rows, blocks, block)), (1, 0, 2))
    above = steps - middle
    fits = above.min(initial=0) >= -128 and above.max(initial=0) <= 127
    # Otherwise bytes are counted from their middle, and what is between is added to the sums.
    kept = above if fits else steps.astype(np.float32) - 128
    weights = n.constant(kept.transpose(1, 2, 0), "int8")
    y = n.op("matmul", parts, weights, transpose_b=False)
    if not fits:
        rest = (128 - middle).reshape(columns, blocks).T[:, None]
        total = n.op("reduce_sum", parts, axes=(2,), keepdims=True)
        y = n.op("add", y, n.op("mul", total, n.constant(rest, "float32")))
    scaled = n.op("mul", y, n.constant(scales.T[:, None], "float32"))
    result = n.op("reduce_sum", scaled, axes=(0,), keepdims=False)
    return n.reshape(result, (*shape[:-1], columns))
