"""ONNX importers: layer norms and sums before them, as ONNX Runtime's optimizer writes them."""

from __future__ import annotations

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.norm import rms_normalization

importer("SimplifiedLayerNormalization")(rms_normalization)


@importer("com.microsoft.SkipLayerNormalization")
def skip_layer_normalization(n: NodeContext) -> tuple[str, ...]:
    """(layer norm of input + skip + bias, mean, deviation, the sum): two are for training."""
    total = _sum(n, bias=4)
    bias = n.optional(3)
    if bias is None:
        bias = n.constant(np.zeros(n.shape(total)[-1]), n.dtype(total))
    return _with_sum(n, _layer_norm(n, total, n.input(2), bias), total)


@importer("com.microsoft.SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(n: NodeContext) -> tuple[str, ...]:
    total = _sum(n, bias=3)
    epsilon = n.number("epsilon", 1e-12)
    y = n.op("rms_norm", total, n.input(2), axis=n.rank(total) - 1, epsilon=epsilon)
    return _with_sum(n, y, total)


def _sum(n: NodeContext, bias: int) -> str:
    x, skip = n.input(0), n.input(1)
    total = n.op("add", x, skip)
    return total if n.optional(bias) is None else n.op("add", total, n.input(bias))


def _with_sum(n: NodeContext, y: str, total: str) -> tuple[str, ...]:
    if any(n.outputs[1:3]):
        raise UnsupportedOpError("its mean and deviation are not supported; leave them out")
    return (y, "", "", total) if len(n.outputs) > 3 else (y,)


def _layer_norm(n: NodeContext, x: str, scale: str, bias: str) -> str:
    epsilon = n.number("epsilon", 1e-12)
    return n.op("layer_norm", x, scale, bias, axis=n.rank(x) - 1, epsilon=epsilon)


@importer("com.microsoft.EmbedLayerNormalization")
def embed_layer_normalization(n: NodeContext) -> tuple[str, ...]:
    """(layer norm of the sum of word, place and segment embeddings, words that the mask keeps in
    every row, the sum)."""
    n.ignore("mask_index_type")
    words = n.input(0)
    batch, length = n.shape(words)
    total = n.op("gather", n.input(2), words, axis=0)
    if n.optional(8) is not None:
        places = n.op("gather", n.input(3), n.input(8), axis=0)
    else:
        width = n.shape(n.input(3))[1]
        places = n.op(
            "slice", n.input(3), starts=(0, 0), stops=(length, width), steps=(1, 1)
        )  # fmt: skip
    total = n.op("add", total, places)
    if n.optional(1) is not None:
        total = n.op("add", total, n.op("gather", n.input(4), n.input(1), axis=0))
    kept = n.constant(np.zeros(batch), "int32")
    if n.optional(7) is not None:
        ones = n.cast(n.op("eq", n.input(7), n.like(1, n.input(7))), "int32")
        kept = n.op("reduce_sum", ones, axes=(1,), keepdims=False)
    y = _layer_norm(n, total, n.input(5), n.input(6))
    return y, kept, total
