"""Heads of queries that share keys and values multiply them together, without copies of these.

In: a graph whose transposes were moved. Out: the same results. While a row at a time is generated,
keys and values are most of what attention reads; every head's copy would be written and read too.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, ints, rewritten


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeads:
    """matmul(a, b with every head n times), for a of one row -> the same of n rows, seen as one
    row of n heads."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _grouped, "matmul")


def _grouped(new: Rewriter, node: Node) -> str | None:
    a, b = new.inputs(node)
    shape, out = new.shape(a), new.graph.types[node.output].shape
    if len(shape) != len(out) or len(shape) < 3 or shape[-2] != 1:
        return None
    single = _single(new, b, node)
    if single is None or shape[:-2] != out[:-2] or new.shape(b)[:-2] != out[:-2]:
        return None
    heads = new.shape(single)[-3]
    if new.shape(single) != (*out[:-3], heads, *new.shape(b)[-2:]):
        return None
    rows = (*shape[:-3], heads, out[-3] // heads, shape[-1])
    together = new.emit("reshape", [a], node, shape=rows)
    product = new.emit("matmul", [together, single], node, **node.attributes)
    return new.emit("reshape", [product], node, shape=out)


def _single(new: Rewriter, value: str, like: Node) -> str | None:
    """What a value repeats, where elements along one dimension come several times, one after
    another: a reshape of an expansion behind that dimension, perhaps transposed."""
    node = new.producer(value)
    if node is None:
        return None
    if node.op == "transpose":
        inner = _single(new, node.inputs[0], like)
        return inner and new.emit("transpose", [inner], like, perm=ints(node, "perm"))
    wide = new.producer(node.inputs[0], "expand")
    if wide is None or node.op != "reshape":
        return None
    before, many = new.shape(wide.inputs[0]), new.shape(wide.output)
    grown = [d for d, (x, y) in enumerate(zip(before, many, strict=False)) if x != y]
    if len(before) != len(many) or len(grown) != 1 or not grown[0]:
        return None
    axis = grown[0]
    joined = (*many[: axis - 1], many[axis - 1] * many[axis], *many[axis + 1 :])
    single = (*many[:axis], *many[axis + 1 :])
    if joined != new.shape(value):
        return None
    return new.emit("reshape", wide.inputs, like, shape=single)
