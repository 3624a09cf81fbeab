"""Kernels of every kind as nodes of a random ONNX model, each of what chains of views leave.

In: a model and a value of float32. Out: a value that a kernel computes, or None where the value
does not suit it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.types import Array
from tests.properties import onnx_graphs
from tests.properties.onnx_graphs import fits
from tests.properties.view_chains import ChainModel, chain, factors, like, of_rank, reversal

Kernel = Callable[[ChainModel, str], str | None]


def _of(action: onnx_graphs.Action, *ranks: int) -> Kernel:
    """A kernel of the other generator, of a value in a rank that it takes."""

    def kernel(m: ChainModel, x: str) -> str | None:
        x = of_rank(m, x, *ranks) if ranks else x
        made = action(m, x, m.shapes[x])
        return m.node(made[0], made[1], **made[2]) if made else None

    return kernel


def _window(m: ChainModel, rank: int, most: int = 3) -> dict[str, Any]:
    return {
        "strides": [m.pick((1, 1, 2)) for _ in range(rank)],
        "dilations": [m.pick((1, 1, 2)) for _ in range(rank)],
        "pads": [m.draw(0, most - 1) for _ in range(2 * rank)],
    }


def dense_conv(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 4)
    kernel = [m.draw(1, 3), m.draw(1, 3)]
    weights = m.array(m.pick((1, 3, 8, 17, 32)), m.shapes[x][1], *kernel)
    attrs = _window(m, 2)
    if not fits(m.shapes[x], kernel, attrs):
        return None
    y = m.node("Conv", [x, weights, m.array(len(weights))], **attrs)
    return m.node("Relu", [y]) if y and m.draw(0, 1) else y


def winograd_conv(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 4)
    weights = m.array(m.pick((4, 16, 32)), m.shapes[x][1], 3, 3)
    y = m.node("Conv", [x, weights], pads=[1] * 4)
    if y is None or not m.draw(0, 1):
        return y
    return m.node("Add", [y, like(m, m.shapes[y])])


def depthwise_conv(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 3, 4)
    rank, channels = len(m.shapes[x]) - 2, m.shapes[x][1]
    kernel, attrs = [m.draw(2, 3)] * rank, _window(m, rank)
    if not fits(m.shapes[x], kernel, attrs):
        return None
    weights = m.array(channels * m.pick((1, 1, 2)), 1, *kernel)
    return m.node("Conv", [x, weights], group=channels, **attrs)


def matmul_of_two(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 2, 3, 4)
    *outer, rows, depth = m.shapes[x]
    shape = [*m.pick((outer, outer, [], [1] * len(outer))), depth, m.draw(1, 20)]
    other = like(m, tuple(shape))
    if m.draw(0, 1):
        return m.node("MatMul", [x, other])
    other = like(m, (*outer, m.draw(1, 9), rows))
    return m.node("MatMul", [other, x])


def constant_left(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 2, 3)
    return m.node("MatMul", [m.array(m.draw(1, 18), m.shapes[x][-2]), x])


def gemm(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 2)
    left, right, width = m.draw(0, 1), m.draw(0, 1), m.draw(1, 20)
    depth = m.shapes[x][1 - left]
    other = like(m, (width, depth) if right else (depth, width))
    return m.node("Gemm", [x, other, m.array(width)], transA=left, transB=right)


def einsum(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 3)
    a, b, c = m.shapes[x]
    equation, shape = m.pick(
        (("abc,acd->bad", (a, c, 5)), ("abc,db->cda", (6, b)), ("abc,abc->ca", (a, b, c)),
         ("abc,dbc->da", (4, b, c)), ("abc,c->ba", (c,)))
    )  # fmt: skip
    return m.node("Einsum", [x, like(m, shape)], equation=equation)


def attention(m: ChainModel, x: str) -> str | None:
    """Softmax of the products of rows and rows, then of these with rows."""
    x = of_rank(m, x, 3, 4)
    *outer, rows, depth = m.shapes[x]
    keys = m.draw(1, 20)
    k = like(m, (*outer, depth, keys))
    v = like(m, (*outer, keys, m.draw(1, 20)))
    scores = m.node("MatMul", [m.node("Mul", [x, np.float32(0.3)]), k])
    if m.draw(0, 1):
        scores = m.node("Add", [scores, like(m, (rows, keys))])
    return m.node("MatMul", [m.node("Softmax", [scores], axis=-1), v])


def layer_norm(m: ChainModel, x: str) -> str | None:
    shape = m.shapes[x]
    axis = m.draw(0, len(shape) - 1)
    scales = [m.array(*shape[axis:]) for _ in range(m.draw(1, 2))]
    return m.node("LayerNormalization", [x, *scales], axis=axis, epsilon=0.1)


def binary(m: ChainModel, x: str) -> str | None:
    """With another value behind views, which may broadcast."""
    shape = m.shapes[x]
    part = tuple(m.pick((e, e, 1)) for e in shape[m.pick((0, 0, 1)) :])
    both = [x, like(m, part)]
    return m.node(m.pick(onnx_graphs.BINARY), both[:: m.pick((1, -1))])


def fused(m: ChainModel, x: str) -> str | None:
    """Elementwise operators with views between them."""
    for _ in range(m.draw(1, 3)):
        y = binary(m, x) if m.draw(0, 1) else m.node(m.pick(onnx_graphs.SMOOTH), [x])
        x = m.pick((chain, lambda _, v: v))(m, y or x)
    return x


def where(m: ChainModel, x: str) -> str | None:
    shape = m.shapes[x]
    flags = m.node("Greater", [like(m, tuple(m.pick((e, 1)) for e in shape)), np.float32(0.1)])
    return m.node("Where", [flags, x, like(m, shape)])


def resize(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 4)
    sizes = [*m.shapes[x][:2], *(m.draw(1, 2 * e) for e in m.shapes[x][2:])]
    mode = m.pick(("nearest", "linear", "cubic"))
    attrs = {"mode": mode, "coordinate_transformation_mode": m.pick(("half_pixel", "asymmetric"))}
    return m.node("Resize", [x, "", "", np.array(sizes)], **attrs)


def scatter_elements(m: ChainModel, x: str) -> str | None:
    """Updates from another value, at places that are all different along the axis."""
    shape = m.shapes[x]
    axis = m.draw(0, len(shape) - 1)
    some = [m.draw(1, e) for e in shape]
    order = m.rng.permuted(np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))]),
        shape), axis=axis)  # fmt: skip
    places = order[tuple(slice(e) for e in some)]
    reduction = m.pick(("none", "none", "add"))
    operands = [x, m.given(places) if m.draw(0, 1) else places, like(m, tuple(some))]
    return m.node("ScatterElements", operands, axis=axis, reduction=reduction)


def scatter_nd(m: ChainModel, x: str) -> str | None:
    shape = m.shapes[x]
    depth = m.draw(1, min(2, len(shape)))
    total = math.prod(shape[:depth])
    flat = m.rng.permutation(total)[: m.draw(1, total)]
    places = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
    return m.node("ScatterND", [x, places, like(m, (len(flat), *shape[depth:]))])


def gather_elements(m: ChainModel, x: str) -> str | None:
    shape = m.shapes[x]
    axis = m.draw(0, len(shape) - 1)
    some = [m.draw(1, e) for e in shape]
    places = m.rng.integers(-shape[axis], shape[axis], some)
    return m.node("GatherElements", [x, m.given(places) if m.draw(0, 1) else places], axis=axis)


def gather_nd(m: ChainModel, x: str) -> str | None:
    shape = m.shapes[x]
    depth, where = m.draw(1, min(3, len(shape))), m.pick(((5,), (2, 4)))
    places = np.stack([m.rng.integers(-e, e, where) for e in shape[:depth]], -1)
    return m.node("GatherND", [x, places])


def top_k(m: ChainModel, x: str) -> str | None:
    """Values or places; only of values without a rounding error."""
    if x not in m.exact:
        return None
    axis = m.draw(0, len(m.shapes[x]) - 1)
    count = np.array([m.draw(1, m.shapes[x][axis])])
    take = m.draw(0, 1)
    y = m.node("TopK", [x, count], outputs=2, take=take, axis=axis, largest=m.draw(0, 1))
    return m.node("Cast", [y], to=1) if take else y


def arg_max(m: ChainModel, x: str) -> str | None:
    if x not in m.exact:
        return None
    axis = m.draw(0, len(m.shapes[x]) - 1)
    op = m.pick(("ArgMax", "ArgMin"))
    y = m.node(op, [x], axis=axis, keepdims=m.draw(0, 1), select_last_index=m.draw(0, 1))
    return m.node("Cast", [y], to=1)


def whole_numbers(m: ChainModel, x: str) -> str | None:
    """Through int32 or bytes and back; only of values without a rounding error."""
    if x not in m.exact:
        return None
    dtype = m.pick((6, 7, 3))
    whole = m.node("Cast", [m.node("Mul", [x, np.float32(8)])], to=dtype)
    return m.node("Cast", [chain(m, whole) if whole else None], to=1)


def recurrent(m: ChainModel, x: str) -> str | None:
    x = of_rank(m, x, 3)
    steps, _, width = m.shapes[x]
    if steps > 12:
        return None
    op, gates = m.pick((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    hidden, ways = m.draw(1, 9), m.draw(1, 2)
    weights = [m.array(ways, gates * hidden, e) * np.float32(0.4) for e in (width, hidden)]
    direction = "bidirectional" if ways == 2 else m.pick(("forward", "reverse"))
    return m.node(op, [x, *weights], hidden_size=hidden, direction=direction)


def _rounded(m: ChainModel, x: str, scale: float) -> str | None:
    """Through bytes of that scale and back, as quantizers write it; views move the bytes, too."""
    dtype = m.pick((np.uint8, np.uint8, np.int8))
    zero = dtype(m.pick((0, 128, 117)) - (0 if dtype is np.uint8 else 128))
    y = m.node("QuantizeLinear", [x, np.float32(scale), zero])
    if y is not None and m.draw(0, 1):
        y = m.pick((chain, reversal))(m, y)
    return m.node("DequantizeLinear", [y, np.float32(scale), zero])


def _product_of_bytes(m: ChainModel, x: str) -> str | None:
    """With int8 weights; reductions that can be cut in fours, and others."""
    *outer, depth = m.shapes[x]
    x = x if m.draw(0, 1) else of_rank(m, x, 2, 3, 4)
    if m.draw(0, 1) and depth % 4:
        widths = np.array([0, 0] * len(outer) + [0, -depth % 4])
        x = m.node("Pad", [x, np.concatenate([widths[::2], widths[1::2]])]) or x
    conv, depth = len(m.shapes[x]) == 4 and m.draw(0, 1), m.shapes[x][1]
    shape = (m.draw(1, 20), depth, 1, 1) if conv else (m.shapes[x][-1], m.draw(1, 20))
    levels = m.rng.integers(-127, 128, shape).astype(np.int8)
    weights = m.node("DequantizeLinear", [levels, np.float32(0.02), np.int8(0)])
    return m.node("Conv" if conv else "MatMul", [x, weights])


def quantized(m: ChainModel, x: str) -> str | None:
    """What reads bytes, as quantizers write it; only of values without a rounding error. Results
    become bytes again by a scale that no sum of products is beside a tie of."""
    if m.draw(0, 2) == 0:
        x = m.pick([v for v in m.feeds if v in m.real])
    if x not in m.exact:
        return None
    x = x if m.draw(0, 1) else of_rank(m, x, 2, 3, 4)
    y = _rounded(m, x, 0.05)
    if y is None:
        return None
    if m.draw(0, 3) == 0:
        return m.node(m.pick(("Add", "Mul")), [y, like(m, m.shapes[y])])
    if m.draw(0, 4) == 0:
        return m.node("Add", [y, x]) if m.shapes[x] == m.shapes[y] else m.node("Softmax", [y])
    y = _product_of_bytes(m, of_rank(m, y, 2, 3, 4))
    if y is None or m.draw(0, 1):
        return y
    return _rounded(m, m.node("Relu", [y]) or y if m.draw(0, 1) else y, 0.0503)


def depth_to_space(m: ChainModel, x: str) -> str | None:
    n, c, h, w = factors(m, math.prod(m.shapes[x]), 4)
    parts = m.node("Concat", [m.node("Reshape", [x, np.array([n, c, h, w])])] * 4, axis=1)
    if m.draw(0, 1) and h % 2 == w % 2 == 0:
        return m.node("SpaceToDepth", [parts], blocksize=2)
    return m.node("DepthToSpace", [parts], blocksize=2, mode=m.pick(("DCR", "CRD")))


KERNELS: dict[str, Kernel] = {
    "conv": dense_conv,
    "winograd": winograd_conv,
    "depthwise": depthwise_conv,
    "grouped conv": _of(onnx_graphs.conv, 3, 4, 5),
    "transposed conv": _of(onnx_graphs.conv_transpose, 3, 4),
    "pool": _of(onnx_graphs.pool, 3, 4),
    "global pool": _of(onnx_graphs.global_pool, 3, 4),
    "matmul": _of(onnx_graphs.matmul, 2, 3),
    "matmul of two": matmul_of_two,
    "constant left": constant_left,
    "gemm": gemm,
    "einsum": einsum,
    "attention": attention,
    "softmax": _of(onnx_graphs.softmax),
    "layer norm": layer_norm,
    "norm": _of(onnx_graphs.norm, 2, 3, 4),
    "lrn": _of(onnx_graphs.lrn, 4),
    "reduce": _of(onnx_graphs.reduce),
    "elementwise": _of(onnx_graphs.smooth),
    "binary": binary,
    "fused": fused,
    "where": where,
    "resize": resize,
    "scatter elements": scatter_elements,
    "scatter nd": scatter_nd,
    "gather elements": gather_elements,
    "gather nd": gather_nd,
    "top k": top_k,
    "arg max": arg_max,
    "whole numbers": whole_numbers,
    "cumulative sum": _of(onnx_graphs.cumsum),
    "recurrent": recurrent,
    "quantized": quantized,
    "grid": _of(onnx_graphs.grid, 4),
    "depth to space": depth_to_space,
    "triangle": _of(onnx_graphs.trilu, 2, 3),
    "copy": lambda _, x: x,
}


def chained_model(seed: int, kernel: str, kernels: int = 1) -> tuple[Any, dict[str, Array]]:
    """A model of that kernel, and others behind it, between chains of views; and its inputs."""
    m = ChainModel(seed)
    x = chain(m, m.pick(m.real))
    outputs = []
    for number in range(kernels):
        made = KERNELS[kernel if number == 0 else m.pick(tuple(KERNELS))](m, x)
        if made is None:
            made = m.node("Neg", [x])
        assert made is not None
        if not m.shapes[made]:
            made = m.node("Reshape", [made, np.array([1])]) or made
        if m.draw(0, 3) == 0:
            outputs.append(made)
        x = chain(m, made)
    if x in m.feeds or x in outputs:
        x = m.node("Neg", [x]) or x
    return m.model(*dict.fromkeys([x, *outputs])), m.feeds
