"""Move reshapes behind elementwise operators, so that these meet the kernel of their operand.

In: a graph without needless transposes. Out: the same results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, kind_of, rewritten
from autotune.sizes import any_size

Shape = tuple[int, ...]
_MOST_REPEATED = 64
"""Times, at most, that a constant is written out beside itself: it is read as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReshapes:
    """relu(reshape(conv)) -> reshape(relu(conv)), with operands that are reshaped from the same
    shape, numbers, and constants that are whole or vary along the last dimension alone, of which
    there may be several in one of the operand's."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _pushed)


def _pushed(new: Rewriter, node: Node) -> str | None:
    if kind_of(node.op) != "elementwise" or node.op in ("expand", "scalar"):
        return None
    shape = new.graph.types[node.output].shape
    inputs = new.inputs(node)
    base = next((b for i in inputs if (b := _base(new, i, shape)) is not None), None)
    if base is None or math.prod(shape) == 0:
        return None
    operands = []
    for value in inputs:
        operand = _under(new, value, new.shape(base), shape)
        if operand is None:
            return None
        operands.append(operand)
    result = new.emit(node.op, operands, node, **node.attributes)
    return new.emit("reshape", [result], node, shape=shape)


def _base(new: Rewriter, value: str, shape: Shape) -> str | None:
    """What a value of that shape is reshaped from."""
    source = new.producer(value, "reshape") if new.shape(value) == shape else None
    return source.inputs[0] if source is not None else None


def _under(new: Rewriter, value: str, base: Shape, shape: Shape) -> str | None:
    """The operand for an operator over `base` instead of `shape`; None where there is none."""
    origin = _base(new, value, shape)
    if origin is not None:
        return origin if new.shape(origin) == base else None
    known = new.known(value)
    if known is None:
        return None
    if known.ndim == 0:
        return value
    if known.size == 1:
        return new.constant(known.reshape(()), value)
    if known.size == math.prod(shape):
        return new.constant(known.reshape(base), value)
    last = known.shape[-1] == known.size == shape[-1]
    if not last or any_size(base[-1:]):
        return None
    times, rest = divmod(base[-1], known.size) if base else (0, 0)
    if rest or not 1 <= times <= _MOST_REPEATED:
        return None
    return new.constant(np.tile(known.reshape(-1), times), value)
