"""ATen importers: values of bytes, as PyTorch's quantization by export writes them (operators of
`quantized_decomposed`), and weights of bytes or fewer bits, as torchao's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

from autotune.errors import UnsupportedOpError
from autotune.frontend.byte_numbers import (
    MOVED,
    ByteSteps,
    as_bytes,
    constant_numbers,
    snapped_numbers,
)
from autotune.frontend.torch.byte_products import as_bytes_by, numbers_by, scaled_sums
from autotune.frontend.torch.context import AtenCall, aten
from autotune.frontend.torch.dtypes import graph_dtype
from autotune.frontend.weight_blocks import is_few, times_blocks
from autotune.types import Array


@aten("quantized_decomposed.quantize_per_tensor")
def quantize(n: AtenCall) -> str:
    if not _is_known(n):
        return as_bytes_by(n)
    steps = _steps(n)
    if steps.dtype not in MOVED:
        raise UnsupportedOpError(f"quantizing to {steps.dtype}: not supported; use uint8 or int8")
    value, limits = n.value("input"), np.iinfo(steps.dtype)
    ends = n.integer("quant_min"), n.integer("quant_max")
    if ends != (limits.min, limits.max):
        low, high = ((end - steps.zero) * steps.step for end in ends)
        value = n.op("clip", value, min=low, max=high)
    return as_bytes(n, value, steps)


@aten("quantized_decomposed.dequantize_per_tensor")
def dequantize(n: AtenCall) -> str:
    if not _is_known(n):
        return numbers_by(n)
    steps, value = _steps(n), n.value("input")
    numbers, whole = snapped_numbers(n, value, steps), n.known(value)
    if numbers is not None:
        return numbers
    if whole is not None:
        return constant_numbers(n, whole, np.array(steps.step), np.array(steps.zero), 0)
    apart = n.op("sub", n.cast(value, "float32"), n.constant(steps.zero, "float32"))
    return n.op("mul", apart, n.constant(steps.step, "float32"))


@aten("quantized_decomposed.dequantize_per_channel")
def dequantize_channels(n: AtenCall) -> str:
    names = ("input", "scales", "zero_points")
    values = [n.optional(name) for name in names]
    whole, scale, zero = (None if v is None else n.known(v) for v in values)
    if whole is None or scale is None or (zero is None and values[2] is not None):
        n.refuse("steps for each channel of what only a run knows")
    return constant_numbers(n, whole, scale, zero, n.axis("axis", whole.ndim))


def _is_known(n: AtenCall) -> bool:
    """Whether step and zero are numbers, or tensors of one that are constant."""
    given = (n.given(name) for name in ("scale", "zero_point"))
    return all(not isinstance(g, str) or n.known(g) is not None for g in given)


def _steps(n: AtenCall) -> ByteSteps:
    """What a call says of its bytes."""
    scale, zero = (_number(n, name) for name in ("scale", "zero_point"))
    return ByteSteps(step=float(scale), zero=int(zero), dtype=graph_dtype(n.arg("dtype")))


def _number(n: AtenCall, name: str) -> Any:
    """A number, or a tensor of one that is constant."""
    given = n.given(name)
    if not isinstance(given, str):
        return given
    known = n.known(given)
    if known is None or known.size != 1:
        n.refuse(f"a {name} that only a run knows")
    return known.item()


def of_bytes(n: AtenCall, x: str, name: str) -> str | None:
    """`x` times the weights that an argument is, where both are bytes, or where the weights are
    widened bytes, or counts of steps for blocks, and so few rows are multiplied that reading them
    is most of the time; None where not."""
    node = n.node_of(name)
    data = next(a for a in ("mat1", "batch1", "self") if n.has(a))
    if (sums := scaled_sums(n, x, data, name)) is not None:
        return sums
    if node is None or not is_few(n, x):
        return None
    bytes_ = _widened(n, node)
    if bytes_ is not None:
        return n.op("matmul", x, n.constant(bytes_), transpose_b=False)
    found = _in_blocks(n, node)
    return None if found is None else times_blocks(n, x, *found)


def _widened(n: AtenCall, node: fx.Node) -> Array | None:
    """Bytes that a node widens to floats."""
    if not _is(node, "_to_copy"):
        return None
    array = n.array_of(node.args[0])
    return array if array is not None and array.dtype == np.int8 and array.ndim == 2 else None


def _in_blocks(n: AtenCall, node: fx.Node) -> tuple[Array, Array, Array] | None:
    """(steps, middle, scales), as `times_blocks` takes them, of the transposed product of counts
    and scales: permute(view((to_float(steps) - to_float(middle)) * scales))."""
    chain = [node]
    for name in ("permute", "view", "mul", "sub"):
        if not _is(chain[-1], name) or not isinstance(chain[-1].args[0], fx.Node):
            return None
        chain.append(chain[-1].args[0])
    product, difference, counts = chain[2], chain[3], chain[4]
    if list(chain[0].args[1]) != [1, 0] or not _is(counts, "_to_copy"):  # type: ignore[arg-type]
        return None
    steps, middle = n.array_of(counts.args[0]), n.array_of(difference.args[1])
    scales = n.array_of(product.args[1])
    if steps is None or middle is None or scales is None or steps.ndim != 3:
        return None
    each = (*steps.shape[:2], 1)
    if steps.dtype != np.int8 or middle.shape != each or scales.shape != each:
        return None
    whole = middle.astype(np.float32)
    if not np.array_equal(whole, np.rint(whole)):
        return None
    return steps, whole, scales[..., 0]


def _is(node: Any, name: str) -> bool:
    target = getattr(node, "target", None)
    return isinstance(target, torch._ops.OpOverload) and target.overloadpacket.__name__ == name
