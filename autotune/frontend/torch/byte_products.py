"""ATen importers: products of bytes whose steps only a run knows, as PyTorch's dynamic
quantization by export writes them, and of integers, as torchao's does.

An exporter writes quantize, dequantize, and a product of floats; what is multiplied here are the
bytes, and their sums are scaled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

from autotune.frontend.byte_sums import ByteSums
from autotune.frontend.torch.context import AtenCall, aten
from autotune.frontend.torch.dtypes import graph_dtype
from autotune.types import Array

_BYTES = ("uint8", "int8")
_FREE = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "clone", "alias")
"""They keep the elements, in their order, and give the last dimension as it was where this is what
a product sums over."""


@aten("quantized_decomposed.choose_qparams", "quantized_decomposed.choose_qparams_symmetric")
def choose(n: AtenCall) -> tuple[str, str]:
    """(step, zero) by the least and the greatest element, as one number each."""
    x = n.cast(n.value("input"), "float32")
    least, most = float(n.integer("quant_min")), float(n.integer("quant_max"))
    row = n.reshape(x, (1, int(np.prod(n.shape(x)))))
    ends = [n.op(f"reduce_{end}", row, axes=(1,), keepdims=False) for end in ("min", "max")]
    nothing = n.like(0, x)
    low, high = n.op("min", ends[0], nothing), n.op("max", ends[1], nothing)
    symmetric = "symmetric" in str(n.target)
    if symmetric:
        high = n.op("max", n.op("neg", low), high)
        step = n.op("div", high, n.like((most - least) / 2, x))
    else:
        step = n.op("div", n.op("sub", high, low), n.like(most - least, x))
    step = n.op("max", step, n.like(n.number("eps"), x))
    if symmetric:
        middle = 128 if graph_dtype(n.arg("dtype")) == "uint8" else 0
        return n.cast(step, "float64"), n.expanded(n.constant(middle, "int64"), (1,))
    count = n.op("round", n.op("div", low, step))
    zero = n.op("clip", n.op("sub", n.like(least, x), count), min=least, max=most)
    return n.cast(step, "float64"), n.cast(zero, "int64")


def as_bytes_by(n: AtenCall) -> str:
    """A quantization by a step and a zero that only a run knows."""
    dtype = graph_dtype(n.arg("dtype"))
    if dtype not in _BYTES:
        n.refuse(f"quantizing to {dtype} by a step that only a run knows")
    x, (step, zero) = n.value("input"), _steps(n)
    count = n.op("round", n.op("mul", x, n.op("reciprocal", step)))
    ends = {"min": n.integer("quant_min"), "max": n.integer("quant_max")}
    return n.op(f"to_{dtype}", n.op("clip", n.op("add", count, zero), **ends))


def numbers_by(n: AtenCall) -> str:
    """A dequantization by a step and a zero that only a run knows."""
    step, zero = _steps(n)
    return n.op("mul", n.op("sub", n.cast(n.value("input"), "float32"), zero), step)


def _steps(n: AtenCall) -> tuple[str, str]:
    """Step and zero as floats of no dimension, which each element is computed with."""
    step, zero = (n.in_type(name, "float32") for name in ("scale", "zero_point"))
    return n.reshape(step, ()), n.reshape(zero, ())


def scaled_sums(n: AtenCall, x: str, data: str, weights: str) -> str | None:
    """`x` times weights, where `x` is the argument `data`, which comes from bytes by a step that
    only a run knows, and `weights` is one of constant bytes; None where not."""
    source, read = _behind(n.node_of(data)), _read(n, n.node_of(weights))
    if read is None or not _is(source, "dequantize_per_tensor") or n.rank(x) < 2:
        return None
    bytes_, step, zero = (n.made_by(node) for node in source.args[:3])
    if not all(isinstance(v, str) for v in (bytes_, step, zero)) or n.known(step) is not None:
        return None
    whole, scale, apart = read
    if n.dtype(bytes_) not in _BYTES or n.shape(x)[-1] != whole.shape[0]:
        return None
    sums = ByteSums(
        n, n.reshape(bytes_, n.shape(x)), zero,
        n.constant(whole, "int8"), n.constant(apart.reshape(-1), "int32"),
    ).of_matmul()  # fmt: skip
    steps = n.op("mul", n.reshape(n.cast(step, "float32"), ()), n.constant(scale, "float32"))
    return n.op("mul", n.cast(sums, "float32"), steps)


def _read(n: AtenCall, node: Any) -> tuple[Array, Array, Array] | None:
    """(bytes, steps, zeros) of weights as a product takes them, [K, N], [N], [N]."""
    turned = (_is(node, "permute") and list(node.args[1]) == [1, 0]) or _is(node, "t")
    source = node.args[0] if turned else node
    if _is(source, "dequantize_per_channel"):
        whole, scale, zero = (n.array_of(a) for a in source.args[:3])
        axis = source.args[3]
    elif _is(source, "dequantize_per_tensor"):
        whole, axis = n.array_of(source.args[0]), 0 if turned else 1
        scale, zero = (_number(n, a) for a in source.args[1:3])
    else:
        return None
    if whole is None or scale is None or whole.dtype != np.int8 or whole.ndim != 2:
        return None
    if axis != (0 if turned else 1):
        return None
    whole = whole.T if turned else whole
    zero = np.zeros(1) if zero is None else zero
    every = np.ones(whole.shape[1])
    return np.ascontiguousarray(whole), every * scale.reshape(-1), every * zero.reshape(-1)


def _number(n: AtenCall, given: Any) -> Array | None:
    return n.array_of(given) if isinstance(given, fx.Node) else np.asarray(float(given))


def _behind(node: Any) -> Any:
    """What gives the elements that a node gives in another shape."""
    while isinstance(node, fx.Node) and any(_is(node, name) for name in _FREE):
        node = node.args[0]
    return node


def _is(node: Any, name: str) -> bool:
    target = getattr(node, "target", None)
    return isinstance(target, torch._ops.OpOverload) and target.overloadpacket.__name__ == name


@aten("_int_mm")
def product_of_integers(n: AtenCall) -> str:
    """int32 sums of products of bytes."""
    x, weights = n.value("self"), n.value("mat2")
    if n.known(weights) is None or n.dtype(weights) != "int8" or n.dtype(x) not in _BYTES:
        n.refuse("a product of integers neither of which is constant")
    return ByteSums(n, x, None, weights, None).of_matmul()
