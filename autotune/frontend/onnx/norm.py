"""ONNX importers: normalisations and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import check_window
from autotune.frontend.views import from_nhwc, positive_axis, to_nhwc
from autotune.ops.row import norm_scale


@importer("BatchNormalization")
def batch_normalization(n: NodeContext) -> str | tuple[str, ...]:
    """x * a + b with a and b per channel, constants where the parameters are."""
    n.ignore("momentum", "is_test")
    if not n.integer("spatial", 1):
        raise UnsupportedOpError("only normalization over channels (spatial=1) is supported")
    if n.integer("training_mode", 0):
        return _by_the_batch(n)
    x, scale, bias, mean, variance = (n.input(i) for i in range(5))
    std = n.op("sqrt", n.op("add", variance, n.like(n.number("epsilon", 1e-5), variance)))
    a = n.op("div", scale, std)
    b = n.op("sub", bias, n.op("mul", mean, a))
    return _affine(n, x, a, b)


def _by_the_batch(n: NodeContext) -> tuple[str, ...]:
    """Normalized by its own mean and variance; and what of them is remembered."""
    x = n.input(0)
    axes = tuple(a for a in range(n.rank(x)) if a != 1)
    epsilon = n.number("epsilon", 1e-5)
    step = norm_scale(epsilon, n.dtype(x))
    scaled = n.op("mul", x, n.like(step, x))
    y = _affine(n, _standardized(n, scaled, axes, epsilon * step**2), n.input(1), n.input(2))
    if not any(n.outputs[1:]):
        return (y,)
    momentum = n.number("momentum", 0.9)
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True)
    centred = n.op("sub", x, mean)
    variance = n.op("reduce_mean", n.op("mul", centred, centred), axes=axes, keepdims=True)
    remembered = []
    for old, new in ((n.input(3), mean), (n.input(4), variance)):
        fresh = n.op("mul", n.reshape(new, n.shape(old)), n.like(1 - momentum, x))
        remembered.append(n.op("add", n.op("mul", old, n.like(momentum, old)), fresh))
    return y, *remembered


def _affine(n: NodeContext, x: str, a: str, b: str) -> str:
    """x * a + b, a and b along dimension 1 of x."""
    shape = (1, n.shape(x)[1], *[1] * (n.rank(x) - 2))
    return n.op("add", n.op("mul", x, n.reshape(a, shape)), n.reshape(b, shape))


@importer("InstanceNormalization")
def instance_normalization(n: NodeContext) -> str:
    x = n.input(0)
    axes = range(2, n.rank(x))
    y = _standardized(n, x, axes, n.number("epsilon", 1e-5))
    return _affine(n, y, n.input(1), n.input(2))


@importer("GroupNormalization")
def group_normalization(n: NodeContext) -> str:
    """Opset 18 has one scale per group, opset 21 one per channel."""
    n.ignore("stash_type")
    x, scale, bias = n.input(0), n.input(1), n.input(2)
    groups = n.integer("num_groups", 0)
    batch, channels, *spatial = n.shape(x)
    if groups < 1 or channels % groups:
        raise ModelError(f"num_groups {groups} does not divide {channels} channels")
    grouped = n.reshape(x, (batch, groups, channels // groups * math.prod(spatial)))
    y = _standardized(n, grouped, (2,), n.number("epsilon", 1e-5))
    if n.opset < 21:
        return n.reshape(_affine(n, y, scale, bias), n.shape(x))
    return _affine(n, n.reshape(y, n.shape(x)), scale, bias)


def _standardized(n: NodeContext, x: str, axes: Sequence[int], epsilon: float) -> str:
    """Mean 0 and variance 1 over some axes. Where these are the last ones a norm is recognized,
    which squares scaled elements; where not, x must be scaled."""
    centred, variance = _centred(n, x, axes)
    return n.op("div", centred, n.op("sqrt", n.op("add", variance, n.like(epsilon, x))))


def _centred(n: NodeContext, x: str, axes: Sequence[int]) -> tuple[str, str]:
    """(x less its mean over some axes, its variance)."""
    mean = n.op("reduce_mean", x, axes=tuple(axes), keepdims=True)
    centred = n.op("sub", x, mean)
    squares = n.op("mul", centred, centred)
    return centred, n.op("reduce_mean", squares, axes=tuple(axes), keepdims=True)


@importer("MeanVarianceNormalization")
def mean_variance_normalization(n: NodeContext) -> str:
    x = n.input(0)
    given = n.integers("axes") or (0, 2, 3)
    axes = tuple(sorted({positive_axis(a, n.rank(x)) for a in given}))
    least = 1e-9
    step = norm_scale(least**2, n.dtype(x))
    centred, variance = _centred(n, n.op("mul", x, n.like(step, x)), axes)
    return n.op("div", centred, n.op("add", n.op("sqrt", variance), n.like(least * step, x)))


@importer("LayerNormalization")
def layer_normalization(n: NodeContext) -> str | tuple[str, ...]:
    """The result; its mean and the reciprocal of its deviation too where something uses them."""
    n.ignore("stash_type")
    y = _over_last_axes(n, "layer_norm")
    if not any(n.outputs[1:]):
        return y
    x = n.input(0)
    axes = tuple(range(positive_axis(n.integer("axis", -1), n.rank(x)), n.rank(x)))
    epsilon = n.number("epsilon", 1e-5)
    step = norm_scale(epsilon, n.dtype(x))
    variance = _centred(n, n.op("mul", x, n.like(step, x)), axes)[1]
    shifted = n.op("add", variance, n.like(epsilon * step**2, variance))
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True)
    return y, mean, n.op("div", n.like(step, x), n.op("sqrt", shifted))


@importer("RMSNormalization")
def rms_normalization(n: NodeContext) -> str:
    n.ignore("stash_type")
    return _over_last_axes(n, "rms_norm")


def _over_last_axes(n: NodeContext, op: str) -> str:
    """The normalized axes become one last axis."""
    x = n.input(0)
    shape = n.shape(x)
    axis = positive_axis(n.integer("axis", -1), len(shape))
    row = math.prod(shape[axis:])
    flat = n.reshape(x, (*shape[:axis], row))
    if op == "rms_norm" and n.rank(n.input(1)) > len(shape) - axis:
        # A scale that varies outside these axes, or could, comes after.
        ones = n.constant(np.ones(row), n.dtype(x))
        y = n.op(op, flat, ones, axis=axis, epsilon=n.number("epsilon", 1e-5))
        return n.op("mul", n.reshape(y, shape), n.input(1))
    scale = _row_parameter(n, n.input(1), shape[axis:])
    attrs = {"axis": axis, "epsilon": n.number("epsilon", 1e-5)}
    if op == "rms_norm":
        return n.reshape(n.op(op, flat, scale, **attrs), shape)
    bias = n.optional(2)
    if bias is None:
        bias = n.constant(np.zeros(row), n.dtype(x))
    else:
        bias = _row_parameter(n, bias, shape[axis:])
    return n.reshape(n.op(op, flat, scale, bias, **attrs), shape)


def _row_parameter(n: NodeContext, value: str, shape: tuple[int, ...]) -> str:
    """A scale or bias over the normalized axes, flat."""
    if n.rank(value) > len(shape):
        raise UnsupportedOpError(
            f"scale and bias of shape {n.shape(value)} must not vary outside the normalized "
            f"axes {shape}"
        )
    if n.shape(value) != shape:
        value = n.op("expand", value, shape=shape)
    return n.reshape(value, (math.prod(shape),))


@importer("LRN")
def lrn(n: NodeContext) -> str:
    x, size = n.input(0), n.integer("size", 1)
    check_window((size,), (), (), ())
    y = n.op(
        "lrn", to_nhwc(n, x), size=size, alpha=n.number("alpha", 1e-4),
        beta=n.number("beta", 0.75), bias=n.number("bias", 1.0),
    )  # fmt: skip
    return from_nhwc(n, y, n.rank(x))


@importer("LpNormalization")
def lp_normalization(n: NodeContext) -> str:
    x = n.input(0)
    axis = positive_axis(n.integer("axis", -1), n.rank(x))
    p = n.integer("p", 2)
    if p not in (1, 2):
        raise UnsupportedOpError(f"p must be 1 or 2, got {p}")
    sizes = n.op("abs", x) if p == 1 else n.op("mul", x, x)
    norm = n.op("reduce_sum", sizes, axes=(axis,), keepdims=True)
    norm = norm if p == 1 else n.op("sqrt", norm)
    # A row of zeros stays zero.
    empty = n.op("eq", norm, n.like(0, norm))
    return n.op("div", x, n.op("where", empty, n.like(1, norm), norm))


@importer("Softmax")
def softmax(n: NodeContext) -> str:
    return _softmax(n, "softmax")


@importer("LogSoftmax")
def log_softmax(n: NodeContext) -> str:
    return _softmax(n, "log_softmax")


def _softmax(n: NodeContext, op: str) -> str:
    """Before opset 13 the axes from `axis` on are one axis; since then it is `axis` alone."""
    x = n.input(0)
    shape = n.shape(x)
    axis = positive_axis(n.integer("axis", -1 if n.opset >= 13 else 1), max(len(shape), 1))
    if n.opset >= 13:
        return n.op(op, x, axis=axis)
    flat = n.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return n.reshape(n.op(op, flat, axis=1), shape)
