"""Copies with zeros around them, for kernels that read paddings of open sizes. In: a graph, and
where its values lie. Out: the graph with a copy of each value whose zeros must lie in memory and
do not: arrays of the caller, and what is a view of them, have none.

At fixed sizes a kernel compares indices instead; strips of an open size are the same everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autotune.graph.ir import Graph, Node
from autotune.placement.halos import Halo, read_halo
from autotune.placement.own_outputs import fresh_name
from autotune.placement.types import Placement
from autotune.sizes import any_size


def with_haloed_copies(graph: Graph, placements: Mapping[str, Placement]) -> Graph:
    """The graph itself where no copy is needed."""
    types, nodes = dict(graph.types), list[Node]()
    copies: dict[str, str] = {}
    for node in graph.nodes:
        inputs = list(node.inputs)
        for position, value in enumerate(node.inputs):
            if not any_size(types[value].shape) or value not in placements:
                continue
            if _lies_around(read_halo(node, graph.types, value), placements[value].layout.halo):
                continue
            if value not in copies:
                copies[value] = copy = fresh_name(f"{value}.haloed", types)
                types[copy] = types[value]
                nodes.append(
                    Node(op="copy", inputs=(value,), output=copy, name=f"copy of {value}")
                )
            inputs[position] = copies[value]
        nodes.append(dataclasses.replace(node, inputs=tuple(inputs)))
    return dataclasses.replace(graph, nodes=tuple(nodes), types=types) if copies else graph


def _lies_around(read: Halo, there: Halo) -> bool:
    return all(r[0] <= t[0] and r[1] <= t[1] for r, t in zip(read, there, strict=True))
