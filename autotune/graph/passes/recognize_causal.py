"""Constant masks that hide what comes later become an operator, so that kernels can leave it out.

In: a graph after constant folding. Out: the same results; a softmax of scores under such a mask is
one of `causal` scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, rewritten
from autotune.types import Array

_HIDDEN = -1e30
"""Added to a score, or in its place: the exponential of what is left is zero beside any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeCausal:
    """softmax(where(lower, x, -inf)) and softmax(x + (0 where lower, else -inf)) ->
    softmax(causal(x)), for `lower`, the triangle under a diagonal, and very large numbers."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _causal, "where", "add")


def _causal(new: Rewriter, node: Node) -> str | None:
    found = _seen(new, node) if _only_softmax(new.graph, node) else None
    offset = found and _offset(found[1], new.graph.types[node.output].shape)
    if found is None or offset is None:
        return None
    return new.emit("causal", [found[0]], node, offset=offset)


def _only_softmax(graph: Graph, node: Node) -> bool:
    """Whether rows are all that is looked at: `causal` may hide by another number."""
    readers = [n for n in graph.nodes if node.output in n.inputs]
    last = len(graph.types[node.output].shape) - 1
    kept = any(value == node.output for _, value in graph.outputs)
    return (
        not kept
        and bool(readers)
        and all(n.op == "softmax" and n.attributes["axis"] in (-1, last) for n in readers)
    )


def _seen(new: Rewriter, node: Node) -> tuple[str, Array] | None:
    """(scores, boolean mask of those that count), of scores under a constant mask."""
    inputs = new.inputs(node)
    shape = new.graph.types[node.output].shape
    if node.op == "where" and inputs[0] in new.constants:
        mask = new.constants[inputs[0]]
        for scores, other, seen in ((inputs[1], inputs[2], mask), (inputs[2], inputs[1], ~mask)):
            fill = new.known(other)
            if fill is not None and np.all(fill <= _HIDDEN) and new.shape(scores) == shape:
                return scores, seen
    if node.op == "add":
        for scores, other in (inputs, inputs[::-1]):
            bias = new.constants.get(other)
            if bias is not None and new.shape(scores) == shape:
                return (scores, bias == 0) if np.all((bias == 0) | (bias <= _HIDDEN)) else None
    return None


def _offset(seen: Array, shape: tuple[int, ...]) -> int | None:
    """The diagonal (0 for the main one) under which a mask is true; None where it is no such."""
    if len(shape) < 2 or seen.shape[-2:] != shape[-2:] or any(e != 1 for e in seen.shape[:-2]):
        return None
    matrix = seen.reshape(shape[-2:])
    offset = int(np.count_nonzero(matrix[0])) - 1
    same = offset >= 0 and np.array_equal(matrix, np.tril(np.ones(shape[-2:], bool), offset))
    return offset if same and not matrix.all() else None
