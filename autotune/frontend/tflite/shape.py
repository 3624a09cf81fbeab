"""TensorFlow Lite importers: operators that move elements."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.frontend.tflite import shorts
from autotune.frontend.tflite.context import OperatorContext, tflite_importer
from autotune.frontend.tflite.linear import same_steps
from autotune.frontend.views import select_ranges


@tflite_importer("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def reshape(n: OperatorContext) -> str:
    """The same elements in the shape that the file says."""
    return n.reshape(n.input(0), n.result().shape)


@tflite_importer("TRANSPOSE")
def transpose(n: OperatorContext) -> str:
    return n.transpose(n.input(0), n.ints(1))


@tflite_importer("CONCATENATION")
def concatenation(n: OperatorContext) -> str:
    options, parts = n.options("ConcatenationOptions"), range(n.inputs)
    if shorts.of_shorts(n, *parts) or n.quantized(*parts, unsigned=True):
        same_steps(n, *parts)
    axis = options.Axis() % max(len(n.result().shape), 1)
    y = n.op("concat", *(n.input(i) for i in parts), axis=axis)
    if n.result().dtype == "float32":
        return n.float_activated(y, options.FusedActivationFunction())
    low, high = n.pooled_limits(options.FusedActivationFunction())
    return y if (low, high) == (0, 255) else n.op("clip", y, min=low, max=high)


@tflite_importer("PAD", "PADV2")
def pad(n: OperatorContext) -> str:
    """With zeros, which bytes have at their zero point, or with a number of one's own."""
    value = 0.0
    if shorts.of_shorts(n, 0) or n.quantized(0, unsigned=True):
        value = float(n.tensor(0).point)
        same_steps(n, 0)
    if n.has(2):
        value = float(n.array(2).item()) + n.tensor(2).moved
    widths = np.asarray(n.ints(1)).reshape(-1, 2)
    if len(widths) != n.rank(n.input(0)) or widths.min(initial=0) < 0:
        raise ModelError(f"paddings {widths.tolist()} do not fit {n.shape(n.input(0))}")
    pads = (*widths[:, 0].tolist(), *widths[:, 1].tolist())
    return n.op("pad", n.input(0), pads=pads, value=value)


@tflite_importer("SLICE")
def slice_(n: OperatorContext) -> str:
    shape, starts, sizes = n.shape(n.input(0)), n.ints(1), n.ints(2)
    stops = tuple(
        e if size < 0 else start + size
        for e, start, size in zip(shape, starts, sizes, strict=True)
    )
    return n.op("slice", n.input(0), starts=starts, stops=stops, steps=(1,) * len(shape))


@tflite_importer("STRIDED_SLICE")
def strided_slice(n: OperatorContext) -> str:
    """Masks say where a range has no begin or end, is one element of a dimension that goes, is a
    new dimension, or stands for all dimensions that no other range is for."""
    options, shape = n.options("StridedSliceOptions"), n.shape(n.input(0))
    given = list(zip(*(n.ints(i) for i in (1, 2, 3)), strict=True))
    new, rest = options.NewAxisMask(), options.EllipsisMask()
    named = sum(not (new | rest) >> d & 1 for d in range(len(given)))
    picked: dict[int, range] = {}
    axis = 0
    for d, (begin, end, step) in enumerate(given):
        if rest >> d & 1:
            axis += len(shape) - named
        elif not new >> d & 1:
            if not step or axis >= len(shape):
                raise ModelError(f"ranges {given} do not fit {shape}")
            first = None if options.BeginMask() >> d & 1 else begin
            last = None if options.EndMask() >> d & 1 else end
            taken = range(*slice(first, last, step).indices(shape[axis]))
            one = options.ShrinkAxisMask() >> d & 1
            stop = max(taken.start, taken.stop) if step > 0 else taken.stop
            picked[axis] = range(taken.start, taken.start + 1 if one else stop, 1 if one else step)
            axis += 1
    return n.reshape(select_ranges(n, n.input(0), picked), n.result().shape)


@tflite_importer("SPLIT")
def split(n: OperatorContext) -> tuple[str, ...]:
    """Equal parts along an axis, which comes first."""
    x = n.input(1)
    axis, shape = n.ints(0)[0] % n.rank(x), n.shape(x)
    parts, rest = divmod(shape[axis], max(n.outputs, 1))
    if rest:
        raise ModelError(f"{shape} along axis {axis} is no {n.outputs} equal parts")
    made = []
    for number in range(n.outputs):
        starts, stops = [0] * len(shape), list(shape)
        starts[axis], stops[axis] = number * parts, (number + 1) * parts
        made.append(n.op("slice", x, starts=tuple(starts), stops=tuple(stops),
                         steps=(1,) * len(shape)))  # fmt: skip
    return tuple(made)


@tflite_importer("PACK")
def pack(n: OperatorContext) -> str:
    axis, shape = n.options("PackOptions").Axis(), list(n.result().shape)
    axis %= max(len(shape), 1)
    shape[axis] = 1
    parts = [n.reshape(n.input(i), shape) for i in range(n.inputs)]
    return n.op("concat", *parts, axis=axis)


@tflite_importer("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest_neighbor(n: OperatorContext) -> str:
    """Rows and columns picked by positions in float32."""
    options, x = n.options("ResizeNearestNeighborOptions"), n.input(0)
    for axis, extent in zip((1, 2), n.ints(1), strict=True):
        given = n.shape(x)[axis]
        align = options.AlignCorners() and extent > 1
        scale = np.float32(given - align) / np.float32(extent - align)
        half = np.float32(0.5 if options.HalfPixelCenters() else 0.0)
        at = (np.arange(extent, dtype=np.float32) + half) * scale
        near = np.floor(at + np.float32(0.5)) if options.AlignCorners() else np.floor(at)
        places = np.clip(near.astype(np.int64), 0, given - 1)
        x = n.op("gather", x, n.constant(places), axis=axis)
    return x
