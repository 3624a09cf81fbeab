"""scan(x [R,N,C]; combine, exclusive, reverse): what the elements up to each one along the middle
dimension join to (prefix sums, Blelloch 1990), or without that element itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.ops._common import Inputs, Output, arity, at, axes_of, const, integer, require, text
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Axis, Bound, Compute, Load, Select, Updates, Value, index
from autotune.sizes import surely_less
from autotune.types import Array, Attrs, TensorType

NEUTRAL = {"sum": 0.0, "prod": 1.0}
"""The neutral element of a combination: what changes nothing."""


class Scan:
    """Each element joins the one before it, in order; from the end with `reverse`."""

    name = "scan"
    kind: OpKind = "scan"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        _options(attrs)
        good = len(types[0].shape) == 3 and types[0].dtype not in ("bool", "bfloat16", "float16")
        require(good, f"scan: x must be numbers [rows, extent, columns], got {types[0]}")
        return types[0]

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (name, type_), (out, result) = inputs[0], output
        combine, exclusive, reverse = _options(attrs)
        axes, extent = axes_of(result.shape), type_.shape[1]
        row, place, column = at(axes)
        body: Value = Load(name, (row, place, column))
        if exclusive:
            source = place + (1 if reverse else -1)
            moved = Load(name, (row, source, column))
            body = Select((Bound(source, 0, extent),), moved, const(NEUTRAL[combine], type_.dtype))
        if surely_less(extent, 2):
            return (Compute(out, result.dtype, axes, body),)
        joined = (Axis("u0", type_.shape[0]), Axis("u1", extent - 1), Axis("u2", type_.shape[2]))
        here = index("u1") * -1 + (extent - 2) if reverse else index("u1") + 1
        before = here + (1 if reverse else -1)
        updates = Updates(
            joined,
            (index("u0"), here, index("u2")),
            Load(out, (index("u0"), before, index("u2"))),
            combine,
        )
        return (Compute(out, result.dtype, axes, body, updates=updates),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x = arrays[0]
        combine, exclusive, reverse = _options(attrs)
        x = x[:, ::-1] if reverse else x
        if exclusive:
            x = np.roll(x, 1, axis=1)
            x[:, :1] = NEUTRAL[combine]
        total = np.cumsum if combine == "sum" else np.cumprod
        out = total(x, axis=1, dtype=x.dtype)
        return np.ascontiguousarray(out[:, ::-1] if reverse else out)


def _options(attrs: Attrs) -> tuple[str, bool, bool]:
    combine = text(attrs, "combine", "sum", tuple(NEUTRAL))
    return combine, bool(integer(attrs, "exclusive", 0)), bool(integer(attrs, "reverse", 0))


OPS.add(Scan.name, Scan())
