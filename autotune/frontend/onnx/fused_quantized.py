"""ONNX importers: products of quantized weights as ONNX Runtime's optimizer writes them.

In: floats that are quantized by their own range, or bytes. Out: floats.
"""

from __future__ import annotations

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.fused_attention import packed_attention, refuse_set
from autotune.frontend.onnx.integers import Sums
from autotune.frontend.onnx.quantized import (
    dequantize_linear,
    dynamic_bytes,
    quantize_linear,
)
from autotune.frontend.views import select_ranges

importer("com.microsoft.QuantizeLinear")(quantize_linear)
importer("com.microsoft.DequantizeLinear")(dequantize_linear)


@importer("com.microsoft.DynamicQuantizeMatMul")
def dynamic_quantize_matmul(n: NodeContext) -> str:
    data, scale, zero = dynamic_bytes(n, n.input(0))
    sums = Sums(n, data, zero, n.input(1), n.optional(3)).of_matmul()
    return _scaled(n, sums, scale, n.input(2), bias=4)


@importer("com.microsoft.MatMulIntegerToFloat")
def matmul_integer_to_float(n: NodeContext) -> str:
    sums = Sums(n, n.input(0), n.optional(4), n.input(1), n.optional(5)).of_matmul()
    return _scaled(n, sums, n.input(2), n.input(3), bias=6)


@importer("com.microsoft.QAttention")
def quantized_attention(n: NodeContext) -> tuple[str, ...]:
    """(result, present): attention whose queries, keys and values are one product of bytes."""
    refuse_set(n, "do_rotary", "past_present_share_buffer")
    sums = Sums(n, n.input(0), n.optional(6), n.input(1), n.optional(7)).of_matmul()
    joined = _scaled(n, sums, n.input(3), n.input(4), bias=2)
    width = n.shape(joined)[2] // 3
    parts = [select_ranges(n, joined, {2: range(i * width, (i + 1) * width)}) for i in range(3)]
    return packed_attention(n, parts, mask=5, past=8, bias=9)


def _scaled(n: NodeContext, sums: str, left: str, right: str, *, bias: int) -> str:
    """Sums of products as numbers: one scale for the data, one or one a column for weights."""
    if any(n.shape(s) not in ((), (1,), n.shape(sums)[-1:]) for s in (left, right)):
        raise UnsupportedOpError("scales must be one, or one for each column")
    y = n.op("mul", n.cast(sums, "float32"), n.op("mul", left, right))
    return y if n.optional(bias) is None else n.op("add", y, n.input(bias))
