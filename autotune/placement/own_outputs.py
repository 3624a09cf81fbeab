"""Outputs that are values of their own. In: a graph. Out: the graph, with copies of outputs that
are inputs, constants or other outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autotune.graph.ir import Graph, Node


def with_own_outputs(graph: Graph) -> Graph:
    """Every output of the graph a value of its own, computed by a node: copies where it is not."""
    computed = {node.output for node in graph.nodes}
    nodes, types, outputs = list(graph.nodes), dict(graph.types), []
    taken: set[str] = set()
    for public, source in graph.outputs:
        value = source
        if value not in computed or value in taken:
            value = fresh_name(f"{source}.output", types)
            nodes.append(Node(op="copy", inputs=(source,), output=value, name=f"copy of {source}"))
            types[value] = types[source]
        taken.add(value)
        outputs.append((public, value))
    return dataclasses.replace(graph, nodes=tuple(nodes), types=types, outputs=tuple(outputs))


def fresh_name(stem: str, taken: Mapping[str, object]) -> str:
    """The stem, or with the first number that makes a name nobody has."""
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}{number}"
    return name
