"""ONNX importer: transposed convolution (also called deconvolution), over images and volumes."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import ModelError, UnsupportedOpError
from autotune.frontend.deconvolution import Geometry, phases, spread_out
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import auto_pad, check_window, spread
from autotune.frontend.views import from_nhwc, to_nhwc


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
        w, geometry = spread_out(n, w, geometry)
    y = phases(n, image, w, geometry, groups)
    if (bias := n.optional(2)) is not None:
        y = n.op("add", y, bias)
    return from_nhwc(n, y, n.rank(x))


def _read(n: NodeContext, spatial: Sequence[int], kernel: Sequence[int]) -> Geometry:
    rank = len(spatial)
    strides, dilations = (spread(n.integers(a), rank) for a in ("strides", "dilations"))
    check_window(kernel, strides, dilations, n.integers("pads") or ())
    more = spread(n.integers("output_padding"), rank, 0)
    reach = [
        (i - 1) * s + (k - 1) * d + 1 + m
        for i, s, k, d, m in zip(spatial, strides, kernel, dilations, more, strict=True)
    ]
    auto, shape = auto_pad(n), n.integers("output_shape")
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
    if any(e < 1 for e in extent) or min(start) < 0:
        raise UnsupportedOpError(f"pads and output_shape give an output of {tuple(extent)}")
    return Geometry(
        kernel=tuple(kernel), strides=strides, dilations=dilations, start=start,
        extent=tuple(extent),
    )  # fmt: skip
