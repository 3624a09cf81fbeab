"""ONNX importer: products with weights of a few bits, scaled by blocks (domain com.microsoft).

The weights are widened when the model is read: what is computed is a product of floats; of a few
rows see `frontend.weight_blocks`.
"""

from __future__ import annotations

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.weight_blocks import is_few, times_blocks
from autotune.types import Array


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
    if (
        is_few(n, n.input(0))
        and blocks * block == depth
        and np.array_equal(middle, np.rint(middle))
    ):
        y = times_blocks(n, n.input(0), steps, middle, scales.reshape(columns, blocks))
    else:
        whole = (steps.astype(np.float32) - middle) * scales.reshape(columns, blocks, 1)
        weights = whole.reshape(columns, blocks * block)[:, :depth].T
        y = n.op("matmul", n.input(0), n.constant(weights, "float32"), transpose_b=False)
    return y if n.optional(5) is None else n.op("add", y, n.input(5))


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
