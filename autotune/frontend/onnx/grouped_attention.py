"""ONNX importer: GroupQueryAttention, the attention of language models that ONNX Runtime writes.

Its past may lie in buffers that are longer than what was said: `seqlens_k` tells how long every
sequence of the batch is now, less one.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.attention import heads_apart, heads_joined, repeated, scores_of
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.rotary import turn
from autotune.frontend.views import select_ranges


@importer("com.microsoft.GroupQueryAttention")
def group_query_attention(n: NodeContext) -> tuple[str, ...]:
    """(result, present key, present value)."""
    n.ignore("smooth_softmax", "k_quant_type", "v_quant_type", "kv_cache_bit_width", "qk_output")
    if n.attribute("smooth_softmax", 0) == 1 or any(
        n.optional(i) is not None for i in range(11, len(n.inputs))
    ):
        raise UnsupportedOpError("sinks of the softmax and quantized caches are not supported")
    query, key, value = _separate(n)
    rows = n.shape(query)[2]
    total = n.required_ints(6)[0]
    past = _past_lengths(n, rows, total)
    places = n.op("add", past, n.constant(np.arange(rows)[None], "int64"))
    if n.integer("do_rotary", 0):
        named = places if n.optional(9) is None else n.input(9)
        tables = [n.op("gather", n.input(i), named, axis=0) for i in (7, 8)]
        paired = bool(n.integer("rotary_interleaved", 0))
        query, key = (turn(n, x, *tables, interleaved=paired) for x in (query, key))
    if n.optional(3) is not None and total > rows:
        key, value = (
            _appended(n, n.input(i), x, past, total) for i, x in ((3, key), (4, value))
        )  # fmt: skip
    return _attended(n, query, key, value, places), key, value


def _separate(n: NodeContext) -> list[str]:
    """Queries, keys and values [batch, heads, rows, width]; they may be one input."""
    heads, groups = n.integer("num_heads", 0), n.integer("kv_num_heads", 0)
    if n.optional(1) is not None:
        parts = [n.input(i) for i in range(3)]
    else:
        width = n.shape(n.input(0))[2] // max(1, heads + 2 * groups)
        ends = np.cumsum([0, heads, groups, groups]) * width
        parts = [select_ranges(n, n.input(0), {2: range(*ends[i : i + 2])}) for i in range(3)]
    return [heads_apart(n, x, h) for x, h in zip(parts, (heads, groups, groups), strict=True)]


def _past_lengths(n: NodeContext, rows: int, total: int) -> str:
    """How long the past of every sequence is: [batch or 1, 1]."""
    if total == rows:
        return n.constant(np.zeros((1, 1)), "int64")
    if total < rows:
        raise ModelError(f"total_sequence_length {total} is less than the {rows} rows of queries")
    ends = n.cast(n.reshape(n.input(5), (math.prod(n.shape(n.input(5))), 1)), "int64")
    return n.op("sub", ends, n.constant(rows - 1, "int64"))


def _appended(n: NodeContext, old: str, new: str, past: str, total: int) -> str:
    """What the buffer remembers and, behind the past of each sequence, what is new; then zeros."""
    batch, heads, length, width = n.shape(old)
    rows, extent = n.shape(new)[2], max(length, total)
    if rows == 1:
        return _with_row(n, old, new, past, extent)
    nothing = n.constant(np.zeros((batch, heads, 1, width)), n.dtype(new))
    both = n.op("concat", old, new, nothing, axis=2)
    places = n.constant(np.arange(extent)[None], "int64")
    behind = n.op("sub", places, past)
    fresh = n.op("clip", behind, min=0, max=rows)
    fresh = n.op("add", fresh, n.constant(length, "int64"))
    kept = n.constant(np.minimum(np.arange(extent), length - 1)[None], "int64")
    source = n.op("where", n.op("lt", behind, n.like(0, behind)), kept, fresh)
    if n.shape(source)[0] == 1:
        return n.op("gather", both, n.reshape(source, (extent,)), axis=2)
    parts = []
    for i in range(batch):
        one = range(i, i + 1)
        row = n.reshape(select_ranges(n, source, {0: one}), (extent,))
        parts.append(n.op("gather", select_ranges(n, both, {0: one}), row, axis=2))
    return n.op("concat", *parts, axis=0)


def _with_row(n: NodeContext, old: str, new: str, past: str, extent: int) -> str:
    """The same for a single new row, which every place can take: nothing is gathered."""
    length, none = n.shape(old)[2], n.like(0, new)
    own = n.reshape(past, (n.shape(past)[0], 1, 1, 1))

    def chosen(start: int, stop: int) -> str:
        """The new row where it belongs among these places, zeros elsewhere."""
        places = n.constant(np.arange(start, stop)[None, None, :, None], "int64")
        return n.op("where", n.op("eq", places, own), new, none)

    columns = n.constant(np.arange(length)[None, None, :, None], "int64")
    kept = n.op("where", n.op("lt", columns, own), old, chosen(0, length))
    return kept if extent == length else n.op("concat", kept, chosen(length, extent), axis=2)


def _attended(n: NodeContext, query: str, key: str, value: str, places: str) -> str:
    """The result [batch, rows, width]: every row sees keys up to its own place, or a window of
    them."""
    heads, rows, depth = n.shape(query)[1:]
    keys, many = n.shape(key)[2], n.shape(places)[0]
    scale = n.number("scale", 0.0) or 1 / math.sqrt(depth)
    scores = scores_of(n, query, repeated(n, key, heads), scale)[-1]
    if n.optional(10) is not None:
        scores = n.op("add", scores, n.input(10))
    own = n.reshape(places, (many, 1, rows, 1))
    columns = n.constant(np.arange(keys), "int64")
    seen = n.op("le", columns, own)
    window = n.integer("local_window_size", -1)
    if window > 0:
        near = n.op("gt", columns, n.op("sub", own, n.like(window, own)))
        seen = n.op("and", seen, near)
    scores = n.op("where", seen, scores, n.like(-math.inf, scores))
    weights = n.op("softmax", scores, axis=3)
    return heads_joined(n, n.op("matmul", weights, repeated(n, value, heads), transpose_b=False))
