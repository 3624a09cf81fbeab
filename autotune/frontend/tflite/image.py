"""TensorFlow Lite importers: convolutions and pools of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.deconvolution import Geometry, phases
from autotune.frontend.tflite import shorts
from autotune.frontend.tflite.context import MOVED, OperatorContext, tflite_importer
from autotune.frontend.tflite.fixed_point import quantized_multipliers, settled
from autotune.frontend.tflite.hybrid import (
    as_bytes,
    as_floats,
    has_bytes_as_weights,
    less_zero_points,
    seen_sums,
)
from autotune.frontend.tflite.linear import (
    byte_parts,
    product_factors,
    same_steps,
    signed_weights,
    summed,
)
from autotune.types import Array

_TOGETHER = 4
"""Channels that an instruction multiplies at once; fewer are filled up."""
_MOST_BYTE = 255
"""The largest number of a byte."""
_ONE = 1 << 10
"""The share of a whole element, of those that bilinear resizes mix."""


@tflite_importer("CONV_2D")
def conv_2d(n: OperatorContext) -> str:
    return _convolved(n, n.options("Conv2DOptions"), signed_weights(n).transpose(1, 2, 3, 0))


@tflite_importer("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(n: OperatorContext) -> str:
    weights = signed_weights(n).transpose(1, 2, 0, 3)
    return _convolved(n, n.options("DepthwiseConv2DOptions"), weights)


def _convolved(n: OperatorContext, options: Any, weights: Array) -> str:
    """Weights [KH, KW, I / groups, O]."""
    x = n.input(0)
    channels = n.shape(x)[-1]
    if len(n.shape(x)) != 4 or channels % weights.shape[2]:
        raise ModelError(
            f"an image of shape {n.shape(x)} and weights of {weights.shape} do not fit"
        )
    strides = (options.StrideH(), options.StrideW())
    dilations = (options.DilationHFactor(), options.DilationWFactor())
    pads = padding(n.shape(x)[1:3], weights.shape[:2], strides, dilations, options.Padding())
    attrs = {"strides": strides, "dilations": dilations, "groups": channels // weights.shape[2]}
    activation = options.FusedActivationFunction()
    if shorts.of_shorts(n, 0):
        return shorts.as_shorts(n, _by_shorts(n, x, weights, pads, attrs), activation)
    if has_bytes_as_weights(n):
        return n.float_activated(_by_bytes(n, x, weights, pads, attrs), activation)
    if not n.quantized(0, 1, unsigned=True):
        y = n.op("conv2d", x, n.constant(weights), pads=pads, **attrs)
        y = n.op("add", y, n.input(2)) if n.has(2) else y
        return n.float_activated(y, activation)
    zero = n.tensor(0).point
    bias = -zero * weights.astype(np.int64).sum(axis=(0, 1, 2))
    if attrs["groups"] == 1 and dilations[1] == 1 and _unfolds(n.shape(x)[2], weights, strides[1]):
        if any(pads):
            widths = (0, pads[0], pads[1], 0, 0, pads[2], pads[3], 0)
            x, pads = n.op("pad", x, pads=widths, value=float(zero)), (0, 0, 0, 0)
        x, weights = _unfolded(n, x, weights, strides[1])
        attrs["strides"] = (strides[0], 1)
    more = -weights.shape[2] % _TOGETHER if attrs["groups"] == 1 else 0
    if more or (any(pads) and zero):
        widths = (0, pads[0], pads[1], 0, 0, pads[2], pads[3], more)
        x, pads = n.op("pad", x, pads=widths, value=float(zero)), (0, 0, 0, 0)
        weights = np.pad(weights, ((0, 0), (0, 0), (0, more), (0, 0)))
    total = summed(
        n, [n.op("conv2d", x, n.constant(w), pads=pads, **attrs) for w in byte_parts(weights)]
    )
    if n.has(2):
        bias = bias + n.counts(2)
    rows = n.tensor(1).dtype == "uint8"  # which scales as the only one of a layer's rows
    factors, shifts = quantized_multipliers(product_factors(n, weights.shape[3], rows=rows))
    most = _MOST_BYTE * np.abs(weights.astype(np.int64)).sum(axis=(0, 1, 2))
    if not most.all():
        bias, factors, shifts = settled(bias, most == 0, factors, shifts)
    if bias.any():
        total = n.op("add", total, n.constant(bias.astype(np.int32)))
    return n.activated(n.scaled_sums(total, factors, shifts, most + np.abs(bias)), activation)


def _by_shorts(
    n: OperatorContext, x: str, weights: Array, pads: tuple[int, int, int, int], attrs: Any
) -> str:
    """The same of int16, in the output's steps."""
    more = -weights.shape[2] % _TOGETHER if attrs["groups"] == 1 else 0
    whole = np.pad(weights, ((0, 0), (0, 0), (0, more), (0, 0)))
    widths = (0, pads[0], pads[1], 0, 0, pads[2], pads[3], more)
    total = shorts.products(
        n, x, lambda data: n.op("conv2d", data, n.constant(whole), **attrs), n.tensor(1), widths
    )
    return shorts.scaled(n, total, weights, product_factors(n, weights.shape[3]))


def _by_bytes(
    n: OperatorContext, x: str, weights: Array, pads: tuple[int, int, int, int], attrs: Any
) -> str:
    """Floats by weights of bytes. What a window sees beside the image is zero: of the bytes, no
    products."""
    data, zero, scale = as_bytes(n, x, (1, 2, 3), around_zero=n.tensor(1).scales.size == 1)
    y = n.op("conv2d", data, n.constant(weights), pads=pads, **attrs)
    sides = zip(
        n.shape(x)[1:3], weights.shape[:2], attrs["strides"], attrs["dilations"], pads[:2],
        n.shape(y)[1:3], strict=True,
    )  # fmt: skip
    rows, columns = (
        _inside(np.arange(count)[:, None] * s - before + np.arange(k) * d, extent)
        for extent, k, s, d, before, count in sides
    )
    total = less_zero_points(n, y, zero, seen_sums(weights, (rows, columns)))
    return as_floats(n, total, scale, weights.shape[3])


def _inside(places: Array, extent: int) -> Array:
    return np.asarray((places >= 0) & (places < extent))


@tflite_importer("TRANSPOSE_CONV")
def transpose_conv(n: OperatorContext) -> str:
    """Inputs: the size of the result, weights [O, KH, KW, I], the image, and a bias or none. Of
    bytes, zero points are taken away as often as weights meet the image."""
    whole = n.quantized(2, 1)
    options, x = n.options("TransposeConvOptions"), n.input(2)
    weights, extent = n.array(1).transpose(3, 0, 1, 2), n.result().shape[1:3]
    strides, kernel = (options.StrideH(), options.StrideW()), weights.shape[2:]
    pads = padding(extent, kernel, strides, (1, 1), options.Padding())
    geometry = Geometry(
        kernel=kernel, strides=strides, dilations=(1, 1), start=pads[:2], extent=extent
    )
    y = phases(n, x, n.constant(weights), geometry, 1)
    activation = options.FusedActivationFunction()
    if not whole:
        y = n.op("add", y, n.input(3)) if n.has(3) else y
        return n.float_activated(y, activation)
    bias = -n.tensor(2).point * _met_sums(weights, geometry, n.shape(x)[1:3])
    bias = bias + n.counts(3) if n.has(3) else bias
    if bias.any():
        y = n.op("add", y, n.constant(bias, "int32"))
    factors = product_factors(n, weights.shape[1], data_input=2)
    return n.activated(n.scaled(y, factors), activation)


def _met_sums(weights: Array, geometry: Geometry, image: tuple[int, ...]) -> Array:
    """Sums of the weights [I, O, KH, KW] that meet an element of the image, by place of the
    result: [rows, columns, O], or [O] where they are the same."""
    along = []
    for extent, k, s, start, size in zip(
        geometry.extent, geometry.kernel, geometry.strides, geometry.start, image, strict=True
    ):
        apart = np.arange(extent)[:, None] + start - np.arange(k)
        along.append((apart % s == 0) & _inside(apart // s, size))
    return seen_sums(weights.transpose(2, 3, 0, 1), (along[0], along[1]))


@tflite_importer("RESIZE_BILINEAR")
def resize_bilinear(n: OperatorContext) -> str:
    options, x = n.options("ResizeBilinearOptions"), n.input(0)
    if n.quantized(0):
        same_steps(n, 0)
        return _mixed(n, align=options.AlignCorners(), half=options.HalfPixelCenters())
    how = "half_pixel" if options.HalfPixelCenters() else "asymmetric"
    how = "align_corners" if options.AlignCorners() else how
    extent = (n.shape(x)[0], *n.ints(1), n.shape(x)[3])
    return n.op("resize", x, out_shape=extent, mode="linear", coordinate=how, nearest_mode="floor")


def _mixed(n: OperatorContext, *, align: bool, half: bool) -> str:
    """Bytes mixed by shares of 10 bits along rows and columns, rounded with halves away from
    zero."""
    x = n.op("sub", n.cast(n.input(0), "int32"), n.scalar(MOVED, "int32"))
    for axis, after in zip((1, 2), n.ints(1), strict=True):
        low, high, share = _shares(n.shape(x)[axis], after, align=align, half=half)
        front, tail = ((1,) * axis, (1,) * (3 - axis))
        parts = [
            n.op(
                "mul", n.op("gather", x, n.constant(at, "int64"), axis=axis),
                n.constant(part.reshape(*front, -1, *tail), "int32"),
            )
            for at, part in ((low, _ONE - share), (high, share))
        ]  # fmt: skip
        x = n.op("add", *parts)
    half_up = n.like(_ONE * _ONE // 2, x)
    up, down = n.op("add", x, half_up), n.op("sub", x, half_up)
    moved = n.op("where", n.op("gt", x, n.like(0, x)), up, down)
    y = n.op("div", moved, n.like(_ONE * _ONE, moved))
    return n.op("to_uint8", n.op("add", y, n.like(MOVED, y)))


def _shares(before: int, after: int, *, align: bool, half: bool) -> tuple[Array, Array, Array]:
    """By element of the result along an axis: the elements below and above, and the share of the
    one above in parts of 1024, as integers are divided in C."""
    cut = int(align and after > 1)
    scale = (_ONE * (before - cut) + (after - cut) // 2) // (after - cut)
    at = np.arange(after) * scale + (scale // 2 - _ONE // 2 if half else 0)
    low = np.maximum(at // _ONE, 0)
    high = np.minimum(np.maximum(at + _ONE - 1, 0) // _ONE, before - 1)
    return np.minimum(low, before - 1), high, at - _ONE * low


def _unfolds(columns: int, weights: Array, stride: int) -> bool:
    """Whether the columns of a window as channels are fewer products, and no more bytes, than
    channels filled up."""
    wide, channels = (int(e) for e in weights.shape[1:3])
    alone = channels + -channels % _TOGETHER
    together = wide * channels + -(wide * channels) % _TOGETHER
    return together < wide * alone and -(-columns // stride) * together <= columns * alone


def _unfolded(n: OperatorContext, x: str, weights: Array, stride: int) -> tuple[str, Array]:
    """An image that has the columns of each window as channels, and the weights for it."""
    high, wide, channels, outputs = weights.shape
    shape = n.shape(x)
    last = (shape[2] - wide) // stride * stride
    columns = [
        n.op(
            "slice", x, starts=(0, 0, at, 0), stops=(*shape[:2], at + last + 1, channels),
            steps=(1, 1, stride, 1),
        )
        for at in range(wide)
    ]  # fmt: skip
    x = n.op("concat", *columns, axis=3) if wide > 1 else columns[0]
    return x, weights.reshape(high, 1, wide * channels, outputs)


def padding(
    image: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    kind: int,
) -> tuple[int, int, int, int]:
    """Rows and columns around an image: before, then behind."""
    if min(*strides, *dilations, *window) < 1:
        raise ModelError(f"a window of {window} with strides {strides}, dilations {dilations}")
    if kind == tflite.Padding.VALID:
        return (0, 0, 0, 0)
    if kind != tflite.Padding.SAME:
        raise UnsupportedOpError(f"padding {kind} is not supported; expected SAME or VALID")
    totals = [
        max((-(-e // s) - 1) * s + (k - 1) * d + 1 - e, 0)
        for e, k, s, d in zip(image, window, strides, dilations, strict=True)
    ]
    before = [t // 2 for t in totals]
    return (*before, *(t - b for t, b in zip(totals, before, strict=True)))  # type: ignore[return-value]


@tflite_importer("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool_2d(n: OperatorContext) -> str:
    """Means of bytes are rounded, halves away from zero, before the zero point is taken away."""
    options, x, means = n.options("Pool2DOptions"), n.input(0), n.is_a("AVERAGE_POOL_2D")
    window = (options.FilterHeight(), options.FilterWidth())
    strides = (options.StrideH(), options.StrideW())
    pads = padding(n.shape(x)[1:3], window, strides, (1, 1), options.Padding())
    activation = options.FusedActivationFunction()
    attrs = {"kernel": window, "strides": strides, "pads": pads}
    if shorts.of_shorts(n, 0):
        same_steps(n, 0)
        y = _short_means(n, window, strides, pads) if means else n.op("max_pool2d", x, **attrs)
        return shorts.as_shorts(n, y, activation)
    if not n.quantized(0, unsigned=True):
        y = n.op("avg_pool2d" if means else "max_pool2d", x, **attrs)
        return n.float_activated(y, activation)
    low, high = n.pooled_limits(activation)
    if not means:
        return n.op("clip", n.op("max_pool2d", x, **attrs), min=low, max=high)
    counts = _seen(n.shape(x)[1:3], window, strides, pads)
    total = _window_sums(n, x, window, strides, pads)
    if not n.tensor(0).moved:
        return n.op("to_uint8", n.op("clip", _halves_away(n, total, counts), min=low, max=high))
    # The sum of int8: of uint8, less 128 for every element seen.
    total = n.op("sub", total, n.constant(counts * MOVED, "int32"))
    y = n.op("add", _halves_away(n, total, counts), n.like(MOVED, total))
    return n.op("to_uint8", n.op("clip", y, min=low, max=high))


def _short_means(
    n: OperatorContext,
    window: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
) -> str:
    """Means of int16, rounded, halves away from zero; beside the image is nothing."""
    counts = _seen(n.shape(n.input(0))[1:3], window, strides, pads)
    upper, lower = shorts.halves(n, n.input(0))
    high, low = (_window_sums(n, part, window, strides, pads) for part in (upper, lower))
    total = n.op("add", n.op("mul", high, n.like(256, high)), low)
    total = n.op("sub", total, n.constant(counts * 256 * MOVED, "int32"))
    return _halves_away(n, total, counts)


def _window_sums(
    n: OperatorContext,
    x: str,
    window: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
) -> str:
    """Sums of windows as int32: those of whole images, or products with ones."""
    if window == n.shape(x)[1:3] and not any(pads):
        wide = n.cast(x, "int32")
        return n.op("reduce_sum", wide, axes=(1, 2), keepdims=True)
    channels = n.shape(x)[3]
    ones = n.constant(np.ones((*window, 1, channels), np.int8))
    return n.op("conv2d", x, ones, strides=strides, pads=pads, groups=channels)


def _seen(
    image: tuple[int, ...],
    window: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
) -> Array:
    """How many elements of the image each window sees: [rows, columns, 1], or one number."""
    along = []
    for extent, size, stride, before, behind in zip(
        image, window, strides, pads[:2], pads[2:], strict=True
    ):
        positions = (extent + before + behind - size) // stride + 1
        starts = np.arange(positions) * stride - before
        along.append(np.minimum(starts + size, extent) - np.maximum(starts, 0))
    counts = along[0][:, None, None] * along[1][:, None]
    return np.asarray(counts[0, 0] if (counts == counts[0, 0]).all() else counts)


def _halves_away(n: OperatorContext, total: str, counts: Array) -> str:
    """int32 divided by positive numbers, halves away from zero: division cuts, so half of the
    divisor is added on the total's side."""
    half, zero = n.constant(counts // 2, "int32"), n.like(0, total)
    up, down = n.op("add", total, half), n.op("sub", total, half)
    moved = n.op("where", n.op("gt", total, zero), up, down)
    return n.op("div", moved, n.constant(counts, "int32"))
