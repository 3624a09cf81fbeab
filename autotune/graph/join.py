"""Several graphs as one, which share nothing. In: graphs. Out: a graph whose inputs and outputs
have the number of their graph in front."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autotune.graph.ir import Graph, Node


def joined(graphs: Sequence[Graph], name: str = "graphs") -> Graph:
    """Their disjoint union."""
    apart = [_renamed(graph, f"g{number}.") for number, graph in enumerate(graphs)]
    return Graph(
        name=name,
        inputs=tuple(i for g in apart for i in g.inputs),
        outputs=tuple(o for g in apart for o in g.outputs),
        nodes=tuple(n for g in apart for n in g.nodes),
        constants={v: array for g in apart for v, array in g.constants.items()},
        types={v: kind for g in apart for v, kind in g.types.items()},
        declared=tuple(d for g in apart for d in g.declared),
    )


def _renamed(graph: Graph, prefix: str) -> Graph:
    """Every value, input and output with a prefix."""

    def node(old: Node) -> Node:
        inputs = tuple(prefix + value for value in old.inputs)
        return dataclasses.replace(old, inputs=inputs, output=prefix + old.output)

    return Graph(
        name=graph.name,
        inputs=tuple((prefix + value, kind) for value, kind in graph.inputs),
        outputs=tuple((prefix + public, prefix + value) for public, value in graph.outputs),
        nodes=tuple(map(node, graph.nodes)),
        constants={prefix + value: array for value, array in graph.constants.items()},
        types={prefix + value: kind for value, kind in graph.types.items()},
        declared=tuple((prefix + value, kind) for value, kind in graph.declared),
    )
