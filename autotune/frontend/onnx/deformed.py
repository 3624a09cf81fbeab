"""ONNX importer: DeformConv, a convolution whose kernel's elements lie where the model computes.

In: a node. Out: gathers of what the kernel sees, as a matrix, and its product with the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.grid import Edge, Tap, linear_taps, sampled
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import read_window
from autotune.frontend.volume import VolumeWindow


@importer("DeformConv")
def deform_conv(n: NodeContext) -> str:
    """[batch, outputs, rows, columns]."""
    x, w, offsets = n.input(0), n.input(1), n.input(2)
    if n.rank(x) != 4:
        raise UnsupportedOpError(f"the input has shape {n.shape(x)}; only images are supported")
    batch, channels, *extents = n.shape(x)
    outputs, per_group, *kernel = n.shape(w)
    parts, groups = n.integer("offset_group", 1), n.integer("group", 1)
    n.ignore("kernel_shape")
    size, places = n.shape(offsets)[2:], math.prod(kernel)
    fits = n.shape(offsets)[:2] == (batch, parts * places * 2) and channels % parts == 0
    if not fits or channels != per_group * groups:
        raise ModelError(
            f"offsets of shape {n.shape(offsets)} and weights of {n.shape(w)} do not fit data of "
            f"{n.shape(x)}"
        )
    seen = _seen(n, extents, read_window(n, extents, kernel, ceil=False), parts)
    points = batch * math.prod(size)
    whole = n.reshape(seen, (points, places, groups, per_group))
    matrix = n.reshape(n.transpose(whole, (2, 0, 1, 3)), (groups, points, places * per_group))
    apart = n.reshape(w, (groups, outputs // groups, per_group, places))
    factors = n.reshape(
        n.transpose(apart, (0, 3, 2, 1)), (groups, places * per_group, outputs // groups)
    )
    y = n.op("matmul", matrix, factors, transpose_b=False)
    y = n.reshape(n.transpose(y, (1, 0, 2)), (batch, *size, outputs))
    if (bias := n.optional(3)) is not None:
        y = n.op("add", y, bias)
    return n.transpose(y, (0, 3, 1, 2))


def _seen(n: NodeContext, extents: Sequence[int], window: VolumeWindow, parts: int) -> str:
    """What the kernel sees: [batch, rows, columns, places, parts, channels of a part]."""
    x, mask = n.input(0), n.optional(4)
    batch, channels = n.shape(x)[:2]
    images, elements = n.transpose(x, (0, 2, 3, 1)), math.prod(extents) * parts
    rows = n.reshape(images, (batch * elements, channels // parts))
    first = n.constant(np.arange(batch).reshape(-1, 1, 1, 1, 1) * elements, "int64")
    part = Tap(index=n.constant(np.arange(parts), "int64"), weight=None)
    taps = [_axis_taps(n, axis, extents[axis], window, parts) for axis in (0, 1)]
    seen = sampled(n, rows, first, (*taps, [part]), (*extents, parts))
    if mask is None:
        return seen
    size, places = n.shape(mask)[2:], math.prod(window.kernel)
    factors = n.transpose(n.reshape(mask, (batch, parts, places, *size)), (0, 3, 4, 2, 1))
    return n.op("mul", seen, n.reshape(factors, (*n.shape(factors), 1)))


def _axis_taps(
    n: NodeContext, axis: int, extent: int, window: VolumeWindow, parts: int
) -> list[Tap]:
    """The elements along an axis around what a kernel sees: [batch, rows, columns, places, parts]
    of places that begin where a plain convolution's are."""
    offsets = n.input(2)
    batch, _, *size = n.shape(offsets)
    places = math.prod(window.kernel)
    apart = n.reshape(offsets, (batch, parts, places, 2, *size))
    last = n.transpose(apart, (0, 4, 5, 2, 1, 3))
    shape = n.shape(last)[:-1]
    chosen = n.op(
        "slice", last, starts=(0,) * 5 + (axis,), stops=(*shape, axis + 1), steps=(1,) * 6
    )
    begin = np.arange(size[axis]) * window.strides[axis] - window.pads[axis]
    along = np.indices(window.kernel)[axis].ravel() * window.dilations[axis]
    starts = begin.reshape((-1, 1, 1, 1) if axis == 0 else (1, -1, 1, 1))
    plain = n.constant(starts + along.reshape(1, 1, -1, 1), n.dtype(offsets))
    place = n.op("add", n.reshape(chosen, shape), plain)
    return linear_taps(n, place, Edge(extent=extent, padding="zeros", aligned=False))
