"""Heads of queries that share keys and values multiply them together, without copies of these.

In: a graph whose transposes were moved. Out: the same results. While a row at a time is generated,
keys and values are most of what attention reads; every head's copy would be written and read too.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, ints, rewritten

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeads:
    """matmul(a, b with every head n times), for a of one row -> the same of n rows, seen as one
    row of n heads."""

    def run(self, graph: Graph) -> Graph:
        return rewritten(graph, _grouped, "matmul")


def _grouped(new: Rewriter, node: Node) -> str | None:
    a, b = new.inputs(node)
    shape, out = new.shape(a), new.graph.types[node.output].shape
    found = _repeated(new, b)
    if found is None or len(shape) != len(out) or shape[-2] != 1:
        return None
    heads, axis = found
    count = out[axis] // heads
    if axis != len(out) - 3 or shape[:-2] != out[:-2] or new.shape(b)[:-2] != out[:-2]:
        return None
    single = _single(new, b, node)
    together = new.emit("reshape", [a], node, shape=(*shape[:-3], heads, count, shape[-1]))
    product = new.emit("matmul", [together, single], node, **node.attributes)
    return new.emit("reshape", [product], node, shape=out)


def _repeated(new: Rewriter, value: str) -> tuple[int, int] | None:
    """(how many there were, of which dimension) where elements along it come several times, one
    after another: a reshape of an expansion behind that dimension, perhaps transposed."""
    node = new.producer(value)
    if node is None:
        return None
    if node.op == "transpose":
        inner = _repeated(new, node.inputs[0])
        return None if inner is None else (inner[0], ints(node, "perm").index(inner[1]))
    wide = new.producer(node.inputs[0]) if node.op == "reshape" else None
    if wide is None or wide.op != "expand":
        return None
    before, many = new.shape(wide.inputs[0]), new.shape(wide.output)
    grown = [d for d, (x, y) in enumerate(zip(before[::-1], many[::-1], strict=False)) if x != y]
    if len(before) != len(many) or len(grown) != 1:
        return None
    axis = len(many) - 2 - grown[0]
    joined = (*many[: axis + 1], *many[axis + 2 :]) if axis >= 0 else many
    merged = tuple(e * (many[axis + 1] if d == axis else 1) for d, e in enumerate(joined))
    return (many[axis], axis) if axis >= 0 and merged == new.shape(value) else None


def _single(new: Rewriter, value: str, like: Node) -> str:
    """What a value repeats."""
    node = new.producer(value)
    assert node is not None  # it was looked at
    if node.op == "transpose":
        inner = _single(new, node.inputs[0], like)
        return new.emit("transpose", [inner], like, perm=ints(node, "perm"))
    wide = new.producer(node.inputs[0])
    assert wide is not None
    source, found = wide.inputs[0], _repeated(new, value)
    assert found is not None
    shape: Shape = new.shape(source)
    return new.emit(
        "reshape", [source], like, shape=(*shape[: found[1] + 1], *shape[found[1] + 2 :])
    )
