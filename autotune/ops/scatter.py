"""scatter(x, places, updates; axis, reduction): elements joined where computed places say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    at,
    axes_of,
    axis_of,
    broadcast_load,
    broadcast_shape,
    integer,
    places_of,
    require,
    text,
)
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Compute, Index, Load, LoadIndex, Updates
from autotune.types import Array, Attrs, TensorType

COMBINE = {"none": None, "add": "sum", "mul": "prod", "max": "max", "min": "min"}
"""Reduction by its ONNX name: how an update joins what is there; None: it takes its place."""
_JOIN: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


class Scatter:
    """x with updates joined to it one after the other, each at the place along `axis` that
    `places` gives and at its own place otherwise. `places` broadcasts over the updates; negative
    ones count from the end, and those outside go to the nearest end. x broadcasts where `extent`
    says how many places there are."""

    name = "scatter"
    kind: OpKind = "scatter"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 3)
        x, places, updates = types
        text(attrs, "reduction", "none", tuple(COMBINE))
        known = places.dtype in ("int32", "int64")
        require(known, f"scatter: places must be int32 or int64, got {places}")
        shape = _shape(x, updates, attrs)
        fits = x.dtype == updates.dtype and broadcast_shape(self.name, [x.shape, shape]) == shape
        require(fits, f"scatter: {x} does not fit updates of {updates} for {list(shape)}")
        spread = len(places.shape) == len(updates.shape) and all(
            p in (1, u) for p, u in zip(places.shape, updates.shape, strict=True)
        )
        require(spread, f"scatter: {places} does not broadcast over {updates}")
        empty = math.prod(shape) == 0 and updates.size > 0
        require(not empty, f"scatter: {x} has no places for {updates}")
        return TensorType(dtype=x.dtype, shape=shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (x, x_type), (places, places_type), (updates, updates_type) = inputs
        shape = output[1].shape
        axis = axis_of(attrs, "axis", 0, len(shape))
        axes, joined = axes_of(shape), axes_of(updates_type.shape, "u")
        point = at(joined)
        given = tuple(
            i if p == u else Index()
            for i, p, u in zip(point, places_type.shape, updates_type.shape, strict=True)
        )
        row = LoadIndex(places, given, shape[axis])
        place = (*point[:axis], Index(((row, 1),)), *point[axis + 1 :])
        combine = COMBINE[text(attrs, "reduction", "none", tuple(COMBINE))]
        after = Updates(joined, place, Load(updates, point), combine)
        body = broadcast_load(x, x_type.shape, axes)
        return (Compute(output[0], output[1].dtype, axes, body, updates=after),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, places, updates = arrays
        start, given = (TensorType(dtype="float64", shape=v.shape) for v in (x, updates))
        shape = _shape(start, given, attrs)
        axis = axis_of(attrs, "axis", 0, len(shape))
        where: list[Array] = list(np.indices(updates.shape, sparse=True))
        where[axis] = places_of(places, shape[axis])
        full = tuple(np.broadcast_to(w, updates.shape).ravel() for w in where)
        out = np.broadcast_to(x, shape).copy()
        reduction = text(attrs, "reduction", "none", tuple(COMBINE))
        if reduction == "none":
            _put(out, full, updates.ravel())
        else:
            _JOIN[reduction].at(out, full, updates.ravel())
        return out


def _shape(x: TensorType, updates: TensorType, attrs: Attrs) -> tuple[int, ...]:
    """The shape of the updates, but along the axis."""
    axis = axis_of(attrs, "axis", 0, len(updates.shape))
    same = len(x.shape) == len(updates.shape)
    require(same or "extent" in attrs, f"scatter: {x} and {updates} have not as many dimensions")
    extent = integer(attrs, "extent") if "extent" in attrs else x.shape[axis]
    return (*updates.shape[:axis], extent, *updates.shape[axis + 1 :])


def _put(out: Array, places: tuple[Array, ...], updates: Array) -> None:
    """The last update of each place; numpy leaves it open which of equal places wins."""
    flat = np.ravel_multi_index(places, out.shape)
    last, first = np.unique(flat[::-1], return_index=True)
    out.reshape(-1)[last] = updates[::-1][first]


OPS.add(Scatter.name, Scatter())
