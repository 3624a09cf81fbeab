"""ATen importers: normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.context import AtenCall, aten


@aten("_native_batch_norm_legit_no_training", "native_batch_norm", "_native_batch_norm_legit",
      "cudnn_batch_norm", "batch_norm", "_batch_norm_no_update")  # fmt: skip
def batch_norm(n: AtenCall) -> str | tuple[str | None, ...]:
    """x * a + b with a and b per channel, constants where the parameters are."""
    x = n.value("input")
    if n.has("training") and n.arg("training", False):
        found = _of_the_batch(n, x)
        plain = not isinstance(n.result, tuple | list)
        return found[0] if plain else (*found, *[None] * (len(n.result) - 3))
    mean, variance = n.optional("running_mean"), n.optional("running_var")
    if mean is None or variance is None:
        raise UnsupportedOpError("there is neither training nor a running mean")
    scale, bias = n.optional("weight"), n.optional("bias")
    root = n.op("sqrt", n.op("add", variance, n.like(n.number("eps", 1e-5), variance)))
    a = n.op("reciprocal", root) if scale is None else n.op("div", scale, root)
    b = n.op("neg", n.op("mul", mean, a))
    b = b if bias is None else n.op("add", b, bias)
    y = _along_channels(n, x, a, b)
    return (y, *[None] * (len(n.result) - 1)) if isinstance(n.result, tuple | list) else y


def _of_the_batch(n: AtenCall, x: str) -> tuple[str, str, str]:
    """(normalized by its own mean and variance, these two's mean and reciprocal root)."""
    axes = tuple(a for a in range(n.rank(x)) if a != 1)
    epsilon = n.like(n.number("eps", 1e-5), x)
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True)
    centred = n.op("sub", x, mean)
    variance = n.op("reduce_mean", n.op("mul", centred, centred), axes=axes, keepdims=True)
    inverse = n.op("rsqrt", n.op("add", variance, epsilon))
    y = n.op("mul", centred, inverse)
    y = _along_channels(n, y, n.optional("weight"), n.optional("bias"))
    channels = (n.shape(x)[1],)
    return y, n.reshape(mean, channels), n.reshape(inverse, channels)


@aten("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional")
def batch_norm_that_remembers(n: AtenCall) -> tuple[str | None, ...]:
    """(the result, the batch's mean and reciprocal root, what some add, running mean and variance
    as they are afterwards)."""
    x, (mean, variance) = n.value("input"), (n.value("running_mean"), n.value("running_var"))
    if n.has("training") and not n.arg("training"):
        raise UnsupportedOpError("nothing is remembered without training")
    count = math.prod(n.shape(x)) // n.shape(x)[1]
    if count < 2:
        raise UnsupportedOpError("one element has no variance")
    y, of_batch, inverse = _of_the_batch(n, x)
    square = n.op("reciprocal", n.op("mul", inverse, inverse))
    spread = n.op("sub", square, n.like(n.number("eps", 1e-5), square))
    spread = n.op("mul", spread, n.like(count / (count - 1), spread))
    others = [None] * (len(n.result) - 5)
    return y, of_batch, inverse, *others, _moved(n, mean, of_batch), _moved(n, variance, spread)


def _moved(n: AtenCall, running: str, new: str) -> str:
    """A running statistic, moved toward a new one by the momentum."""
    momentum = n.number("momentum", 0.1)
    kept = n.op("mul", running, n.like(1 - momentum, running))
    return n.op("add", kept, n.op("mul", new, n.like(momentum, new)))


def _along_channels(n: AtenCall, x: str, a: str | None, b: str | None) -> str:
    """x * a + b, a and b along dimension 1 of x."""
    shape = (1, n.shape(x)[1], *[1] * (n.rank(x) - 2))
    x = x if a is None else n.op("mul", x, n.reshape(a, shape))
    return x if b is None else n.op("add", x, n.reshape(b, shape))


@aten("native_layer_norm", "layer_norm")
def layer_norm(n: AtenCall) -> str | tuple[str, ...]:
    """(the result, the mean and the reciprocal deviation of every row)."""
    x, rows = n.value("input"), n.integers("normalized_shape")
    y = _over_last(n, "layer_norm", x, len(rows), n.number("eps", 1e-5))
    if not isinstance(n.result, tuple | list):
        return y
    axes = tuple(range(n.rank(x) - len(rows), n.rank(x)))
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True)
    centred = n.op("sub", x, mean)
    variance = n.op("reduce_mean", n.op("mul", centred, centred), axes=axes, keepdims=True)
    return y, mean, n.op("rsqrt", n.op("add", variance, n.like(n.number("eps", 1e-5), x)))


@aten("_fused_rms_norm", "rms_norm")
def rms_norm(n: AtenCall) -> str | tuple[str, ...]:
    """(the result, the reciprocal root mean square of every row)."""
    x, rows = n.value("input"), n.integers("normalized_shape")
    given = n.arg("eps")
    epsilon = 1.1920928955078125e-07 if given is None else float(given)
    y = _over_last(n, "rms_norm", x, len(rows), epsilon)
    if not isinstance(n.result, tuple | list):
        return y
    axes = tuple(range(n.rank(x) - len(rows), n.rank(x)))
    square = n.op("reduce_mean", n.op("mul", x, x), axes=axes, keepdims=True)
    return y, n.op("rsqrt", n.op("add", square, n.like(epsilon, x)))


def _over_last(n: AtenCall, op: str, x: str, count: int, epsilon: float) -> str:
    """The last dimensions, which are normalized, become one."""
    shape = n.shape(x)
    axis = len(shape) - count
    length = math.prod(shape[axis:])
    if 0 in shape:
        return x
    scale, bias = n.optional("weight"), n.optional("bias") if n.has("bias") else None
    scale = (
        n.constant(np.ones(length), n.dtype(x)) if scale is None else n.reshape(scale, (length,))
    )
    operands = [n.reshape(x, (*shape[:axis], length)), scale]
    if op == "layer_norm":
        zeros = n.constant(np.zeros(length), n.dtype(x))
        operands.append(zeros if bias is None else n.reshape(bias, (length,)))
    return n.reshape(n.op(op, *operands, axis=axis, epsilon=epsilon), shape)


@aten("native_group_norm", "group_norm")
def group_norm(n: AtenCall) -> str | tuple[str | None, ...]:
    x = n.value("input")
    groups = n.integer("group" if n.has("group") else "num_groups")
    batch, channels, *spatial = n.shape(x)
    flat = n.reshape(x, (batch, groups, channels // groups * math.prod(spatial)))
    y = standardized(n, flat, (2,), n.number("eps", 1e-5))
    y = _along_channels(n, n.reshape(y, n.shape(x)), n.optional("weight"), n.optional("bias"))
    return (y, *[None] * (len(n.result) - 1)) if isinstance(n.result, tuple | list) else y


@aten("instance_norm")
def instance_norm(n: AtenCall) -> str:
    x = n.value("input")
    if not n.arg("use_input_stats", True):
        raise UnsupportedOpError("running statistics are not supported")
    y = standardized(n, x, range(2, n.rank(x)), n.number("eps", 1e-5))
    return _along_channels(n, y, n.optional("weight"), n.optional("bias"))


def standardized(n: AtenCall, x: str, axes: Sequence[int], epsilon: float) -> str:
    """Mean 0 and variance 1 over some axes."""
    axes = tuple(axes)
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True)
    centred = n.op("sub", x, mean)
    squares = n.op("mul", centred, centred)
    variance = n.op("reduce_mean", squares, axes=axes, keepdims=True)
    return n.op("div", centred, n.op("sqrt", n.op("add", variance, n.like(epsilon, x))))
