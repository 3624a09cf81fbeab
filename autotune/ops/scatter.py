"""scatter(x, places, updates; axis, reduction): elements joined where computed places say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.ops._common import Inputs, Output, arity, at, axes_of, axis_of, require, text
from autotune.ops.base import OPS
from autotune.program.ir import Compute, Index, Load, LoadIndex, Updates
from autotune.types import Array, Attrs, TensorType

COMBINE = {"none": None, "add": "sum", "mul": "prod", "max": "max", "min": "min"}
"""Of a reduction: how an update joins what is there; None: it takes its place."""
_JOIN: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


class Scatter:
    """x with updates joined to it one after the other, each at the place along `axis` that
    `places` gives and at its own place otherwise. `places` broadcasts over the updates; negative
    ones count from the end, and those outside go to the nearest end."""

    name = "scatter"
    kind = "scatter"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 3)
        x, places, updates = types
        axis = axis_of(attrs, "axis", 0, len(x.shape))
        text(attrs, "reduction", "none", tuple(COMBINE))
        known = places.dtype in ("int32", "int64")
        require(known, f"scatter: places must be int32 or int64, got {places}")
        same = x.dtype == updates.dtype and len(x.shape) == len(updates.shape)
        apart = [d for d in range(len(x.shape)) if d != axis]
        fits = same and all(x.shape[d] == updates.shape[d] for d in apart)
        require(fits, f"scatter: {updates} does not fit {x} but along axis {axis}")
        spread = len(places.shape) == len(updates.shape) and all(
            p in (1, u) for p, u in zip(places.shape, updates.shape, strict=True)
        )
        require(spread, f"scatter: {places} does not broadcast over {updates}")
        empty = x.shape[axis] == 0 and updates.size > 0
        require(not empty, f"scatter: {x} is empty along {axis}")
        return x

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (x, x_type), (places, places_type), (updates, updates_type) = inputs
        axis = axis_of(attrs, "axis", 0, len(x_type.shape))
        axes, joined = axes_of(x_type.shape), axes_of(updates_type.shape, "u")
        point = at(joined)
        given = tuple(
            i if p == u else Index()
            for i, p, u in zip(point, places_type.shape, updates_type.shape, strict=True)
        )
        row = LoadIndex(places, given, x_type.shape[axis])
        place = (*point[:axis], Index(((row, 1),)), *point[axis + 1 :])
        combine = COMBINE[text(attrs, "reduction", "none", tuple(COMBINE))]
        after = Updates(joined, place, Load(updates, point), combine)
        body = Load(x, at(axes))
        return (Compute(output[0], output[1].dtype, axes, body, updates=after),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, places, updates = arrays
        axis = axis_of(attrs, "axis", 0, x.ndim)
        extent = x.shape[axis]
        rows = np.clip(np.where(places < 0, places + extent, places), 0, max(extent - 1, 0))
        where: list[Array] = list(np.indices(updates.shape, sparse=True))
        where[axis] = np.broadcast_to(rows, updates.shape)
        out, reduction = x.copy(), text(attrs, "reduction", "none", tuple(COMBINE))
        full = tuple(np.broadcast_to(w, updates.shape).ravel() for w in where)
        if reduction == "none":
            _put(out, full, updates.ravel())
        else:
            _JOIN[reduction].at(out, full, updates.ravel())
        return out


def _put(out: Array, places: tuple[Array, ...], updates: Array) -> None:
    """The last update of each place; numpy leaves it open which of equal places wins."""
    flat = np.ravel_multi_index(places, out.shape)
    last, first = np.unique(flat[::-1], return_index=True)
    out.reshape(-1)[last] = updates[::-1][first]


OPS.add(Scatter.name, Scatter())
