"""conv_planes(x [N,C,H,W], w [C,KH,KW]; strides, pads, dilations) -> [N,C,OH,OW]: a depthwise
convolution of what lies channels first, every plane by a window of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.ops._common import Inputs, Output, arity, is_float, product, product_dtype, require
from autotune.ops.base import OPS, OpKind
from autotune.ops.window import Window, windows_of
from autotune.program.ir import Axis, Compute, Load, index
from autotune.types import Array, Attrs, TensorType


class ConvPlanes:
    """2-D cross-correlation of planes with zero padding."""

    name = "conv_planes"
    kind: OpKind = "contraction"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 2)
        x, w = types
        dtype = product_dtype(self.name, types)
        require(is_float(dtype), f"{self.name}: inputs must be floating point, got {x} and {w}")
        require(len(x.shape) == 4, f"{self.name}: x must be [N,C,H,W], got {x}")
        require(len(w.shape) == 3, f"{self.name}: w must be [C,KH,KW], got {w}")
        require(x.shape[1] == w.shape[0], f"{self.name}: planes of {x} do not fit w {w}")
        rows, columns = (window.positions for window in plane_windows(x, w, attrs))
        fits = rows > 0 and columns > 0
        require(fits, f"{self.name}: the window of {w} is larger than padded {x}")
        return TensorType(dtype=dtype, shape=(*x.shape[:2], rows, columns))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (x, x_type), (w, w_type) = inputs
        rows, columns = plane_windows(x_type, w_type, attrs)
        at = (index("n"), index("c"), rows.position("oh", "kh"), columns.position("ow", "kw"))
        weight = Load(w, (index("c"), index("kh"), index("kw")))
        reach = (rows.reach(), columns.reach())
        needs = any(any(r) for r in reach)
        axes = tuple(
            Axis(a, e) for a, e in zip(("n", "c", "oh", "ow"), output[1].shape, strict=True)
        )
        return (
            Compute(
                output=output[0],
                dtype=output[1].dtype,
                axes=axes,
                body=product(Load(x, at), weight, (x_type, w_type)),
                reduce=(Axis("kh", rows.kernel), Axis("kw", columns.kernel)),
                combine="sum",
                pads=((x, ((0, 0), (0, 0), *reach)),) if needs else (),
            ),
        )

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, w = arrays
        rows, columns = plane_windows(x, w, attrs)
        pads = ((0, 0), (0, 0), (rows.before, rows.after), (columns.before, columns.after))
        padded = np.pad(x, pads)
        out = np.zeros((*x.shape[:2], rows.positions, columns.positions), x.dtype)
        for r in range(rows.kernel):
            for c in range(columns.kernel):
                part = padded[:, :, rows.slice(r), columns.slice(c)]
                out += part * w[:, r, c][:, None, None]
        return out


def plane_windows(
    x: TensorType | Array, w: TensorType | Array, attrs: Attrs
) -> tuple[Window, Window]:
    """The windows along rows and columns."""
    images = TensorType(dtype="float32", shape=(1, *x.shape[2:], 1))
    return windows_of(images, w.shape[1:], attrs, "conv_planes")


OPS.add(ConvPlanes.name, ConvPlanes())
