"""reduce_{sum,mean,max,min,prod}(x; axes, keepdims) and argmax(x; axis, keepdims)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    at,
    axis_of,
    const,
    integer,
    integers,
    is_float,
    require,
)
from autotune.ops.base import OPS, OpKind
from autotune.program.functions import combine_over
from autotune.program.ir import Axis, Compute, Const, Index, IndexValue, Load, Value, fn, index
from autotune.sizes import is_size
from autotune.types import Array, Attrs, TensorType, highest, lowest


def split_axes(
    shape: tuple[int, ...], axes: Sequence[int], keepdims: bool
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Index, ...]]:
    """(output axes, reduction axes, the point of x that they run over). Reduction axes are r0.."""
    kept, reduced, point = [], [], []
    for d, extent in enumerate(shape):
        if d in axes:
            reduced.append(Axis(f"r{d}", extent))
            point.append(index(f"r{d}"))
            if keepdims:
                kept.append(Axis(f"d{d}", 1))
        else:
            kept.append(Axis(f"d{d}", extent))
            point.append(index(f"d{d}"))
    return tuple(kept), tuple(reduced), tuple(point)


def reduction(
    output: str,
    dtype: str,
    axes: tuple[tuple[Axis, ...], tuple[Axis, ...]],
    body: Value,
    combine: str,
) -> Compute:
    """A Compute that combines `body` over the second axes, starting from the neutral element."""
    least = lowest(dtype)
    starts = {"sum": 0.0, "prod": 1.0, "max": least, "peak": least, "min": highest(dtype)}
    outer, inner = axes
    return Compute(
        output=output,
        dtype=dtype,
        axes=outer,
        body=body,
        reduce=inner,
        combine=combine if inner else None,
        init=starts[combine] if inner else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction over some dimensions."""

    name: str
    combine: str
    mean: bool = False
    kind: OpKind = "row"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        (x,) = types
        require(x.dtype != "bool", f"{self.name}: input must be numbers, got {x}")
        axes = _axes(attrs, len(x.shape))
        empty = [d for d in axes if x.shape[d] == 0]
        require(not empty, f"{self.name}: cannot reduce empty dimensions {empty} of {x}")
        return TensorType(dtype=x.dtype, shape=_kept_shape(x.shape, axes, _keepdims(attrs)))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        name, type_ = inputs[0]
        axes = _axes(attrs, len(type_.shape))
        outer, inner, point = split_axes(type_.shape, axes, _keepdims(attrs))
        dtype = output[1].dtype
        target = f"{output[0]}.sum" if self.mean else output[0]
        total = reduction(target, dtype, (outer, inner), Load(name, point), self.combine)
        if not self.mean:
            return (total,)
        count = math.prod(a.extent for a in inner)
        loaded = Load(target, at(outer))
        if is_size(count):
            body = fn("div", loaded, IndexValue(Index((), count), dtype))
        elif is_float(dtype):
            body = fn("mul", loaded, Const(1 / count, dtype))
        else:
            body = fn("div", loaded, const(count, dtype))
        return total, Compute(output[0], dtype, outer, body)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        axes = _axes(attrs, x.ndim)
        out = combine_over(self.combine, x, axes)
        if self.mean:
            count = math.prod(x.shape[d] for d in axes)
            out = out / count if is_float(x.dtype.name) else np.trunc(out / count)
        out = np.asarray(out, x.dtype)
        return out.reshape(_kept_shape(x.shape, axes, True)) if _keepdims(attrs) else out


class Argmax:
    """Position of the first largest element along one dimension, as int64."""

    name = "argmax"
    kind: OpKind = "row"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        (x,) = types
        axis = axis_of(attrs, "axis", 0, len(x.shape))
        require(x.dtype != "bool" and x.shape[axis] > 0, f"argmax: cannot search {x}, axis {axis}")
        return TensorType(dtype="int64", shape=_kept_shape(x.shape, (axis,), _keepdims(attrs)))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        name, type_ = inputs[0]
        axis = axis_of(attrs, "axis", 0, len(type_.shape))
        outer, inner, point = split_axes(type_.shape, (axis,), _keepdims(attrs))
        peak = reduction(f"{output[0]}.max", type_.dtype, (outer, inner), Load(name, point), "max")
        x = Load(name, point)
        here = fn("eq", x, Load(peak.output, at(outer)))
        if is_float(type_.dtype):  # a NaN is the largest, as in numpy, and equals nothing
            here = fn("or", here, fn("ne", x, x))
        position = IndexValue(index(inner[0].name), "int64")
        last = inner[0].extent - 1
        none = IndexValue(Index((), last), "int64") if is_size(last) else const(last, "int64")
        body = fn("where", here, position, none)
        return peak, reduction(output[0], "int64", (outer, inner), body, "min")

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        axis = axis_of(attrs, "axis", 0, x.ndim)
        return np.asarray(np.argmax(x, axis=axis, keepdims=_keepdims(attrs)), np.int64)


def _axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    axes = integers(attrs, "axes", tuple(range(rank)))
    require(all(-rank <= a < rank for a in axes), f"axes {axes} are out of range for rank {rank}")
    found = sorted({a % rank for a in axes})
    require(len(found) == len(axes), f"axes {axes} name a dimension twice")
    return tuple(found)


def _keepdims(attrs: Attrs) -> bool:
    return bool(integer(attrs, "keepdims", 1))


def _kept_shape(shape: tuple[int, ...], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if d in axes else e for d, e in enumerate(shape))
    return tuple(e for d, e in enumerate(shape) if d not in axes)


for _op in (
    Reduce("reduce_sum", "sum"),
    Reduce("reduce_mean", "sum", mean=True),
    Reduce("reduce_max", "max"),
    Reduce("reduce_min", "min"),
    Reduce("reduce_prod", "prod"),
    Argmax(),
):
    OPS.add(_op.name, _op)
