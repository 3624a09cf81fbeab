"""Elements as unique numbers: sort_keys(x, places; largest), block_max(x; depth, width, largest).

A key holds an element's order, NaNs being the largest, and its place, so that of equal elements
the first has the larger key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.ops._common import (
    Inputs,
    Output,
    arity,
    axes_of,
    broadcast_load,
    broadcast_shape,
    integer,
    require,
)
from autotune.ops.base import OPS, OpKind
from autotune.program.functions import apply_function
from autotune.program.ir import Axis, Compute, Const, IndexValue, Load, Value, fn, index
from autotune.types import Array, Attrs, TensorType, lowest

KEYED = ("float32", "int32", "int8", "uint8")
"""Types whose elements have keys."""
PLACES = 1 << 32
"""Places that a key can tell apart."""
_HIGHEST, _LOWEST = (1 << 31) - 1, -(1 << 31)
"""The ends of int32."""


class SortKeys:
    """Sort keys of elements that lie at known places."""

    name = "sort_keys"
    kind: OpKind = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 2)
        x, places = types
        _require_keyed(self.name, x, attrs)
        fits = broadcast_shape(self.name, [x.shape, places.shape]) == x.shape
        known = places.dtype == "int64"
        wanted = f"{self.name}: places of {x} must be int64 of its shape, got {places}"
        require(fits and known, wanted)
        return TensorType(dtype="int64", shape=x.shape)

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        axes = axes_of(output[1].shape)
        x, place = (broadcast_load(name, t.shape, axes) for name, t in inputs)
        body = _key(x, place, inputs[0][1].dtype, attrs)
        return (Compute(output[0], "int64", axes, body),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        return _np_keys(arrays[0], arrays[1], attrs)


class BlockMax:
    """The largest key of each piece of a row, [rows, blocks, width]: a block's `width` pieces lie
    side by side, `depth` elements of each behind one another. What fills no block is left out."""

    name = "block_max"
    kind: OpKind = "row"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        (x,) = types
        _require_keyed(self.name, x, attrs)
        depth, width = (integer(attrs, name) for name in ("depth", "width"))
        fits = len(x.shape) == 2 and min(depth, width) > 0 and depth * width <= x.shape[1] < PLACES
        require(fits, f"block_max: {x} has no rows of blocks of {depth}x{width}")
        blocks = x.shape[1] // (depth * width)
        return TensorType(dtype="int64", shape=(x.shape[0], blocks, width))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (name, type_), (out, result) = inputs[0], output
        axes, depth = axes_of(result.shape), integer(attrs, "depth")
        reduce = (Axis("r", depth),) if depth > 1 else ()
        width = result.shape[2]
        place = index("d1") * (depth * width) + "d2"
        place = place + index("r") * width if reduce else place
        x = Load(name, (index("d0"), place))
        body = _key(x, IndexValue(place, "int64"), type_.dtype, attrs)
        if not reduce:
            return (Compute(out, "int64", axes, body),)
        init = lowest("int64")
        return (Compute(out, "int64", axes, body, reduce, "max", init),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        x, depth = arrays[0], integer(attrs, "depth")
        shape = self.infer([TensorType(dtype="float32", shape=x.shape)], attrs).shape
        keys = _np_keys(x, np.arange(x.shape[1]), attrs)[:, : depth * shape[1] * shape[2]]
        return np.asarray(keys.reshape(*shape[:2], depth, shape[2]).max(axis=2))


def _require_keyed(op: str, x: TensorType, attrs: Attrs) -> None:
    require(x.dtype in KEYED, f"{op}: elements must be {', '.join(KEYED)}, got {x}")
    integer(attrs, "largest", 1)


def _key(x: Value, place: Value, dtype: str, attrs: Attrs) -> Value:
    order = fn("to_int64", _order(x) if dtype == "float32" else x)
    if not integer(attrs, "largest", 1):
        order = fn("sub", Const(-1, "int64"), order)
    high = fn("mul", order, Const(PLACES, "int64"))
    return fn("sub", fn("add", high, Const(PLACES - 1, "int64")), place)


def _order(x: Value) -> Value:
    """Whole numbers of 32 bits in the order of floats."""
    bits = fn("bits", x)
    # Of negative numbers the bits count upwards from the lowest int32, which is less zero.
    below = fn("sub", Const(_LOWEST, "int32"), bits)
    order = fn("where", fn("lt", bits, Const(0, "int32")), below, bits)
    return fn("where", fn("ne", x, x), Const(_HIGHEST, "int32"), order)


def _np_keys(x: Array, places: Array, attrs: Attrs) -> Array:
    if x.dtype.kind == "f":
        bits = apply_function("bits", [x]).astype(np.int64)
        order = np.where(np.isnan(x), _HIGHEST, np.where(bits < 0, _LOWEST - bits, bits))
    else:
        order = x.astype(np.int64)
    order = order if integer(attrs, "largest", 1) else -1 - order
    return np.asarray(order * PLACES + (PLACES - 1 - places))


for _op in (SortKeys(), BlockMax()):
    OPS.add(_op.name, _op)
