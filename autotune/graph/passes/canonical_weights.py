"""Matmuls in one form: constant right operands are [K, N], and `transpose_b` is always written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph
from autotune.graph.rewriter import Rewriter


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalWeights:
    """matmul(x, W, transpose_b=True) -> matmul(x, W transposed, transpose_b=False)."""

    def run(self, graph: Graph) -> Graph:
        new = Rewriter(graph)
        turned: dict[str, str] = {}
        for node in graph.nodes:
            if node.op != "matmul":
                new.keep(node)
                continue
            left, right = new.inputs(node)
            flag = bool(node.attributes.get("transpose_b", False))
            if flag and right in new.constants:
                if right not in turned:
                    array = np.swapaxes(new.constants[right], -1, -2)
                    turned[right] = new.constant(array, right)
                right, flag = turned[right], False
            attrs = node.attributes | {"transpose_b": flag}
            new.replace(node.output, new.emit("matmul", [left, right], node, **attrs))
        return new.finish()
