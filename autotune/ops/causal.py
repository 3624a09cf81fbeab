"""causal(x [...,M,N]; offset): -inf where the column is above row + offset, else x."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.ops._common import Inputs, Output, arity, at, axes_of, float_dtype, integer, require
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Bound, Compute, Const, Load, Select, index
from autotune.types import Array, Attrs, TensorType


class Causal:
    """What rows of attention may not look at; elementwise, as it moves nothing."""

    name = "causal"
    kind: OpKind = "elementwise"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 1)
        float_dtype(self.name, types)
        require(len(types[0].shape) >= 2, f"causal: rank must be >= 2, got {types[0]}")
        require(integer(attrs, "offset", 0) >= 0, "causal: offset must not be negative")
        return types[0]

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (name, type_), axes = inputs[0], axes_of(output[1].shape)
        rows, offset = type_.shape[-2], integer(attrs, "offset", 0)
        left = index(axes[-2].name) - axes[-1].name + offset
        none = Const(-math.inf, type_.dtype)
        body = Select((Bound(left, 0, rows + offset),), Load(name, at(axes)), none)
        return (Compute(output[0], output[1].dtype, axes, body),)

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        seen = np.tril(np.ones(arrays[0].shape[-2:], bool), integer(attrs, "offset", 0))
        return np.where(seen, arrays[0], arrays[0].dtype.type(-math.inf))


OPS.add(Causal.name, Causal())
