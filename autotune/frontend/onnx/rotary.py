"""ONNX importers: rotary position embeddings, ONNX's own and ONNX Runtime's."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.attention import heads_apart, heads_joined
from autotune.frontend.onnx.context import NodeContext, importer


@importer("RotaryEmbedding")
def rotary_embedding(n: NodeContext) -> str:
    """Cosines and sines of every place, or of those that position_ids name."""
    tables = [n.input(1), n.input(2)]
    if n.optional(3) is not None:
        tables = [n.op("gather", t, n.input(3), axis=0) for t in tables]
    return _rotary(n, n.input(0), tables[0], tables[1])


@importer("com.microsoft.RotaryEmbedding")
def fused_rotary_embedding(n: NodeContext) -> str:
    """Places are given one by one, or by that of the first."""
    n.ignore("scale")
    if n.integer("is_packed_batching", 0):
        raise UnsupportedOpError("packed batches are not supported; pad them")
    x, places, cosines, sines = (n.input(i) for i in range(4))
    length = n.shape(x)[1 if n.rank(x) == 3 else 2]
    if n.shape(places) == (1,) or n.rank(places) == 0:
        first = n.reshape(n.cast(places, "int64"), (1, 1))
        places = n.op("add", first, n.constant(np.arange(length)[None], "int64"))
    tables = [n.op("gather", t, places, axis=0) for t in (cosines, sines)]
    return _rotary(n, x, tables[0], tables[1])


def _rotary(n: NodeContext, x: str, cosines: str, sines: str) -> str:
    """x [batch, rows, width] or [batch, heads, rows, width] turned by [batch, rows, pairs]."""
    flat, turned = n.rank(x) == 3, n.integer("rotary_embedding_dim", 0)
    heads = n.integer("num_heads", 0)
    if flat and not heads:
        heads = n.shape(x)[2] // (2 * n.shape(cosines)[2])
    x = heads_apart(n, x, heads)
    y = turn(n, x, cosines, sines, interleaved=bool(n.integer("interleaved", 0)))
    if turned and turned != 2 * n.shape(cosines)[2]:
        raise ModelError(f"rotary_embedding_dim {turned} does not fit {n.shape(cosines)}")
    return heads_joined(n, y) if flat else y


def turn(n: NodeContext, x: str, cosines: str, sines: str, *, interleaved: bool) -> str:
    """The first channels of x [batch, heads, rows, width] by pairs, which lie side by side or half
    of them apart; tables [batch, rows, pairs]."""
    batch, heads, rows, width = n.shape(x)
    many, length, pairs = n.shape(cosines)
    if length != rows or many not in (1, batch) or 2 * pairs > width:
        raise ModelError(f"cosines of shape {n.shape(cosines)} do not fit {n.shape(x)}")
    cosines, sines = (n.reshape(t, (many, 1, rows, pairs)) for t in (cosines, sines))
    step, apart = (2, 1) if interleaved else (1, pairs)
    one = _channels(n, x, 0, 2 * pairs if interleaved else pairs, step)
    two = _channels(n, x, apart, 2 * pairs, step)
    real = n.op("sub", n.op("mul", one, cosines), n.op("mul", two, sines))
    imaginary = n.op("add", n.op("mul", one, sines), n.op("mul", two, cosines))
    if interleaved:
        parts = [n.reshape(p, (batch, heads, rows, pairs, 1)) for p in (real, imaginary)]
        joined = n.reshape(n.op("concat", *parts, axis=4), (batch, heads, rows, 2 * pairs))
    else:
        joined = n.op("concat", real, imaginary, axis=3)
    if 2 * pairs == width:
        return joined
    return n.op("concat", joined, _channels(n, x, 2 * pairs, width, 1), axis=3)


def _channels(n: NodeContext, x: str, start: int, stop: int, step: int) -> str:
    shape = n.shape(x)
    return n.op(
        "slice", x, starts=(0, 0, 0, start), stops=(*shape[:3], stop), steps=(1, 1, 1, step)
    )
