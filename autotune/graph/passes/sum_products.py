"""Products of a few rows with what is transposed, or with one column, become sums along rows.

In: a graph with canonical operands. Out: the same results, up to rounding. A matrix product packs
its second operand so that vectors run over columns; for a few rows, as while text is generated,
packing is most of the work, and both operands can be read along the sums instead. Vectors over
one column would have one lane at work.
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
    """matmul(a, b) -> reduce_sum(a * b), where b is one column, or computed, transposed and a has
    few rows."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _sum, "matmul")


def _sum(new: Rewriter, node: Node) -> str | None:
    a, b = new.inputs(node)
    (*batch, rows, depth), (*others, columns, _) = new.shape(a), new.shape(b)
    if not node.attributes.get("transpose_b"):  # a column lies as its transpose does
        columns = new.shape(b)[-1]
    float32 = all(new.types[i].dtype == "float32" for i in (a, b))
    if not float32 or not surely_at_most(LEAST_DEPTH, depth):
        return None
    if not surely_at_most(columns, 1) and not _has_few_rows(new, node, rows):
        return None
    a = new.emit("reshape", [a], node, shape=(*batch, rows, 1, depth))
    b = new.emit("reshape", [b], node, shape=(*others, 1, columns, depth))
    products = new.emit("mul", [a, b], node)
    last = len(new.shape(products)) - 1
    return new.emit("reduce_sum", [products], node, axes=(last,), keepdims=False)


def _has_few_rows(new: Rewriter, node: Node, rows: int) -> bool:
    """Whether a product of computed values reads few rows, and both of its operands along sums."""
    computed = not any(i in new.constants for i in new.inputs(node))
    transposed = bool(node.attributes.get("transpose_b"))
    return computed and transposed and surely_at_most(rows, MOST_ROWS)
