"""matmul(a [...,M,K], b [...,K,N]; transpose_b) -> [...,M,N], batch dimensions broadcast.

With transpose_b, b is [...,N,K]. uint8 a and int8 b give int32 sums, short floats float32 ones,
float32 a and int8 b too.
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
    product,
    product_dtype,
    require,
)
from autotune.ops.base import OPS, OpKind
from autotune.program.ir import Axis, Compute, Index, Load, index
from autotune.types import Array, Attrs, TensorType


class Matmul:
    """Batched matrix product; both operands have rank 2 or more."""

    name = "matmul"
    kind: OpKind = "contraction"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        arity(self.name, types, 2)
        dtype = product_dtype(self.name, types)
        a, b = types
        require(dtype != "bool", "matmul: inputs must be numbers, got bool")
        require(min(len(a.shape), len(b.shape)) >= 2, f"matmul: rank must be >= 2, got {a}, {b}")
        n, k = b.shape[-2:] if _transposed(attrs) else (b.shape[-1], b.shape[-2])
        require(a.shape[-1] == k, f"matmul: inner extents of {a} and {b} differ")
        batch = broadcast_shape(self.name, [a.shape[:-2], b.shape[:-2]])
        return TensorType(dtype=dtype, shape=(*batch, a.shape[-2], n))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        (a, a_type), (b, b_type) = inputs
        *batch, m, n = output[1].shape
        batch_axes = axes_of(batch, "b")

        def load(name: str, type_: TensorType, row: Index, column: Index) -> Load:
            outer = broadcast_load(name, type_.shape[:-2], batch_axes)
            return Load(name, (*outer.indices, row, column))

        k, column = index("k"), index("n")
        right = (column, k) if _transposed(attrs) else (k, column)
        return (
            Compute(
                output=output[0],
                dtype=output[1].dtype,
                axes=(*batch_axes, Axis("m", m), Axis("n", n)),
                body=product(
                    load(a, a_type, index("m"), k), load(b, b_type, *right), (a_type, b_type)
                ),
                reduce=(Axis("k", a_type.shape[-1]),),
                combine="sum",
            ),
        )

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        a, b = arrays
        if a.dtype == np.uint8 and b.dtype == np.int8:
            # Exact, and numpy multiplies matrices of floats faster than of integers.
            wide = [v.astype(np.float64) for v in arrays]
            return self.reference(wide, attrs).astype(np.int32)
        return np.asarray(a @ (np.swapaxes(b, -1, -2) if _transposed(attrs) else b))


def _transposed(attrs: Attrs) -> bool:
    return bool(integer(attrs, "transpose_b", 0))


OPS.add(Matmul.name, Matmul())
