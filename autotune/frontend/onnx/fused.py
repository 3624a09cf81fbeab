"""ONNX importers: what ONNX Runtime's optimizer writes for an operator and its neighbours.

Operators of the domain com.microsoft: products, convolutions and activations with a bias, a scale
or an activation of their own, spelled out again; the compiler fuses them its own way.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import convolved
from autotune.frontend.onnx.linear import matrix_product

_ALONE = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "HardSwish": "hard_swish"}


@importer("com.microsoft.Gelu")
def gelu(n: NodeContext) -> str:
    return n.op("gelu", n.input(0), approximate="none")


@importer("com.microsoft.BiasGelu")
def bias_gelu(n: NodeContext) -> str:
    return n.op("gelu", n.op("add", n.input(0), n.input(1)), approximate="none")


@importer("com.microsoft.FastGelu")
def fast_gelu(n: NodeContext) -> str:
    x = n.input(0)
    if n.optional(1) is not None:
        x = n.op("add", x, n.input(1))
    return n.op("gelu", x, approximate="tanh")


@importer("com.microsoft.QuickGelu")
def quick_gelu(n: NodeContext) -> str:
    x = n.input(0)
    return n.op("swish", x, n.like(n.number("alpha", 1.702), x))


@importer("com.microsoft.FusedConv")
def fused_conv(n: NodeContext) -> str:
    y = convolved(n)
    if n.optional(3) is not None:
        y = n.op("add", y, n.input(3))
    return _activated(n, y, n.attribute("activation_params", ()))


@importer("com.microsoft.FusedGemm")
def fused_gemm(n: NodeContext) -> str:
    names = [f"activation_{p}" for p in ("alpha", "beta", "gamma")]
    return _activated(n, matrix_product(n), [n.number(p, 0.0) for p in names if n.has(p)])


def _activated(n: NodeContext, x: str, params: Sequence[float]) -> str:
    name = n.text("activation", "")
    if not name:
        return x
    if name in _ALONE:
        return n.op(_ALONE[name], x)
    if name == "LeakyRelu":
        return n.op("leaky_relu", x, alpha=params[0] if params else 0.01)
    if name == "HardSigmoid":
        alpha, beta = params or (0.2, 0.5)
        return n.op("hard_sigmoid", x, alpha=alpha, beta=beta)
    if name == "Clip" and len(params) == 2:
        return n.op("clip", x, min=params[0], max=params[1])
    raise UnsupportedOpError(
        f"activation {name!r} with {len(params)} parameters is not supported; "
        "use the model as it was before the optimization"
    )


@importer("com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul")
def fused_matmul(n: NodeContext) -> str:
    """alpha * A @ B, either transposed: the last two dimensions, or (transBatch) the first one
    brought to before the last."""
    a = _turned(n, n.input(0), "transA", "transBatchA")
    b = _turned(n, n.input(1), "transB", "transBatchB")
    y = n.op("matmul", a, b, transpose_b=False)
    alpha = n.number("alpha", 1.0)
    return y if alpha == 1.0 else n.op("mul", y, n.like(alpha, y))


def _turned(n: NodeContext, x: str, transposed: str, batch: str) -> str:
    order = list(range(n.rank(x)))
    if n.integer(batch, 0):
        order = [*order[1:-1], 0, order[-1]]
    if n.integer(transposed, 0):
        order[-2:] = order[:-3:-1]
    return n.transpose(x, order)
