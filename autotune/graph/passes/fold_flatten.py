"""Fold the transpose before a flatten into the rows of the matmul's weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.push_transposes import factor_groups, inverse
from autotune.graph.rewriter import Rewriter, rewritten

LARGE_BYTES = 64 << 20
"""Bytes of weights whose permuted copy is worth its memory only for few columns."""
FEW_COLUMNS = 256
"""Moving the activations takes no more than one part in as many as the weights have columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldFlatten:
    """matmul(reshape(transpose(x)), W) -> matmul(reshape(x), W with its rows permuted), where the
    transpose moves only dimensions that the reshape merges into the last one. Large weights stay
    as they lie in their file where moving the activations takes next to no time beside them."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _folded, "matmul")


def _folded(new: Rewriter, node: Node) -> str | None:
    left, weights = new.inputs(node)
    flatten = new.producer(left)
    if flatten is None or flatten.op != "reshape" or weights not in new.constants:
        return None
    transpose = new.producer(flatten.inputs[0])
    if transpose is None or transpose.op != "transpose" or node.attributes.get("transpose_b"):
        return None
    shape, flat = new.shape(transpose.output), new.shape(left)
    perm = transpose.attributes["perm"]
    assert isinstance(perm, tuple)
    if len(new.shape(weights)) != 2 or math.prod(flat) == 0 or flat[-1] == 1:
        return None
    merged, into = factor_groups(shape, flat)[-1]
    first = merged[0]
    if into != [len(flat) - 1] or perm[:first] != tuple(range(first)):
        return None
    rows = tuple(p - first for p in perm[first:])
    array = new.constants[weights]
    if array.nbytes >= LARGE_BYTES and array.shape[1] >= FEW_COLUMNS:
        return None
    moved = array.reshape(*shape[first:], -1).transpose(*inverse(rows), len(rows))
    constant = new.constant(moved.reshape(array.shape), weights)
    base = new.emit("reshape", [transpose.inputs[0]], flatten, shape=flat)
    return new.emit("matmul", [base, constant], node, **node.attributes)
