"""Matmuls in one form: constant right operands are [K, N], and `transpose_b` is always written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, rewritten


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalWeights:
    """matmul(x, W, transpose_b=True) -> matmul(x, W transposed, transpose_b=False)."""

    def run(self, graph: Graph) -> Graph:
        turned: dict[str, str] = {}
        return rewritten(graph, lambda new, node: _canonical(new, node, turned), "matmul")


def _canonical(new: Rewriter, node: Node, turned: dict[str, str]) -> str:
    """`turned`: weights that were, for all of their readers."""
    left, right = new.inputs(node)
    flag = bool(node.attributes.get("transpose_b", False))
    if flag and right in new.constants:
        if right not in turned:
            turned[right] = new.constant(np.swapaxes(new.constants[right], -1, -2), right)
        right, flag = turned[right], False
    return new.emit("matmul", [left, right], node, **node.attributes | {"transpose_b": flag})
