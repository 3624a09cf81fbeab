"""ATen importers: matrix products and attention."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.context import AtenCall, aten
from autotune.frontend.torch.quantized import of_bytes
from autotune.frontend.views import repeat_heads


@aten("mm", "bmm")
def product(n: AtenCall) -> str:
    x = n.value("self")
    return of_bytes(n, x, "mat2") or multiplied(n, x, n.value("mat2"))


@aten("mv")
def product_of_vector(n: AtenCall) -> str:
    return _times_vector(n)


def _times_vector(n: AtenCall) -> str:
    x, vector = n.value("self"), n.value("vec")
    column = n.reshape(vector, (*n.shape(vector), 1))
    return n.reshape(multiplied(n, x, column), n.made_shape)


@aten("dot", "vdot")
def dot(n: AtenCall) -> str:
    x, y = n.value("self"), n.value("tensor" if n.has("tensor") else "other")
    row, column = n.reshape(x, (1, *n.shape(x))), n.reshape(y, (*n.shape(y), 1))
    return n.reshape(multiplied(n, row, column), ())


@aten("addmm", "baddbmm")
def product_and_sum(n: AtenCall) -> str:
    """beta * self + alpha * (mat1 @ mat2)."""
    names = ("mat1", "mat2") if n.has("mat1") else ("batch1", "batch2")
    x, weights = (n.value(name) for name in names)
    y = of_bytes(n, x, names[1]) or multiplied(n, x, weights)
    alpha, beta = n.arg("alpha", 1), n.arg("beta", 1)
    if alpha != 1:
        y = n.op("mul", y, n.like(alpha, y))
    if beta == 0:
        return y
    added = n.value("self")
    if beta != 1:
        added = n.op("mul", added, n.like(beta, added))
    return n.op("add", y, added)


@aten("addmv")
def product_of_vector_and_sum(n: AtenCall) -> str:
    y = _times_vector(n)
    alpha, beta = n.arg("alpha", 1), n.arg("beta", 1)
    y = n.op("mul", y, n.like(alpha, y)) if alpha != 1 else y
    added = n.op("mul", n.value("self"), n.like(beta, y)) if beta != 1 else n.value("self")
    return n.op("add", y, added)


@aten("linear")
def linear(n: AtenCall) -> str:
    x, w, bias = n.value("input"), n.value("weight"), n.optional("bias")
    row = n.reshape(x, (1, *n.shape(x))) if n.rank(x) == 1 else x
    y = multiplied(n, row, n.transpose(w, (1, 0)))
    y = y if bias is None else n.op("add", y, bias)
    return n.reshape(y, n.made_shape)


@aten("matmul")
def matmul(n: AtenCall) -> str:
    a, b = n.value("self"), n.value("other")
    a = n.reshape(a, (1, *n.shape(a))) if n.rank(a) == 1 else a
    b = n.reshape(b, (*n.shape(b), 1)) if n.rank(b) == 1 else b
    return n.reshape(multiplied(n, a, b), n.made_shape)


def multiplied(n: AtenCall, a: str, b: str) -> str:
    """a @ b; of nothing to sum, zeros."""
    if n.shape(a)[-1] == 0 or 0 in n.shape(a) or 0 in n.shape(b):
        return n.expanded(n.like(0, a), n.made_shape)
    return n.op("matmul", a, b, transpose_b=False)


@aten(
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math",
    "_scaled_dot_product_fused_attention_overrideable", "scaled_dot_product_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
)  # fmt: skip
def attention(n: AtenCall) -> str | tuple[str | None, ...]:
    """softmax(query @ key^T * scale + mask) @ value; heads of keys are repeated where there are
    fewer."""
    if n.has("dropout_p") and n.number("dropout_p"):
        raise UnsupportedOpError("it draws numbers")
    query, key, value = (n.value(name) for name in ("query", "key", "value"))
    key, value = (repeat_heads(n, x, n.shape(query)[-3]) for x in (key, value))
    scale = n.arg("scale") if n.has("scale") else None
    scale = 1 / math.sqrt(n.shape(query)[-1]) if scale is None else float(scale)
    scores = n.op("matmul", query, key, transpose_b=True)
    scores = n.op("mul", scores, n.like(scale, scores))
    mask = _mask(n)
    scores = _masked(n, scores, mask)
    y = n.op("matmul", n.op("softmax", scores, axis=n.rank(scores) - 1), value, transpose_b=False)
    y = y if mask is None else _zeros_where_nothing_is_seen(n, y, mask)
    return (y, *[None] * (len(n.result) - 1)) if isinstance(n.result, tuple | list) else y


def _mask(n: AtenCall) -> str | None:
    name = next((a for a in ("attn_mask", "attn_bias") if n.has(a)), None)
    return n.optional(name) if name else None


def _zeros_where_nothing_is_seen(n: AtenCall, y: str, mask: str) -> str:
    """Queries that a mask lets see no key, as those of padding, have no softmax: zeros for them.
    Told by the mask, which often has fewer rows than there are scores."""
    whole = n.dtype(mask) == "bool"
    rows = n.cast(mask, "int32") if whole else mask
    best = n.op("reduce_max", rows, axes=(n.rank(rows) - 1,), keepdims=True)
    seen = n.op("ne", best, n.like(0 if whole else -math.inf, best))
    return n.op("where", seen, y, n.like(0, y))


def _masked(n: AtenCall, scores: str, mask: str | None) -> str:
    if mask is not None:
        if n.dtype(mask) != "bool":
            scores = n.op("add", scores, n.cast(mask, n.dtype(scores)))
        else:
            scores = n.op("where", mask, scores, n.like(-math.inf, scores))
    if n.arg("is_causal", False):
        rows, keys = n.shape(scores)[-2:]
        n.made(rows, keys)
        seen = n.constant(np.tril(np.ones((rows, keys), bool)))
        scores = n.op("where", seen, scores, n.like(-math.inf, scores))
    return scores
