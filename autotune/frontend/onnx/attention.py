"""ONNX importer: Attention, spelled out as products, masks and a softmax."""

from __future__ import annotations

import functools
import math

import numpy as np

from autotune.errors import ModelError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.views import repeat_heads


@importer("Attention")
def attention(n: NodeContext) -> tuple[str, ...]:
    """(Y, present_key, present_value, scores in the wanted state). A row whose mask lets no key
    through gives zeros."""
    n.ignore("softmax_precision")
    flat = n.rank(n.input(0)) == 3
    query = heads_apart(n, n.input(0), n.integer("q_num_heads", 0))
    key, value = (heads_apart(n, n.input(i), n.integer("kv_num_heads", 0)) for i in (1, 2))
    past = 0
    if n.optional(4) is not None:
        past = n.shape(n.input(4))[2]
        key = n.op("concat", n.input(4), key, axis=2)
        value = n.op("concat", n.input(5), value, axis=2)
    count, depth = n.shape(query)[1], n.shape(query)[3]
    scale = n.number("scale", 1 / math.sqrt(depth))
    states = scores_of(n, query, repeated(n, key, count), scale)
    masked = _masked(n, states[-1])
    seen = _seen(n, n.shape(masked)[2], n.shape(masked)[3], past)
    if seen is not None:
        masked = n.op("where", seen, masked, n.like(-math.inf, masked))
    states.append(masked)
    weights = n.op("softmax", masked, axis=3)
    if n.optional(3) is not None or n.optional(6) is not None or n.has("left_window_size"):
        nothing = n.op("ne", weights, weights)
        weights = n.op("where", nothing, n.like(0, weights), weights)
    states.append(weights)
    result = n.op("matmul", weights, repeated(n, value, count), transpose_b=False)
    if flat:
        result = heads_joined(n, result)
    return result, key, value, states[n.integer("qk_matmul_output_mode", 0)]


def heads_apart(n: NodeContext, x: str, heads: int) -> str:
    """[batch, rows, heads * width] as [batch, heads, rows, width]; what is that already stays."""
    if n.rank(x) == 4:
        return x
    batch, rows, width = n.shape(x)
    if heads < 1 or width % heads:
        raise ModelError(f"{heads} heads do not divide {width} channels")
    return n.transpose(n.reshape(x, (batch, rows, heads, width // heads)), (0, 2, 1, 3))


def heads_joined(n: NodeContext, x: str) -> str:
    """[batch, heads, rows, width] as [batch, rows, heads * width]."""
    batch, heads, rows, width = n.shape(x)
    return n.reshape(n.transpose(x, (0, 2, 1, 3)), (batch, rows, heads * width))


def repeated(n: NodeContext, x: str, count: int) -> str:
    """Every head several times, so that there are `count`."""
    heads = n.shape(x)[1]
    if count % heads:
        raise ModelError(f"{heads} heads of keys and values do not divide {count} of queries")
    return repeat_heads(n, x, count)


def scores_of(n: NodeContext, query: str, key: str, scale: float) -> list[str]:
    """The scaled product, and the same limited to -softcap .. softcap."""
    scores = n.op("matmul", query, key, transpose_b=True)
    scores = n.op("mul", scores, n.like(scale, scores))
    cap = n.number("softcap", 0.0)
    if cap <= 0:
        return [scores, scores]
    limited = n.op("tanh", n.op("mul", scores, n.like(1 / cap, scores)))
    return [scores, n.op("mul", limited, n.like(cap, scores))]


def _masked(n: NodeContext, scores: str) -> str:
    """-inf where a boolean mask says false; a mask of numbers is added. What a mask is too short
    for is hidden."""
    mask, keys = n.optional(3), n.shape(scores)[3]
    if mask is None:
        return scores
    kept, given = n.dtype(mask) == "bool", n.shape(mask)[-1]
    if given not in (1, keys):
        pads, none = [0] * (2 * n.rank(mask)), 0.0 if kept else -math.inf
        pads[-1] = keys - given
        mask = n.op("pad", mask, pads=tuple(pads), value=none)
    if not kept:
        return n.op("add", scores, mask)
    return n.op("where", mask, scores, n.like(-math.inf, scores))


def _seen(n: NodeContext, rows: int, keys: int, past: int) -> str | None:
    """Which keys a row sees by where they are: those of its sequence that are in its window, and
    not behind it where the attention is causal. A row is as far behind keys as there are past
    ones; the last row is the last of its sequence where lengths are given. None: all keys."""
    lengths, place = n.optional(6), np.arange(keys)
    n.made(rows, keys)
    behind = n.constant(np.arange(rows)[:, None] + past - place, "int64")
    conditions = []
    if lengths is not None:
        lengths = n.reshape(n.cast(lengths, "int64"), (n.shape(lengths)[0], 1, 1, 1))
        behind = n.op("add", behind, n.op("sub", lengths, n.like(rows, lengths)))
        conditions.append(n.op("lt", n.constant(place, "int64"), lengths))
    if n.integer("is_causal", 0):
        conditions.append(n.op("ge", behind, n.like(0, behind)))
    if (left := n.integer("left_window_size", -1)) >= 0:
        conditions.append(n.op("le", behind, n.like(left, behind)))
    if (right := n.integer("right_window_size", -1)) >= 0:
        conditions.append(n.op("ge", behind, n.like(-right, behind)))
    return functools.reduce(lambda a, b: n.op("and", a, b), conditions) if conditions else None
