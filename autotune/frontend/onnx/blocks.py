"""ONNX importer: products with weights of a few bits, scaled by blocks (domain com.microsoft).

The weights are widened when the model is read: what is computed is a product of floats. A few rows
take no longer than reading the weights: then these stay bytes, multiplied block by block.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.types import Array

_FEW_ROWS = 4
"""Rows of data up to which reading the weights is most of the time of multiplying them."""


@importer("com.microsoft.MatMulNBits")
def matmul_n_bits(n: NodeContext) -> str:
    """A @ W.T + bias; W [N, K] lies in bytes [N, blocks, bytes of a block]."""
    n.ignore("accuracy_level", "weight_prepacked")
    if n.optional(4) is not None:
        raise UnsupportedOpError("g_idx (reordered groups) is not supported; export without it")
    columns, depth = n.integer("N", 0), n.integer("K", 0)
    bits, block = n.integer("bits", 4), n.integer("block_size", 32)
    if bits not in (2, 4, 8):
        raise UnsupportedOpError(f"weights of {bits} bits are not supported; use 2, 4 or 8")
    packed, scales, zeros = (n.parameter(i) for i in (1, 2, 3))
    if packed is None or scales is None:
        raise UnsupportedOpError("weights and scales must be given; the model is malformed")
    blocks = -(-depth // block)
    n.made(columns, blocks)
    steps = _unpacked(packed.reshape(columns, blocks, -1), bits)[:, :, :block]
    middle = _zero_points(zeros, columns, blocks, bits)
    rows = math.prod(n.shape(n.input(0))[:-1])
    if rows <= _FEW_ROWS and blocks * block == depth and np.array_equal(middle, np.rint(middle)):
        y = _by_blocks(n, steps, middle, scales.reshape(columns, blocks))
    else:
        whole = (steps.astype(np.float32) - middle) * scales.reshape(columns, blocks, 1)
        weights = whole.reshape(columns, blocks * block)[:, :depth].T
        y = n.op("matmul", n.input(0), n.constant(weights, "float32"), transpose_b=False)
    return y if n.optional(5) is None else n.op("add", y, n.input(5))


def _by_blocks(n: NodeContext, steps: Array, middle: Array, scales: Array) -> str:
    """The product with each block of weights, as bytes [blocks, elements, N], then their scaled
    sum."""
    columns, blocks, block = steps.shape
    shape = n.shape(n.input(0))
    rows = math.prod(shape[:-1])
    x = n.transpose(n.reshape(n.input(0), (rows, blocks, block)), (1, 0, 2))
    above = steps - middle
    fits = above.min(initial=0) >= -128 and above.max(initial=0) <= 127
    # Otherwise bytes are counted from their middle, and what is between is added to the sums.
    kept = above if fits else steps.astype(np.float32) - 128
    weights = n.constant(kept.transpose(1, 2, 0), "int8")
    y = n.op("matmul", x, weights, transpose_b=False)
    if not fits:
        rest = (128 - middle).reshape(columns, blocks).T[:, None]
        total = n.op("reduce_sum", x, axes=(2,), keepdims=True)
        y = n.op("add", y, n.op("mul", total, n.constant(rest, "float32")))
    scaled = n.op("mul", y, n.constant(scales.T[:, None], "float32"))
    result = n.op("reduce_sum", scaled, axes=(0,), keepdims=False)
    return n.reshape(result, (*shape[:-1], columns))


def _zero_points(zeros: Array | None, columns: int, blocks: int, bits: int) -> Array:
    """One for each block: the middle where none are given, bytes that hold several, or floats."""
    if zeros is None:
        return np.full((columns, blocks, 1), 1 << (bits - 1), np.float32)
    if zeros.dtype == np.uint8:
        zeros = _unpacked(zeros.reshape(columns, -1), bits)[:, :blocks]
    return zeros.reshape(columns, blocks, 1).astype(np.float32)


def _unpacked(packed: Array, bits: int) -> Array:
    """The numbers in the last dimension's bytes, the first ones in the low bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)
