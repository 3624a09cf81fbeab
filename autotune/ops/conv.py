"""conv2d(x [N,H,W,C], w [KH,KW,C/groups,O]; strides, pads, dilations, groups) -> [N,OH,OW,O].

Floats, or uint8 data and int8 weights, which give int32 sums; short floats give float32 ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    integer,
    is_float,
    multiplies_bytes,
    product,
    product_dtype,
    require,
)
from autotune.ops.base import OPS, OpKind
from autotune.ops.window import Window, windows_of
from autotune.program.ir import Axis, Compute, Index, Load, index
from autotune.sizes import is_size
from autotune.types import Array, Attrs, TensorType


class Conv2d:
    """2-D cross-correlation with zero padding; depthwise where C/groups = 1 and O = groups."""

    name = "conv2d"
    kind: OpKind = "contraction"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 2)
        dtype = product_dtype(self.name, types)
        known = is_float(dtype) or multiplies_bytes(types)
        require(known, f"conv2d: inputs must be floating point, got {types[0]}")
        x, w = types
        require(len(x.shape) == 4, f"conv2d: x must be [N,H,W,C], got {x}")
        require(len(w.shape) == 4, f"conv2d: w must be [KH,KW,C/groups,O], got {w}")
        groups = integer(attrs, "groups", 1)
        fits = groups >= 1 and 0 < x.shape[3] == w.shape[2] * groups and w.shape[3] % groups == 0
        require(fits, f"conv2d: {groups} groups of channels do not fit x {x} and w {w}")
        oh, ow = (window.positions for window in windows(x, w, attrs))
        require(oh > 0 and ow > 0, f"conv2d: the kernel of {w} is larger than padded {x}")
        return TensorType(dtype=dtype, shape=(x.shape[0], oh, ow, w.shape[3]))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (x, x_type), (w, w_type) = inputs
        n, oh, ow, oc = output[1].shape
        kh, kw, per_group, _ = w_type.shape
        rows, columns = windows(x_type, w_type, attrs)
        groups = integer(attrs, "groups", 1)
        depthwise = per_group == 1 and groups == oc > 1
        reduce: tuple[Axis, ...] = (Axis("kh", kh), Axis("kw", kw))
        if depthwise:
            ic, channel = Index(), index("oc")
        else:
            reduce += (Axis("ic", per_group),)
            ic = index("ic")
            channel = ic if groups == 1 else (index("oc") // (oc // groups)) * per_group + ic
        body = product(
            Load(
                x, (index("n"), rows.position("oh", "kh"), columns.position("ow", "kw"), channel)
            ),
            Load(w, (index("kh"), index("kw"), ic, index("oc"))),
            (x_type, w_type),
        )
        reach = (rows.reach(), columns.reach())
        needs = any(any(r) for r in reach)
        axes = (Axis("n", n), Axis("oh", oh), Axis("ow", ow), Axis("oc", oc))
        return (
            Compute(
                output=output[0],
                dtype=output[1].dtype,
                axes=axes,
                body=body,
                reduce=reduce,
                combine="sum",
                pads=((x, ((0, 0), *reach, (0, 0))),) if needs else (),
            ),
        )

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, w = arrays
        if x.dtype == np.uint8:
            # Exact, and numpy multiplies matrices of floats faster than of integers.
            wide = [a.astype(np.float64) for a in arrays]
            return self.reference(wide, attrs).astype(np.int32)
        rows, columns = windows(x, w, attrs)
        groups = integer(attrs, "groups", 1)
        kh, kw, per_group, channels = w.shape
        pads = ((0, 0), (rows.before, rows.after), (columns.before, columns.after), (0, 0))
        padded = np.pad(x, pads)
        shape = (x.shape[0], rows.positions, columns.positions)
        kernel = w.reshape(kh, kw, per_group, groups, channels // groups)
        out = np.zeros((groups, math.prod(shape), channels // groups), x.dtype)
        for r in range(kh):
            part_rows = padded[:, rows.slice(r)]
            for c in range(kw):
                part = part_rows[:, :, columns.slice(c)].reshape(-1, groups, per_group)
                out += np.moveaxis(part, 1, 0) @ np.moveaxis(kernel[r, c], 1, 0)
        return np.ascontiguousarray(np.moveaxis(out, 0, 1)).reshape(*shape, channels)


def windows(x: TensorType | Array, w: TensorType | Array, attrs: Attrs) -> tuple[Window, Window]:
    """The windows along rows and columns."""
    return windows_of(x, w.shape[:2], attrs, "conv2d")


TILE = 4
"""Output points per side of the largest Winograd tile."""


def tiled_reach(
    x: TensorType, w: TensorType, attrs: Attrs, tile: tuple[int, int] = (TILE, TILE)
) -> tuple[tuple[int, int], ...]:
    """Zeros around x, per dimension, that computing whole output tiles of TILE x TILE reads: more
    than the padding where the last tiles stick out. What no tiled algorithm makes needs none."""
    rows, columns = windows(x, w, attrs)
    none = ((0, 0),) * 4
    depthwise = w.shape[2] == 1
    if depthwise or max(rows.kernel, columns.kernel) < 2:
        return none
    if any(v.stride > 2 or v.dilation != 1 for v in (rows, columns)):
        return none
    reach = []
    for v, side in zip((rows, columns), tile, strict=True):
        if is_size(v.positions):  # strips end where the output does
            reach.append((v.before, v.after))
            continue
        whole = -(-v.positions // side) * side if v.kernel > 1 else v.positions
        last = (whole - 1) * v.stride + v.kernel - 1 - v.before
        reach.append((v.before, max(v.after, last + 1 - v.extent)))
    return ((0, 0), *reach, (0, 0))


OPS.add(Conv2d.name, Conv2d())
