"""ONNX importers: attention as ONNX Runtime's optimizer writes it (domain com.microsoft).

Spelled out as products, masks and a softmax, as the frontend does with ONNX's own operator.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.attention import heads_apart, heads_joined, scores_of
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.views import select_ranges


@importer("com.microsoft.Attention")
def attention(n: NodeContext) -> tuple[str, ...]:
    """(result, present): one product each makes queries, keys and values of the input."""
    refuse_set(n, "do_rotary", "past_present_share_buffer")
    n.ignore("rotary_embedding_dim")
    width = n.shape(n.input(1))[1]
    sizes = n.integers("qkv_hidden_sizes") or (width // 3,) * 3
    parts = []
    for part in range(3):
        made = range(sum(sizes[:part]), sum(sizes[: part + 1]))
        y = n.op(
            "matmul", n.input(0), select_ranges(n, n.input(1), {1: made}), transpose_b=False
        )  # fmt: skip
        if n.optional(2) is not None:
            y = n.op("add", y, select_ranges(n, n.input(2), {0: made}))
        parts.append(y)
    return packed_attention(n, parts, mask=3, past=4, bias=5)


def packed_attention(
    n: NodeContext, parts: list[str], *, mask: int, past: int, bias: int
) -> tuple[str, ...]:
    """(result, present) of queries, keys and values [batch, rows, width]; positions of inputs."""
    query, key, value = (heads_apart(n, p, n.integer("num_heads", 0)) for p in parts)
    if n.optional(past) is not None:
        both = n.input(past)
        old = [
            n.reshape(select_ranges(n, both, {0: range(i, i + 1)}), n.shape(both)[1:])
            for i in (0, 1)
        ]
        key, value = (n.op("concat", o, v, axis=2) for o, v in zip(old, (key, value), strict=True))
    result = _attended(n, query, key, value, mask=mask, bias=bias)
    if len(n.outputs) < 2 or not n.outputs[1]:
        return (result,)
    apart = [n.reshape(v, (1, *n.shape(v))) for v in (key, value)]
    return result, n.op("concat", *apart, axis=0)


@importer("com.microsoft.MultiHeadAttention")
def multi_head_attention(n: NodeContext) -> tuple[str, ...]:
    """(result, present key, present value)."""
    if n.optional(8) is not None:
        raise UnsupportedOpError("past_sequence_length is not supported; give the past alone")
    query, key, value = _separate(n)
    if n.optional(6) is not None:
        key, value = (
            n.op("concat", n.input(i), v, axis=2) for i, v in ((6, key), (7, value))
        )  # fmt: skip
    return _attended(n, query, key, value, mask=4, bias=5), key, value


def _separate(n: NodeContext) -> list[str]:
    """Queries, keys, values [batch, heads, rows, width], with their biases."""
    if n.optional(1) is None or n.optional(2) is None or n.rank(n.input(1)) == 5:
        raise UnsupportedOpError("packed queries, keys and values are not supported; split them")
    heads, parts = n.integer("num_heads", 0), [n.input(i) for i in range(3)]
    start = 0
    for i, part in enumerate(parts):
        # Keys and values of rank 4 come from an earlier step, with their biases.
        if n.optional(3) is not None and n.rank(part) == 3:
            stop = start + n.shape(part)[2]
            bias = select_ranges(n, n.input(3), {0: range(start, stop)})
            parts[i], start = n.op("add", part, bias), stop
    return [heads_apart(n, p, heads) for p in parts]


def _attended(n: NodeContext, query: str, key: str, value: str, *, mask: int, bias: int) -> str:
    """The result [batch, rows, width], under a mask, a bias and `unidirectional`."""
    rows, depth = n.shape(query)[2:]
    keys = n.shape(key)[2]
    scores = scores_of(n, query, key, _scale(n, depth))[-1]
    filler = n.number("mask_filter_value", -10000.0)
    if n.optional(mask) is not None:
        kept = _kept(n, n.input(mask), n.shape(scores))
        hidden = n.op("where", kept, n.like(0, scores), n.like(filler, scores))
        scores = n.op("add", scores, hidden)
    if n.optional(bias) is not None:
        scores = n.op("add", scores, n.input(bias))
    if n.integer("unidirectional", 0):
        n.made(rows, keys)
        before = np.tril(np.ones((rows, keys), bool), keys - rows)
        scores = n.op("where", n.constant(before), scores, n.like(-math.inf, scores))
    weights = n.op("softmax", scores, axis=3)
    return heads_joined(n, n.op("matmul", weights, value, transpose_b=False))


def _scale(n: NodeContext, depth: int) -> float:
    return n.number("scale", 0.0) or 1 / math.sqrt(depth)


def _kept(n: NodeContext, mask: str, scores: tuple[int, ...]) -> str:
    """Which scores a mask lets through: an element per key (and row), or ends of the rows of a
    batch, then their starts."""
    batch, _, rows, keys = scores
    shape = n.shape(mask)
    if shape in ((batch, keys), (batch, rows, keys)):
        apart = n.reshape(mask, (batch, 1, rows if len(shape) == 3 else 1, keys))
        return n.op("gt", apart, n.like(0, apart))
    if shape not in ((batch,), (2 * batch,)):
        raise UnsupportedOpError(
            f"a mask of shape {shape} is not supported for scores {scores}; give "
            f"[{batch}, {keys}] or [{batch}, {rows}, {keys}]"
        )
    places = n.constant(np.arange(keys), n.dtype(mask))
    ends = n.reshape(select_ranges(n, mask, {0: range(batch)}), (batch, 1, 1, 1))
    kept = n.op("lt", places, ends)
    if shape == (batch,):
        return kept
    starts = n.reshape(select_ranges(n, mask, {0: range(batch, 2 * batch)}), (batch, 1, 1, 1))
    return n.op("and", kept, n.op("ge", places, starts))


def refuse_set(n: NodeContext, *names: str) -> None:
    """Raise where one of these switches is on."""
    for name in names:
        if n.integer(name, 0) not in (0, -1):
            raise UnsupportedOpError(f"{name}={n.integer(name, 0)} is not supported")
