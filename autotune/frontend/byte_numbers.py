"""Numbers that bytes stand for, where a model says by what steps.

A value that a model quantizes is here a float value, snapped to the numbers that its bytes can
say; the bytes themselves are computed only where an operator wants them. So operators between a
dequantization and a quantization are plain ones on floats: `graph.int8.qdq` turns the snaps into
bytes between kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.frontend.assembly import Assembler
from autotune.types import Array

MOVED = {"uint8": 0, "int8": 128}
"""What is added to bytes of a type to make them unsigned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteSteps:
    """number = (byte - zero) * step, for bytes of that type."""

    step: float
    zero: int
    dtype: str


def as_bytes(n: Assembler, value: str, steps: ByteSteps) -> str:
    """A float value as bytes."""
    moved = MOVED[steps.dtype]
    snapped = n.op("snap", value, step=steps.step, zero=float(steps.zero + moved))
    count = n.op("round", n.op("div", snapped, n.like(steps.step, snapped)))
    made = n.op(f"to_{steps.dtype}", n.op("add", count, n.like(steps.zero, count)))
    n.builder.numbers[made] = (snapped, steps.step, steps.zero)
    return made


def snapped_numbers(n: Assembler, value: str, steps: ByteSteps) -> str | None:
    """The numbers of bytes that `as_bytes` made by these steps; None for others."""
    known = n.builder.numbers.get(value)
    return known[0] if known is not None and known[1:] == (steps.step, steps.zero) else None


def constant_numbers(
    n: Assembler, whole: Array, scale: Array, zero: Array | None, axis: int
) -> str:
    """Constant bytes as the constant numbers they stand for; one scale and zero point, or one for
    each element along an axis."""
    apart = whole.astype(np.float64) - _along(zero, whole.ndim, axis)
    return n.constant(apart * _along(scale, whole.ndim, axis), "float32")


def _along(array: Array | None, rank: int, axis: int) -> Array:
    """A scale or zero point in double precision, along one axis where there are several."""
    if array is None or array.size == 1:
        return np.zeros(()) if array is None else array.reshape(()).astype(np.float64)
    shape = [1] * rank
    shape[axis] = array.size
    return array.reshape(shape).astype(np.float64)
