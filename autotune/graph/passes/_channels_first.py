"""Convolutions whose image and result lie channels first, both turned for them alone.

In: a graph whose transposes are as near to the outputs as they come.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.push_transposes import PushTransposes
from autotune.graph.passes.remove_identities import RemoveIdentities
from autotune.graph.rewriter import Rewriter, ints, kind_of, rewritten, use_counts


def as_they_lie(graph: Graph, instead: Callable[[Rewriter, Node], str | None]) -> Graph:
    """The graph with another value for each convolution that only a transpose reads, where
    `instead` gives one, and without the transposes that cancel then."""
    ends, made = turned_back(graph), []

    def visit(new: Rewriter, node: Node) -> str | None:
        value = instead(new, node) if node.output in ends else None
        made.extend([value] if value else [])
        return value

    found = rewritten(graph, visit, "conv2d")
    return RemoveIdentities().run(PushTransposes().run(found)) if made else graph


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
    if (view := new.producer(image, "reshape")) is not None:
        shape, inner = new.shape(image), new.shape(view.inputs[0])
        image = view.inputs[0]
        if len(inner) < 3 or (shape[0], shape[-1]) != (inner[0], inner[-1]):
            return None
    if (node := new.producer(image, "transpose")) is None:
        return None
    perm = ints(node, "perm")
    first = perm == (0, *range(2, len(perm)), 1)
    return node.inputs[0] if first else None
