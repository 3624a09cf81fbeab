"""gather(x, indices; axis), gather_elements(x, indices; axis), pad(x; pads, value),
border(x; pads, mode), copy(x): operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    at,
    axes_of,
    axis_of,
    const,
    integers,
    number,
    places_of,
    require,
    text,
)
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Bound, Compute, Index, Load, LoadIndex, Select, Value, clamp
from autotune.sizes import surely_at_most
from autotune.types import Array, Attrs, TensorType

BORDERS = ("reflect", "edge", "wrap")


def _picked_axis(op: str, types: Sequence[TensorType], attrs: Attrs) -> int:
    """The axis along which x is picked from, if there is something and the indices are some."""
    arity(op, types, 2)
    x, indices = types
    axis = axis_of(attrs, "axis", 0, len(x.shape))
    known = indices.dtype in ("int32", "int64")
    require(known, f"{op}: indices must be int32 or int64, got {indices}")
    require(x.shape[axis] > 0 or indices.size == 0, f"{op}: {x} is empty along {axis}")
    return axis


class Gather:
    """Rows of x along `axis` picked by integers; negative ones count from the end."""

    name = "gather"
    kind: OpKind = "data"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        axis = _picked_axis(self.name, types, attrs)
        x, indices = types
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return TensorType(dtype=x.dtype, shape=shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (x, x_type), (indices, indices_type) = inputs
        axis = axis_of(attrs, "axis", 0, len(x_type.shape))
        axes = axes_of(output[1].shape)
        point, end = at(axes), axis + len(indices_type.shape)
        row = LoadIndex(indices, point[axis:end], x_type.shape[axis])
        picked = (*point[:axis], Index(((row, 1),)), *point[end:])
        return (Compute(output[0], output[1].dtype, axes, Load(x, picked)),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, indices = arrays
        axis = axis_of(attrs, "axis", 0, x.ndim)
        return np.asarray(np.take(x, places_of(indices, x.shape[axis]), axis=axis))


class GatherElements:
    """x where `indices` say along `axis`, and at an element's own place otherwise."""

    name = "gather_elements"
    kind: OpKind = "data"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        axis = _picked_axis(self.name, types, attrs)
        x, indices = types
        fits = len(x.shape) == len(indices.shape) and all(
            i <= e
            for d, (i, e) in enumerate(zip(indices.shape, x.shape, strict=True))
            if d != axis
        )
        require(fits, f"gather_elements: {indices} reaches outside {x}")
        return TensorType(dtype=x.dtype, shape=indices.shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (x, x_type), (indices, _) = inputs
        axis = axis_of(attrs, "axis", 0, len(x_type.shape))
        axes = axes_of(output[1].shape)
        point = at(axes)
        place = Index(((LoadIndex(indices, point, x_type.shape[axis]), 1),))
        picked = (*point[:axis], place, *point[axis + 1 :])
        return (Compute(output[0], output[1].dtype, axes, Load(x, picked)),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, indices = arrays
        axis = axis_of(attrs, "axis", 0, x.ndim)
        where: list[Array] = list(np.indices(indices.shape, sparse=True))
        where[axis] = places_of(indices, x.shape[axis])
        return np.asarray(x[tuple(where)])


class Pad:
    """x with `pads` = (before per dimension..., after per dimension...) elements of `value`
    around it; a negative count crops."""

    name = "pad"
    kind: OpKind = "data"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        number(attrs, "value", 0.0)
        shape = types[0].shape
        padded = tuple(b + e + a for e, (b, a) in zip(shape, _pads(attrs, shape), strict=True))
        left = all(extent >= 0 for extent in padded)
        require(left, f"pad: {attrs['pads']} crops more than {types[0]} has")
        return TensorType(dtype=types[0].dtype, shape=padded)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        name, type_ = inputs[0]
        dtype, axes = output[1].dtype, axes_of(output[1].shape)
        pads = _pads(attrs, type_.shape)
        point = tuple(i - before for i, (before, _) in zip(at(axes), pads, strict=True))
        bounds = tuple(
            Bound(i, 0, e)
            for i, e, (b, a) in zip(point, type_.shape, pads, strict=True)
            if not (surely_at_most(b, 0) and surely_at_most(a, 0))
        )
        body: Value = Load(name, point)
        if bounds:
            body = Select(bounds, body, const(number(attrs, "value", 0.0), dtype))
        return (Compute(output[0], dtype, axes, body),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        pads = _pads(attrs, x.shape)
        grown = [(max(b, 0), max(a, 0)) for b, a in pads]
        value = x.dtype.type(number(attrs, "value", 0.0))
        out = np.pad(x, grown, constant_values=value) if grown else x
        crop = tuple(
            slice(max(-b, 0), e - max(-a, 0)) for e, (b, a) in zip(out.shape, pads, strict=True)
        )
        return np.asarray(out[crop], order="C")


def _pads(attrs: Attrs, shape: Sequence[int]) -> list[tuple[int, int]]:
    rank = len(shape)
    pads = integers(attrs, "pads", None, 2 * rank)
    return list(zip(pads[:rank], pads[rank:], strict=True))


class Border:
    """x with `pads` elements of its own around it, as `pad`'s: mirrored at its outer elements
    (reflect), these again (edge), or those of the other end (wrap)."""

    name = "border"
    kind: OpKind = "data"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        shape, mode = types[0].shape, text(attrs, "mode", "reflect", BORDERS)
        pads = _pads(attrs, shape)
        for extent, around in zip(shape, pads, strict=True):
            most = {"reflect": extent - 1, "wrap": extent}.get(mode)
            good = all(a >= 0 and (most is None or a <= most) for a in around)
            require(
                good and (not any(around) or extent > 0),
                f"border: {mode} cannot make pads {attrs['pads']} of {types[0]}",
            )
        padded = tuple(b + e + a for e, (b, a) in zip(shape, pads, strict=True))
        return TensorType(dtype=types[0].dtype, shape=padded)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        name, type_ = inputs[0]
        axes, mode = axes_of(output[1].shape), text(attrs, "mode", "reflect", BORDERS)
        point = tuple(
            _within(i - pads[0], extent, pads, mode) if any(pads) else i
            for i, extent, pads in zip(
                at(axes), type_.shape, _pads(attrs, type_.shape), strict=True
            )
        )
        return (Compute(output[0], output[1].dtype, axes, Load(name, point)),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        for axis, pads in enumerate(_pads(attrs, x.shape)):
            if any(pads):
                places = np.arange(-pads[0], x.shape[axis] + pads[1])
                mode = text(attrs, "mode", "reflect", BORDERS)
                x = np.take(x, _places_within(places, x.shape[axis], mode), axis=axis)
        return x


def _within(place: Index, extent: int, pads: tuple[int, int], mode: str) -> Index:
    """The element of an axis that stands for one at a place up to `pads` outside."""
    if mode == "wrap":
        return place % extent
    if mode == "edge":
        return clamp(place, 0, extent - 1)
    before, after = pads
    last = extent - 1
    below, above = clamp(place, -before, 0), clamp(place, last, last + after)
    mirrored = place - below * 2 - (above - last) * 2
    return clamp(mirrored, 0, last)  # which it is anyway, but no interval tells


def _places_within(places: Array, extent: int, mode: str) -> Array:
    if mode == "wrap":
        return np.asarray(places % extent)
    if mode == "edge":
        return np.clip(places, 0, extent - 1)
    return np.asarray(extent - 1 - np.abs(extent - 1 - np.abs(places)))


class Copy:
    """x again, in a layout of its own."""

    name = "copy"
    kind: OpKind = "data"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        return types[0]

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        return (Compute(output[0], output[1].dtype, axes, Load(inputs[0][0], at(axes))),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        return arrays[0].copy()


for _op in (Gather(), GatherElements(), Pad(), Border(), Copy()):
    OPS.add(_op.name, _op)
