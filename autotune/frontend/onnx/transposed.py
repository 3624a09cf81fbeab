"""ONNX importer: transposed convolution (also called deconvolution), over images and volumes.

The output's places that are congruent modulo the strides form phases. All phases see the input
through windows of one size, so one convolution computes them as channels of its own; they are then
woven into one image.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import check_window, from_nhwc, spread, to_nhwc
from autotune.frontend.onnx.shape import select_ranges
from autotune.frontend.onnx.volume import VolumeWindow, convolution


@dataclass(frozen=True, slots=True, kw_only=True)
class _Geometry:
    """One entry per spatial dimension: the output is `extent` elements from `start` on of all that
    the input's elements reach."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    start: tuple[int, ...]
    extent: tuple[int, ...]


@importer("ConvTranspose")
def conv_transpose(n: NodeContext) -> str:
    x, groups = n.input(0), n.integer("group", 1)
    image, w = to_nhwc(n, x), n.input(1)
    if n.rank(w) != n.rank(x):
        raise ModelError(f"weights have shape {n.shape(w)}, expected the rank of {n.shape(x)}")
    if n.rank(w) == 3:
        inputs, outputs, width = n.shape(w)
        w = n.reshape(w, (inputs, outputs, 1, width))
    n.ignore("kernel_shape")
    geometry = _read(n, n.shape(image)[1:-1], n.shape(w)[2:])
    if any(d != 1 and s != 1 for d, s in zip(geometry.dilations, geometry.strides, strict=True)):
        w, geometry = _spread_out(n, w, geometry)
    y = _phases(n, image, w, geometry, groups)
    if (bias := n.optional(2)) is not None:
        y = n.op("add", y, bias)
    return from_nhwc(n, y, n.rank(x))


def _read(n: NodeContext, spatial: Sequence[int], kernel: Sequence[int]) -> _Geometry:
    rank = len(spatial)
    strides, dilations = (spread(n.integers(a), rank) for a in ("strides", "dilations"))
    check_window(kernel, strides, dilations, n.integers("pads") or ())
    more = spread(n.integers("output_padding"), rank, 0)
    reach = [
        (i - 1) * s + (k - 1) * d + 1 + m
        for i, s, k, d, m in zip(spatial, strides, kernel, dilations, more, strict=True)
    ]
    auto, shape = n.text("auto_pad", "NOTSET"), n.integers("output_shape")
    given = n.integers("pads")
    if shape is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        same = [i * s for i, s in zip(spatial, strides, strict=True)]
        extent = same if shape is None else spread(shape[-rank:], rank)
        total = [max(r - e, 0) for r, e in zip(reach, extent, strict=True)]
        start = tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total)
    else:
        pads = given or (0,) * (2 * rank)
        half = len(pads) // 2
        start, ends = spread(pads[:half], rank, 0), spread(pads[half:], rank, 0)
        extent = [r - b - e for r, b, e in zip(reach, start, ends, strict=True)]
    if min(extent) < 1 or min(start) < 0:
        raise UnsupportedOpError(f"pads and output_shape give an output of {tuple(extent)}")
    return _Geometry(
        kernel=tuple(kernel), strides=strides, dilations=dilations, start=start,
        extent=tuple(extent),
    )  # fmt: skip


def _spread_out(n: NodeContext, w: str, geometry: _Geometry) -> tuple[str, _Geometry]:
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


def _phases(n: NodeContext, x: str, w: str, geometry: _Geometry, groups: int) -> str:
    """x [N,...,C], w [C, O/groups, ...] -> [N,...,O].

    out[s * q + p] = sum over j of x[q - j] * w[s * j + p], p the phase, q from 0 on."""
    rank, strides = len(geometry.kernel), geometry.strides
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


def _cropped(
    n: NodeContext, x: str, before: Sequence[int], after: Sequence[int]
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
    n: NodeContext, w: str, taps: Sequence[int], strides: Sequence[int], groups: int
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


def _woven(n: NodeContext, y: str, strides: Sequence[int], groups: int) -> str:
    """[N, ...places, groups * phases * O/groups] -> [N, ...places * strides, O]."""
    batch, *places, channels = n.shape(y)
    rank, per_group = len(places), channels // math.prod(strides) // groups
    y = n.reshape(y, (batch, *places, groups, *strides, per_group))
    pairs = [axis for d in range(rank) for axis in (1 + d, 2 + rank + d)]
    y = n.transpose(y, (0, *pairs, 1 + rank, 2 + 2 * rank))
    whole = [p * s for p, s in zip(places, strides, strict=True)]
    return n.reshape(y, (batch, *whole, groups * per_group))
