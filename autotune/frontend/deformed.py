"""Convolutions whose kernel's elements lie where a model computes. In: an image, weights, and
offsets. Out: gathers of what the kernel sees, as a matrix, and its product with the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.errors import ModelError
from autotune.frontend.assembly import Assembler
from autotune.frontend.grid import Edge, Tap, linear_taps, sampled
from autotune.frontend.volume import VolumeWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class DeformedWindow:
    """Where the kernel's elements lie."""

    window: VolumeWindow
    """Where they were without offsets."""
    offsets: str
    """[N, parts * places * 2, rows, columns]."""
    mask: str | None
    """Factors of what they see: [N, parts * places, rows, columns]."""
    parts: int
    """Groups of channels that have offsets of their own."""
    groups: int
    """Groups of channels that the weights see apart."""


def deformed_convolution(
    n: Assembler, x: str, w: str, how: DeformedWindow, bias: str | None
) -> str:
    """x [N, C, H, W], w [O, C / groups, rows, columns] -> [N, O, rows, columns]. Raises
    ModelError."""
    batch, channels = n.shape(x)[:2]
    groups = how.groups
    outputs, per_group, *kernel = n.shape(w)
    size, places = n.shape(how.offsets)[2:], math.prod(kernel)
    wanted = (batch, how.parts * places * 2)
    fits = n.shape(how.offsets)[:2] == wanted and channels % how.parts == 0
    if not fits or channels != per_group * groups:
        raise ModelError(
            f"offsets of shape {n.shape(how.offsets)} and weights of {n.shape(w)} do not fit data "
            f"of {n.shape(x)}"
        )
    points = batch * math.prod(size)
    whole = n.reshape(_seen(n, x, how), (points, places, groups, per_group))
    matrix = n.reshape(n.transpose(whole, (2, 0, 1, 3)), (groups, points, places * per_group))
    apart = n.reshape(w, (groups, outputs // groups, per_group, places))
    factors = n.reshape(
        n.transpose(apart, (0, 3, 2, 1)), (groups, places * per_group, outputs // groups)
    )
    y = n.op("matmul", matrix, factors, transpose_b=False)
    y = n.reshape(n.transpose(y, (1, 0, 2)), (batch, *size, outputs))
    if bias is not None:
        y = n.op("add", y, bias)
    return n.transpose(y, (0, 3, 1, 2))


def _seen(n: Assembler, x: str, how: DeformedWindow) -> str:
    """What the kernel sees: [batch, rows, columns, places, parts, channels of a part]."""
    batch, channels, *extents = n.shape(x)
    parts, mask = how.parts, how.mask
    images, elements = n.transpose(x, (0, 2, 3, 1)), math.prod(extents) * parts
    rows = n.reshape(images, (batch * elements, channels // parts))
    first = n.constant(np.arange(batch).reshape(-1, 1, 1, 1, 1) * elements, "int64")
    part = Tap(index=n.constant(np.arange(parts), "int64"), weight=None)
    taps = _taps(n, how, extents)
    seen = sampled(n, rows, first, (*taps, [part]), (*extents, parts))
    if mask is None:
        return seen
    size, places = n.shape(mask)[2:], math.prod(how.window.kernel)
    factors = n.transpose(n.reshape(mask, (batch, parts, places, *size)), (0, 3, 4, 2, 1))
    return n.op("mul", seen, n.reshape(factors, (*n.shape(factors), 1)))


def _taps(n: Assembler, how: DeformedWindow, extents: Sequence[int]) -> list[list[Tap]]:
    return [_axis_taps(n, how, axis, extents[axis]) for axis in (0, 1)]


def _axis_taps(n: Assembler, how: DeformedWindow, axis: int, extent: int) -> list[Tap]:
    """The elements along an axis around what a kernel sees: [batch, rows, columns, places, parts]
    of places that begin where a plain convolution's are."""
    offsets, window = how.offsets, how.window
    batch, _, *size = n.shape(offsets)
    places = math.prod(window.kernel)
    apart = n.reshape(offsets, (batch, how.parts, places, 2, *size))
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
