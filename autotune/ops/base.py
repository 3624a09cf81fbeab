"""Operators: shape inference, tensor expressions, a numpy reference and a FLOP count of each.

In: the types of its inputs and its attributes. Out: everything else is derived from this.
Activations of image operators are NHWC; convolution weights are [KH, KW, I/groups, O].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Protocol

from autotune.program.ir import Compute
from autotune.registry import Registry
from autotune.types import Array, Attrs, TensorType

OpKind = Literal[
    "contraction", "pool", "row", "elementwise", "scatter", "scan", "sort", "data", "view", "loop"
]
"""data moves elements, view none; a loop is kernels of others, called again and again."""


class Op(Protocol):
    """One operator with one output; stateless. Add one: a file in this folder and `OPS.add`."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> OpKind:
        """The family."""
        ...

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        """Type of the output. Raises ModelError where inputs or attributes do not fit."""
        ...

    def expression(
        self,
        inputs: Sequence[tuple[str, TensorType]],
        output: tuple[str, TensorType],
        attrs: Attrs,
    ) -> tuple[Compute, ...]:
        """Tensor expressions; the last one defines `output`, earlier ones `output + '.' + stage`.

        Loads name the inputs by the names given. Axis names are unique within one Compute."""
        ...

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        """The result by numpy, in the inputs' precision (called with float64 to be an oracle)."""
        ...


OPS: Registry[Op] = Registry("op")


def compute_flops(compute: Compute) -> int:
    """Floating-point operations by the field's convention: 2 per multiply-add of a contraction,
    1 per point of anything else."""
    points = math.prod(compute.shape) * math.prod(a.extent for a in compute.reduce)
    joined = math.prod(a.extent for a in compute.updates.axes) if compute.updates else 0
    return points * (2 if compute.combine == "sum" else 1) + joined
