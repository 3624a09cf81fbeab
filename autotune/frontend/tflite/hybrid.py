"""Layers of floats whose weights are bytes (dynamic-range quantization): inputs become bytes as
they come, products are integers, sums floats again.

In: an operator of float32 with weights of int8. Out: a value of float32. Steps are found as the
reference kernels find them: of every row of a fully connected layer, of every image of a
convolution; from the least to the greatest element, or as far below zero as above.
"""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.tflite.context import MOVED, OperatorContext
from autotune.types import Array

_MOST = 127
"""The greatest byte."""


def has_bytes_as_weights(n: OperatorContext) -> bool:
    """Whether floats are multiplied by bytes."""
    return n.tensor(0).dtype == "float32" and n.tensor(1).dtype == "int8"


def as_bytes(
    n: OperatorContext, x: str, axes: tuple[int, ...], *, around_zero: bool
) -> tuple[str, str, str]:
    """(uint8, its zero points as int32, float32 of one step): a step for all elements along
    `axes`."""
    steps = _around_zero if around_zero else _between_extremes
    scale, zero = steps(n, x, axes)
    inverse = n.op("div", n.like(1.0, scale), scale)
    count = n.cast(_halves_away(n, n.op("mul", x, inverse)), "int32")
    least = -_MOST if around_zero else -MOVED
    count = n.op("clip", n.op("add", count, zero), min=least, max=_MOST)
    moved = n.like(MOVED, count)
    return n.op("to_uint8", n.op("add", count, moved)), n.op("add", zero, moved), scale


def _around_zero(n: OperatorContext, x: str, axes: tuple[int, ...]) -> tuple[str, str]:
    """(a step, the zero point 0): 127 steps from zero to the largest element."""
    most = n.op("reduce_max", n.op("abs", x), axes=axes, keepdims=True)
    none = n.op("eq", most, n.like(0.0, most))
    scale = n.op("div", most, n.like(float(_MOST), most))
    scale = n.op("where", none, n.like(1.0, scale), scale)
    return scale, n.scalar(0, "int32")


def _between_extremes(n: OperatorContext, x: str, axes: tuple[int, ...]) -> tuple[str, str]:
    """(a step, the zero point): 255 steps from the least element to the greatest, zero among
    them, found in float64."""
    zero = n.like(0.0, x)
    low = n.op("min", n.op("reduce_min", x, axes=axes, keepdims=True), zero)
    high = n.op("max", n.op("reduce_max", x, axes=axes, keepdims=True), zero)
    low, high = n.cast(low, "float64"), n.cast(high, "float64")

    def number(value: float) -> str:
        return n.scalar(value, "float64")

    step = n.op("div", n.op("sub", high, low), number(255.0))
    step = n.op("where", n.op("eq", low, high), number(1.0), step)
    below, above = n.op("div", low, step), n.op("div", high, step)
    by_least = n.op("sub", number(-128.0), below)
    by_most = n.op("sub", number(127.0), above)
    nearer = n.op(
        "lt",
        n.op("add", number(128.0), n.op("abs", below)),
        n.op("add", number(127.0), n.op("abs", above)),
    )
    point = _halves_away(n, n.op("where", nearer, by_least, by_most))
    point = n.op("clip", n.cast(point, "int32"), min=-MOVED, max=_MOST)
    return n.cast(step, "float32"), point


def _halves_away(n: OperatorContext, x: str) -> str:
    """Rounded to the nearest whole number, halves away from zero."""
    size = n.op("abs", x)
    whole = n.op("floor", size)
    up = n.op("ge", n.op("sub", size, whole), n.like(0.5, size))
    size = n.op("where", up, n.op("add", whole, n.like(1.0, whole)), whole)
    return n.op("mul", n.op("sign", x), size)


def as_floats(n: OperatorContext, total: str, scale: str, outputs: int) -> str:
    """Sums of products, less zero points, times both scales, and the bias."""
    scales = n.tensor(1).scales
    if scales.size not in (1, outputs):
        raise ModelError(f"{scales.size} scales of weights for {outputs} outputs")
    if n.tensor(1).zeros.any():
        raise UnsupportedOpError("weights with zero points are not supported; convert them again")
    wide = n.cast(total, "float32")
    y = n.op("mul", wide, n.op("mul", scale, n.constant(scales.reshape(-1), "float32")))
    return n.op("add", y, n.input(2)) if n.has(2) else y


def less_zero_points(n: OperatorContext, total: str, zero: str, sums: Array) -> str:
    """Sums of products of bytes less zero points times the weights' sums, which are known."""
    return n.op("sub", total, n.op("mul", zero, n.constant(sums, "int32")))


def seen_sums(weights: Array, seen: tuple[Array, Array]) -> Array:
    """Sums of the weights [KH, KW, I, O] that each window multiplies with an element of the image:
    [rows, columns, O], or [O] where all windows lie inside. `seen`: by row and by column of the
    result, which taps lie inside."""
    rows, columns = (s.astype(np.int64) for s in seen)
    whole = weights.astype(np.int64).sum(axis=2)
    sums = np.einsum("yk,xl,klo->yxo", rows, columns, whole)
    return np.asarray(sums[0, 0] if (sums == sums[0, 0]).all() else sums)
