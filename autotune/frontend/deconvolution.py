"""Transposed convolution (deconvolution), over images and volumes.

The output's places that are congruent modulo the strides form phases. All phases see the input
through windows of one size, so one convolution computes them as channels of its own; they are then
woven into one image.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.frontend.assembly import Assembler
from autotune.frontend.views import select_ranges
from autotune.frontend.volume import VolumeWindow, convolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """One entry per spatial dimension: the output is `extent` elements from `start` on of all that
    the input's elements reach."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    start: tuple[int, ...]
    extent: tuple[int, ...]


def spread_out(n: Assembler, w: str, geometry: Geometry) -> tuple[str, Geometry]:
    """Weights with the zeros that dilations say between them."""
    kernel = list(geometry.kernel)
    for d, dilation in enumerate(geometry.dilations):
        front, behind = (*n.shape(w)[:2], *kernel[:d]), kernel[d + 1 :]
        apart = n.reshape(w, (*front, kernel[d], 1, *behind))
        pads = [0] * (2 * n.rank(apart))
        pads[n.rank(apart) + d + 3] = dilation - 1
        filled = n.op("pad", apart, pads=tuple(pads), value=0.0) if dilation > 1 else apart
        whole = n.reshape(filled, (*front, kernel[d] * dilation, *behind))
        kernel[d] = (kernel[d] - 1) * dilation + 1
        w = select_ranges(n, whole, {d + 2: range(kernel[d])})
    plain = (1,) * len(kernel)
    return w, dataclasses.replace(geometry, kernel=tuple(kernel), dilations=plain)


def phases(n: Assembler, x: str, w: str, geometry: Geometry, groups: int) -> str:
    """x [N,...,C], w [C, O/groups, ...] -> [N,...,O].

    out[s * q + p] = sum over j of x[q - j] * w[s * j + p], p the phase, q from 0 on."""
    rank, strides = len(geometry.kernel), geometry.strides
    if groups == 1 and max(geometry.dilations) == 1 and n.shape(x)[1:-1] == (1,) * rank:
        return _of_a_point(n, x, w, geometry)
    taps = tuple(-(-k // s) for k, s in zip(geometry.kernel, strides, strict=True))
    edge = [(t - 1) * d for t, d in zip(taps, geometry.dilations, strict=True)]
    # Rows of phases from the first one that the output needs to the last.
    first = [b // s for b, s in zip(geometry.start, strides, strict=True)]
    last = [
        (b + e - 1) // s for b, e, s in zip(geometry.start, geometry.extent, strides, strict=True)
    ]
    spatial = n.shape(x)[1:-1]
    before = [e - f for e, f in zip(edge, first, strict=True)]
    after = [z - i + 1 for z, i in zip(last, spatial, strict=True)]
    if min(*before, *after) < 0:
        x, before, after = _cropped(n, x, before, after)
    pads = (*before, *after)
    window = VolumeWindow(
        kernel=taps, strides=(1,) * rank, dilations=geometry.dilations, pads=pads, valid_pads=pads
    )
    y = convolution(n, x, _phase_weights(n, w, taps, strides, groups), window, groups)
    batch, *places, channels = n.shape(y)
    out = channels // math.prod(strides)
    if math.prod(strides) > 1:
        y = _woven(n, y, strides, groups)
    inner = [b - f * s for b, f, s in zip(geometry.start, first, strides, strict=True)]
    whole = [p * s for p, s in zip(places, strides, strict=True)]
    if [*geometry.extent] == whole:
        return y
    stops = [i + e for i, e in zip(inner, geometry.extent, strict=True)]
    return n.op(
        "slice", y, starts=(0, *inner, 0), stops=(batch, *stops, out), steps=(1,) * n.rank(y)
    )


def _of_a_point(n: Assembler, x: str, w: str, geometry: Geometry) -> str:
    """x [N,1,...,C]: every output is one element of the window, so a product makes them all."""
    channels, out, *_ = n.shape(w)
    kernel = geometry.kernel
    reach = [b + e for b, e in zip(geometry.start, geometry.extent, strict=True)]
    more = [max(e - k, 0) for e, k in zip(reach, kernel, strict=True)]
    if any(more):
        w = n.op("pad", w, pads=(*[0] * (len(kernel) + 4), *more), value=0.0)
    cut = {d + 2: range(b, e) for d, (b, e) in enumerate(zip(geometry.start, reach, strict=True))}
    w = select_ranges(n, w, cut)
    w = n.transpose(w, (0, *range(2, 2 + len(kernel)), 1))
    w = n.reshape(w, (channels, math.prod(geometry.extent) * out))
    batch = n.shape(x)[0]
    y = n.op("matmul", n.reshape(x, (batch, channels)), w)
    return n.reshape(y, (batch, *geometry.extent, out))


def _cropped(
    n: Assembler, x: str, before: Sequence[int], after: Sequence[int]
) -> tuple[str, list[int], list[int]]:
    """Negative pads cut the input."""
    batch, *spatial, channels = n.shape(x)
    starts = [max(-b, 0) for b in before]
    stops = [e - max(-a, 0) for e, a in zip(spatial, after, strict=True)]
    if starts != [0] * len(spatial) or stops != spatial:
        x = n.op(
            "slice", x, starts=(0, *starts, 0), stops=(batch, *stops, channels),
            steps=(1,) * n.rank(x),
        )  # fmt: skip
    return x, [max(b, 0) for b in before], [max(a, 0) for a in after]


def _phase_weights(
    n: Assembler, w: str, taps: Sequence[int], strides: Sequence[int], groups: int
) -> str:
    """[C, O/groups, ...kernel] -> [...taps, C/groups, groups * phases * O/groups], each axis of
    the kernel filled up with zeros, cut into taps and phases, and its taps reversed."""
    channels, per_group, *kernel = n.shape(w)
    rank = len(kernel)
    fill = [t * s - k for t, s, k in zip(taps, strides, kernel, strict=True)]
    if any(fill):
        w = n.op("pad", w, pads=(*[0] * (rank + 4), *fill), value=0.0)
    for axis, t in enumerate(taps):
        if t > 1:
            # Whole taps are reversed; places within one keep their order.
            s = strides[axis]
            order = [j * s + p for j in reversed(range(t)) for p in range(s)]
            w = n.op("gather", w, n.constant(order, "int64"), axis=axis + 2)
    apart = [e for pair in zip(taps, strides, strict=True) for e in pair]
    w = n.reshape(w, (groups, channels // groups, per_group, *apart))
    tap_axes, phase_axes = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    w = n.transpose(w, (*tap_axes, 1, 0, *phase_axes, 2))
    return n.reshape(w, (*taps, channels // groups, groups * math.prod(strides) * per_group))


def _woven(n: Assembler, y: str, strides: Sequence[int], groups: int) -> str:
    """[N, ...places, groups * phases * O/groups] -> [N, ...places * strides, O]."""
    batch, *places, channels = n.shape(y)
    rank, per_group = len(places), channels // math.prod(strides) // groups
    whole = [p * s for p, s in zip(places, strides, strict=True)]
    if groups == 1:  # in the form that rewrites know
        y = n.reshape(y, (batch, *places, *strides, per_group))
        pairs = [axis for d in range(rank) for axis in (1 + d, 1 + rank + d)]
        return n.reshape(n.transpose(y, (0, *pairs, 1 + 2 * rank)), (batch, *whole, per_group))
    y = n.reshape(y, (batch, *places, groups, *strides, per_group))
    pairs = [axis for d in range(rank) for axis in (1 + d, 2 + rank + d)]
    y = n.transpose(y, (0, *pairs, 1 + rank, 2 + 2 * rank))
    return n.reshape(y, (batch, *whole, groups * per_group))
