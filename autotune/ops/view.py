"""reshape(x; shape), transpose(x; perm), slice(x; starts, stops, steps), concat(x...; axis).

Partitioning makes most of these placements of memory; the expressions serve where strides cannot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    at,
    axes_of,
    axis_of,
    integers,
    require,
    same_dtype,
)
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Bound, Compute, Index, Load, Select, Value, index
from autotune.sizes import ceil_div
from autotune.types import Array, Attrs, TensorType, dense_strides


class Reshape:
    """The same elements in row-major order under another shape (no -1 or 0 here)."""

    name = "reshape"
    kind: OpKind = "view"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        shape = integers(attrs, "shape")
        good = all(e >= 0 for e in shape) and math.prod(shape) == types[0].size
        require(good, f"reshape: {types[0]} has {types[0].size} elements, shape {shape} differs")
        return TensorType(dtype=types[0].dtype, shape=shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        name, type_ = inputs[0]
        axes = axes_of(output[1].shape)
        point = reshape_index(type_.shape, output[1].shape, at(axes))
        return (Compute(output[0], output[1].dtype, axes, Load(name, point)),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        return arrays[0].reshape(integers(attrs, "shape"))


def reshape_index(
    source: tuple[int, ...], target: tuple[int, ...], point: Sequence[Index]
) -> tuple[Index, ...]:
    """Where in `source` a point of `target` lies, both row-major.

    Runs of dimensions with equal products are mapped apart from each other, so that dimensions
    that only merge, or stay, keep affine indices."""
    out = [Index()] * len(source)
    if math.prod(source) == 0:
        return tuple(out)
    left = [d for d, e in enumerate(source) if e != 1]
    right = [d for d, e in enumerate(target) if e != 1]
    while left:
        run, span = [left.pop(0)], [right.pop(0)]
        while (have := math.prod(source[d] for d in run)) != (
            got := math.prod(target[d] for d in span)
        ):
            if have < got:
                run.append(left.pop(0))
            else:
                span.append(right.pop(0))
        flat = Index()
        for d, stride in zip(span, dense_strides(tuple(target[d] for d in span)), strict=True):
            flat = flat + point[d] * stride
        extents = tuple(source[d] for d in run)
        for k, (d, stride) in enumerate(zip(run, dense_strides(extents), strict=True)):
            part = flat // stride
            out[d] = part % source[d] if k else part
    return tuple(out)


class Transpose:
    """Dimension d of the output is dimension perm[d] of x."""

    name = "transpose"
    kind: OpKind = "view"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        perm, rank = integers(attrs, "perm"), len(types[0].shape)
        require(
            sorted(perm) == list(range(rank)), f"transpose: {perm} does not permute {types[0]}"
        )
        return TensorType(dtype=types[0].dtype, shape=tuple(types[0].shape[d] for d in perm))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        perm = integers(attrs, "perm")
        axes = axes_of(output[1].shape)
        point = [index(axes[perm.index(d)].name) for d in range(len(perm))]
        return (Compute(output[0], output[1].dtype, axes, Load(inputs[0][0], tuple(point))),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        return arrays[0].transpose(integers(attrs, "perm"))


class Slice:
    """x[start:stop:step] in every dimension; 0 <= start <= stop <= extent, step > 0."""

    name = "slice"
    kind: OpKind = "view"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        ranges = _ranges(attrs, len(types[0].shape))
        for (start, stop, step), extent in zip(ranges, types[0].shape, strict=True):
            good = 0 <= start <= stop <= extent and step > 0
            require(good, f"slice: {start}:{stop}:{step} does not fit extent {extent}")
        shape = tuple(ceil_div(stop - start, step) for start, stop, step in ranges)
        return TensorType(dtype=types[0].dtype, shape=shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        ranges = _ranges(attrs, len(axes))
        point = [i * step + start for i, (start, _, step) in zip(at(axes), ranges, strict=True)]
        return (Compute(output[0], output[1].dtype, axes, Load(inputs[0][0], tuple(point))),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        parts = tuple(slice(*r) for r in _ranges(attrs, arrays[0].ndim))
        return np.asarray(arrays[0][parts], order="C")


def _ranges(attrs: Attrs, rank: int) -> list[tuple[int, int, int]]:
    starts, stops = integers(attrs, "starts", None, rank), integers(attrs, "stops", None, rank)
    return list(zip(starts, stops, integers(attrs, "steps", (1,) * rank, rank), strict=True))


class Concat:
    """Tensors one after the other along `axis`."""

    name = "concat"
    kind: OpKind = "view"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1, 1 << 16)
        dtype = same_dtype(self.name, types)
        axis = axis_of(attrs, "axis", 0, len(types[0].shape))
        first = types[0].shape
        for t in types:
            good = len(t.shape) == len(first) and all(
                a == b for d, (a, b) in enumerate(zip(t.shape, first, strict=True)) if d != axis
            )
            require(good, f"concat: {t} and {types[0]} differ beside dimension {axis}")
        extent = sum(t.shape[axis] for t in types)
        return TensorType(dtype=dtype, shape=(*first[:axis], extent, *first[axis + 1 :]))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        axis = axis_of(attrs, "axis", 0, len(axes))
        along, start = index(axes[axis].name), 0
        pieces: list[tuple[Bound, Value]] = []
        for name, type_ in inputs:
            point = list(at(axes))
            point[axis] = along - start
            pieces.append((Bound(along - start, 0, type_.shape[axis]), Load(name, tuple(point))))
            start += type_.shape[axis]
        body = pieces[-1][1]
        for bound, piece in reversed(pieces[:-1]):
            body = Select((bound,), piece, body)
        return (Compute(output[0], output[1].dtype, axes, body),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        axis = axis_of(attrs, "axis", 0, arrays[0].ndim)
        return np.concatenate(list(arrays), axis=axis)


for _op in (Reshape(), Transpose(), Slice(), Concat()):
    OPS.add(_op.name, _op)
