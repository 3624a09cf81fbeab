"""Convolutions whose image and result lie channels first, both turned for them alone.

In: a graph whose transposes are as near to the outputs as they come.
"""

from __future__ import annotations

from autotune.graph.ir import Graph
from autotune.graph.rewriter import Rewriter, ints, kind_of, use_counts


def turned_back(graph: Graph) -> frozenset[str]:
    """Outputs of convolutions that reach nothing but a transpose, channels first, by elementwise
    nodes and views."""
    uses = use_counts(graph)
    readers = {value: node for node in graph.nodes for value in node.inputs}
    out = set()
    for node in graph.nodes:
        value = node.output
        while node.op == "conv2d" and uses[value] == 1 and value in readers:
            reader = readers[value]
            rank = len(graph.types[value].shape)
            if reader.op == "transpose":
                if ints(reader, "perm") == (0, rank - 1, *range(1, rank - 1)):
                    out.add(node.output)
                break
            if reader.op != "reshape" and kind_of(reader.op) != "elementwise":
                break
            value = reader.output
    return frozenset(out)


def channels_first(new: Rewriter, image: str) -> str | None:
    """What an image is a transpose of, if that has channels first and points in the same order."""
    node = new.producer(image)
    if node is not None and node.op == "reshape":
        shape, inner = new.shape(image), new.shape(node.inputs[0])
        kept = len(inner) > 2 and (shape[0], shape[-1]) == (inner[0], inner[-1])
        node = new.producer(node.inputs[0]) if kept else None
    if node is None or node.op != "transpose":
        return None
    perm = ints(node, "perm")
    first = perm == (0, *range(2, len(perm)), 1)
    return node.inputs[0] if first else None
