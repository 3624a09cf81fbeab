"""blocks(moving..., fixed...; moving, axis, count, starts, steps, lengths, body): the same for
every block of its operands along an axis; the results lie side by side along it.

Of the operand `moving` n, block t is the `lengths[n]` places from `starts[n] + t * steps[n]` on;
blocks may overlap. Of the fixed operands each block reads all. The body's nodes are ops over
values `m0`, ... and `f0`, ...; the last one gives a block of the result. There are `count` blocks,
perhaps none. There is no kernel of this op: `autotune.placement.repeats` puts the body's kernels
in its place, which a run calls for every block.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from autotune.errors import ModelError
from autotune.ops._common import Inputs, Output, axis_of, integer, integers, require
from autotune.ops.base import OPS, OpKind
from autotune.ops.body import body_of, body_result, body_types
from autotune.program.ir import Compute
from autotune.types import Array, Attrs, TensorType


def block_count(attrs: Attrs) -> int:
    """How many blocks there are, which may depend on sizes."""
    (count,) = integers({"count": (attrs["count"],)}, "count")
    return count


def block_axis(attrs: Attrs) -> int:
    return integer(attrs, "axis")


def numbers(attrs: Attrs, name: str) -> tuple[int, ...]:
    """An attribute of a number for each moving operand."""
    return integers(attrs, name, length=integer(attrs, "moving"))


def operand_names(count: int, attrs: Attrs) -> tuple[str, ...]:
    """What the body calls each of `count` operands."""
    moving = integer(attrs, "moving")
    return (*(f"m{n}" for n in range(moving)), *(f"f{n}" for n in range(count - moving)))


def block_types(types: Sequence[TensorType], attrs: Attrs) -> dict[str, TensorType]:
    """The types of the body's operands and values."""
    axis, lengths = integer(attrs, "axis"), numbers(attrs, "lengths")
    cut = (resized(t, axis, lengths[n]) if n < len(lengths) else t for n, t in enumerate(types))
    return body_types(dict(zip(operand_names(len(types), attrs), cut, strict=True)), attrs)


def resized(kind: TensorType, axis: int, extent: int) -> TensorType:
    """The type with another extent along an axis."""
    shape = (*kind.shape[:axis], extent, *kind.shape[axis + 1 :])
    return dataclasses.replace(kind, shape=shape)


class OverBlocks:
    """Blocks in any order: none reads what another one makes."""

    name = "blocks"
    kind: OpKind = "loop"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        moving = integer(attrs, "moving")
        require(0 < moving <= len(types), f"blocks: {moving} of {len(types)} operands move")
        for name in ("starts", "steps", "lengths"):
            numbers(attrs, name)
        axis = axis_of(attrs, "axis", 0, min(len(t.shape) for t in types[:moving]))
        made = block_types(types, attrs)[body_of(attrs)[-1].outputs[0]]
        require(axis < len(made.shape), f"blocks: {made} has no dimension {axis}")
        return resized(made, axis, block_count(attrs) * made.shape[axis])

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        raise ModelError("blocks has no expression of its own: its body has; report the model")

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        axis, names = integer(attrs, "axis"), operand_names(len(arrays), attrs)
        places = [numbers(attrs, name) for name in ("starts", "steps", "lengths")]
        out = []
        for block in range(block_count(attrs)):
            known = dict(zip(names, arrays, strict=True))
            for name, start, step, length in zip(names, *places, strict=False):
                first = start + block * step
                known[name] = np.take(known[name], range(first, first + length), axis)
            out.append(body_result(known, attrs))
        types = [TensorType(dtype=a.dtype.name, shape=a.shape) for a in arrays]
        made = self.infer(types, attrs)
        return np.concatenate(out, axis) if out else np.empty(made.shape, made.dtype)


OPS.add(OverBlocks.name, OverBlocks())
