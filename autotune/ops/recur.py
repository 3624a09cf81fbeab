"""recur(state, moving..., fixed...; moving, reverse, body): a state that each step makes from the
one before it, over the steps of a sequence. The result is every step's state, [T, ...].

Of `moving` operands [T, ...] a step reads its own row, of the others all; `reverse`: from the
last row to the first. The body's nodes are ops over values `s` (the state), `m0`, ... and `f0`,
...; the last one gives the new state. There is no kernel of this op: `autotune.placement.repeats`
puts the body's kernels in its place, which a run calls for every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.errors import ModelError
from autotune.ops._common import Inputs, Output, integer, require
from autotune.ops.base import OPS, OpKind
from autotune.ops.body import body_of, body_result, body_types
from autotune.program.ir import Compute
from autotune.types import Array, Attrs, TensorType

STATE = "s"


def operand_names(count: int, attrs: Attrs) -> tuple[str, ...]:
    """What the body calls each of `count` operands."""
    moving = integer(attrs, "moving")
    rest = range(count - 1 - moving)
    return (STATE, *(f"m{n}" for n in range(moving)), *(f"f{n}" for n in rest))


def step_types(types: Sequence[TensorType], attrs: Attrs) -> dict[str, TensorType]:
    """The types of the body's operands and values."""
    moving = integer(attrs, "moving")
    rows = (
        TensorType(dtype=t.dtype, shape=t.shape[1:]) if 1 <= n <= moving else t
        for n, t in enumerate(types)
    )
    return body_types(dict(zip(operand_names(len(types), attrs), rows, strict=True)), attrs)


class Recur:
    """Steps in order; there is at least one moving operand, which says how many."""

    name = "recur"
    kind: OpKind = "loop"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
        moving = integer(attrs, "moving")
        require(0 < moving < len(types), f"recur: {moving} of {len(types)} operands cannot move")
        lengths = {t.shape[:1] for t in types[1 : 1 + moving]}
        require(len(lengths) == 1, f"recur: moving operands have different lengths {lengths}")
        made = step_types(types, attrs)[body_of(attrs)[-1].outputs[0]]
        require(made == types[0], f"recur: a step makes {made} of a state {types[0]}")
        return TensorType(dtype=made.dtype, shape=(*lengths.pop(), *made.shape))

    def expression(self, inputs: Inputs, output: Output, attrs: Attrs) -> tuple[Compute, ...]:
        raise ModelError("recur has no expression of its own: its steps have; report the model")

    def reference(self, arrays: Sequence[Array], attrs: Attrs) -> Array:
        moving = integer(attrs, "moving")
        names = operand_names(len(arrays), attrs)
        state, steps = arrays[0], list(range(len(arrays[1])))
        out = np.empty((len(steps), *state.shape), state.dtype)
        for step in reversed(steps) if integer(attrs, "reverse", 0) else steps:
            rows = (a[step] if 1 <= n <= moving else a for n, a in enumerate(arrays))
            known = dict(zip(names, rows, strict=True)) | {STATE: state}
            state = out[step] = body_result(known, attrs)
        return out


OPS.add(Recur.name, Recur())
