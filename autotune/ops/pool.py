"""max_pool2d / avg_pool2d(x [N,H,W,C]; kernel, strides, pads, dilations) -> [N,OH,OW,C].

avg_pool2d counts the elements inside the image, or with count_include_pad also those inside
`valid_pads` (top, left, bottom, right), which are the pads unless given.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    computed_dtype,
    const,
    integer,
    integers,
    is_float,
    require,
    widened,
)
from autotune.ops.base import OPS, OpKind
from autotune.ops.window import Window, windows_of
from autotune.program.ir import (
    Axis,
    Bound,
    Compute,
    Const,
    Index,
    IndexValue,
    Load,
    Select,
    Value,
    clamp,
    fn,
    index,
)
from autotune.types import Array, Attrs, TensorType, lowest


def windows(x: TensorType | Array, attrs: Attrs) -> tuple[Window, Window]:
    kernel = integers(attrs, "kernel", None, 2)
    require(min(kernel) > 0, f"pool: the kernel must be positive, got {kernel}")
    return windows_of(x, kernel, attrs, "pool")


def _infer(name: str, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    arity(name, types, 1)
    (x,) = types
    require(len(x.shape) == 4, f"{name}: x must be [N,H,W,C], got {x}")
    rows, columns = windows(x, attrs)
    good = rows.positions > 0 and columns.positions > 0
    require(good, f"{name}: the kernel {attrs['kernel']} is larger than padded {x}")
    shape = (x.shape[0], rows.positions, columns.positions, x.shape[3])
    return TensorType(dtype=computed_dtype(x.dtype), shape=shape)


def _axes(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple(Axis(a, e) for a, e in zip(("n", "oh", "ow", "c"), shape, strict=True))


def _gather(x: Array, rows: Window, columns: Window, fill: float) -> Array:
    """All windows of the padded image: [N, OH, KH, OW, KW, C]."""
    pads = [(0, 0), (rows.before, rows.after), (columns.before, columns.after), (0, 0)]
    padded = np.pad(x, pads, constant_values=fill)
    for axis, w in ((2, columns), (1, rows)):
        padded = w.take(padded, axis)
    return padded


class MaxPool2d:
    """Largest element of each window; padding never wins."""

    name = "max_pool2d"
    kind: OpKind = "pool"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        return _infer(self.name, types, attrs)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        name, type_ = inputs[0]
        dtype = output[1].dtype
        at: list[Index] = []
        bounds: list[Bound] = []
        for w, outer, inner in zip(windows(type_, attrs), ("oh", "ow"), ("kh", "kw"), strict=True):
            position = w.position(outer, inner)
            if not any(w.reach()):
                at.append(position)
            elif w.dilation == 1 and w.meets_image:
                # A contiguous window that overlaps the image holds the element nearest to it.
                at.append(clamp(position, 0, w.extent - 1))
            else:
                at.append(position)
                bounds.append(Bound(position, 0, w.extent))
        body: Value = widened(Load(name, (index("n"), *at, index("c"))), type_)
        if bounds:
            body = Select(tuple(bounds), body, const(lowest(dtype), dtype))
        kernel = integers(attrs, "kernel", None, 2)
        return (
            Compute(
                output=output[0],
                dtype=dtype,
                axes=_axes(output[1].shape),
                body=body,
                reduce=(Axis("kh", kernel[0]), Axis("kw", kernel[1])),
                combine="max",
                init=lowest(dtype),
            ),
        )

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        held = _gather(x, *windows(x, attrs), lowest(x.dtype.name))
        return np.asarray(held.max(axis=(2, 4)))


class AvgPool2d:
    """Mean of the counted elements of each window."""

    name = "avg_pool2d"
    kind: OpKind = "pool"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        out = _infer(self.name, types, attrs)
        require(is_float(out.dtype), f"{self.name}: input must be floating point, got {types[0]}")
        return out

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        name, type_ = inputs[0]
        rows, columns = windows(type_, attrs)
        axes, dtype = _axes(output[1].shape), output[1].dtype
        at = (index("n"), rows.position("oh", "kh"), columns.position("ow", "kw"), index("c"))
        needs = ((0, 0), rows.reach(), columns.reach(), (0, 0))
        total = Compute(
            output=f"{output[0]}.sum",
            dtype=dtype,
            axes=axes,
            body=widened(Load(name, at), type_),
            reduce=(Axis("kh", rows.kernel), Axis("kw", columns.kernel)),
            combine="sum",
            pads=((name, needs),) if any(any(p) for p in needs) else (),
        )
        (top, bottom), (left, right) = _counted(type_, attrs)
        counts = (rows.count("oh", top, bottom), columns.count("ow", left, right))
        body = _divided(Load(total.output, tuple(index(a.name) for a in axes)), counts, dtype)
        return total, Compute(output[0], dtype, axes, body)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        rows, columns = windows(x, attrs)
        (top, bottom), (left, right) = _counted(x, attrs)
        total = _gather(x, rows, columns, 0).sum(axis=(2, 4))
        count = np.outer(rows.counts(top, bottom), columns.counts(left, right))
        return np.asarray(total / np.maximum(count, 1)[None, :, :, None].astype(x.dtype))


def _counted(x: TensorType | Array, attrs: Attrs) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns (first, end) that the mean counts."""
    if not integer(attrs, "count_include_pad", 0):
        return (0, x.shape[1]), (0, x.shape[2])
    pads = integers(attrs, "pads", (0, 0, 0, 0), 4)
    top, left, bottom, right = integers(attrs, "valid_pads", pads, 4)
    return (-top, x.shape[1] + bottom), (-left, x.shape[2] + right)


def _divided(total: Value, counts: tuple[Index, Index], dtype: str) -> Value:
    """The total times the counts' reciprocals, which a whole vector shares: vectors are slow to
    divide."""
    known = 1
    varying: list[Value] = []
    for count in counts:
        if count.is_const:
            known *= count.const
        else:
            varying.append(fn("div", Const(1.0, dtype), IndexValue(count, dtype)))
    out = total if known == 1 else fn("mul", total, Const(1 / known, dtype))
    for share in varying:
        out = fn("mul", out, share)
    return out


OPS.add(MaxPool2d.name, MaxPool2d())
OPS.add(AvgPool2d.name, AvgPool2d())
