"""Products of a few rows with what is transposed become sums along rows.

In: a graph with canonical operands. Out: the same results, up to rounding. A matrix product packs
its second operand so that vectors run over columns; for a few rows, as while text is generated,
packing is most of the work, and both operands can be read along the sums instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, rewritten
from autotune.sizes import surely_at_most

MOST_ROWS = 8
"""Rows of a product up to which it is done as sums: as many as stay in registers."""
LEAST_DEPTH = 32
"""Terms of a sum below which adding up the lanes of a vector is most of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumProducts:
    """matmul(a, b, transpose_b) of computed values -> reduce_sum(a * b), for few rows of a."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _sum, "matmul")


def _sum(new: Rewriter, node: Node) -> str | None:
    if not _suits(new, node):
        return None
    a, b = new.inputs(node)
    (*batch, rows, depth), (*others, columns, _) = new.shape(a), new.shape(b)
    a = new.emit("reshape", [a], node, shape=(*batch, rows, 1, depth))
    b = new.emit("reshape", [b], node, shape=(*others, 1, columns, depth))
    products = new.emit("mul", [a, b], node)
    last = len(new.shape(products)) - 1
    return new.emit("reduce_sum", [products], node, axes=(last,), keepdims=False)


def _suits(new: Rewriter, node: Node) -> bool:
    if not node.attributes.get("transpose_b"):
        return False
    computed = not any(i in new.constants for i in new.inputs(node))
    rows, depth = new.shape(new.inputs(node)[0])[-2:]
    float32 = all(new.types[i].dtype == "float32" for i in new.inputs(node))
    return (
        computed
        and float32
        and surely_at_most(rows, MOST_ROWS)
        and surely_at_most(LEAST_DEPTH, depth)
    )
