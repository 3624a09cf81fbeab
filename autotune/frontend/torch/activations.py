"""ATen importers: activations."""

from __future__ import annotations

import math

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.context import AtenCall, aten


@aten("relu")
def relu(n: AtenCall) -> str:
    return n.op("relu", n.value("self"))


@aten("relu6")
def relu6(n: AtenCall) -> str:
    return n.op("clip", n.value("self"), min=0.0, max=6.0)


@aten("hardtanh")
def hardtanh(n: AtenCall) -> str:
    low, high = n.number("min_val"), n.number("max_val")
    if not n.made_dtype.startswith("float"):
        raise UnsupportedOpError("integers are not supported")
    return n.op("clip", n.value("self"), min=low, max=high)


@aten("gelu")
def gelu(n: AtenCall) -> str:
    return n.op("gelu", n.value("self"), approximate=str(n.arg("approximate", "none")))


@aten("silu")
def silu(n: AtenCall) -> str:
    return n.op("silu", n.value("self"))


@aten("mish")
def mish(n: AtenCall) -> str:
    return n.op("mish", n.value("self"))


@aten("hardswish")
def hardswish(n: AtenCall) -> str:
    return n.op("hard_swish", n.value("self"))


@aten("hardsigmoid")
def hardsigmoid(n: AtenCall) -> str:
    return n.op("hard_sigmoid", n.value("self"), alpha=1 / 6, beta=0.5)


@aten("leaky_relu")
def leaky_relu(n: AtenCall) -> str:
    return n.op("leaky_relu", n.value("self"), alpha=n.number("negative_slope", 0.01))


@aten("elu")
def elu(n: AtenCall) -> str:
    """scale * (x, or alpha * (e**(input_scale x) - 1) below zero)."""
    x, alpha = n.value("self"), n.number("alpha", 1)
    scale, inner = n.number("scale", 1), n.number("input_scale", 1)
    if inner == 1:
        y = n.op("elu", x, alpha=alpha)
    else:
        zero = n.like(0, x)
        below = n.op("expm1", n.op("mul", n.op("min", x, zero), n.like(inner, x)))
        y = n.op("add", n.op("max", x, zero), n.op("mul", below, n.like(alpha, x)))
    return y if scale == 1 else n.op("mul", y, n.like(scale, y))


@aten("softplus")
def softplus(n: AtenCall) -> str:
    """log(1 + e**(beta x)) / beta; x itself where beta x is above the threshold."""
    x, beta, threshold = n.value("self"), n.number("beta", 1), n.number("threshold", 20)
    scaled = x if beta == 1 else n.op("mul", x, n.like(beta, x))
    y = n.op("softplus", scaled)
    y = y if beta == 1 else n.op("mul", y, n.like(1 / beta, y))
    return n.op("where", n.op("gt", scaled, n.like(threshold, x)), x, y)


@aten("log_sigmoid_forward")
def log_sigmoid(n: AtenCall) -> tuple[str, None]:
    return n.op("neg", n.op("softplus", n.op("neg", n.value("self")))), None


@aten("_prelu_kernel", "prelu")
def prelu(n: AtenCall) -> str:
    x, slope = n.value("self"), n.value("weight")
    return n.op("where", n.op("gt", x, n.like(0, x)), x, n.op("mul", x, slope))


@aten("threshold")
def threshold(n: AtenCall) -> str:
    x = n.value("self")
    above = n.op("gt", x, n.as_made("threshold"))
    return n.op("where", above, x, n.as_made("value"))


@aten("glu")
def glu(n: AtenCall) -> str:
    x = n.value("self")
    axis = n.axis("dim", n.rank(x), -1)
    half = n.shape(x)[axis] // 2
    starts, stops = [0] * n.rank(x), list(n.shape(x))
    stops[axis] = half
    left = n.op("slice", x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * n.rank(x))
    starts[axis], stops[axis] = half, 2 * half
    right = n.op("slice", x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * n.rank(x))
    return n.op("mul", left, n.op("sigmoid", right))


@aten("_softmax", "softmax")
def softmax(n: AtenCall) -> str:
    return _over_axis(n, "softmax")


@aten("_log_softmax", "log_softmax")
def log_softmax(n: AtenCall) -> str:
    return _over_axis(n, "log_softmax")


def _over_axis(n: AtenCall, op: str) -> str:
    x = n.as_made("self")
    if n.rank(x) == 0:
        return n.reshape(n.op(op, n.reshape(x, (1,)), axis=0), ())
    return n.op(op, x, axis=n.axis("dim", n.rank(x)))


@aten("_safe_softmax")
def safe_softmax(n: AtenCall) -> str:
    """A row of nothing but minus infinity gives zeros."""
    x = n.as_made("self")
    axis = n.axis("dim", n.rank(x))
    y = n.op("softmax", x, axis=axis)
    top = n.op("reduce_max", x, axes=(axis,), keepdims=True)
    return n.op("where", n.op("eq", top, n.like(-math.inf, x)), n.like(0, y), y)
