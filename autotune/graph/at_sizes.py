"""A graph whose sizes are known at run time only, at given sizes. In: values of its symbols. Out:
a graph that numpy can run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autotune.graph.ir import Graph
from autotune.shapes import attr_with
from autotune.sizes import value_at
from autotune.types import TensorType


def graph_at(graph: Graph, values: Mapping[str, int]) -> Graph:
    """The graph where its symbols have these values; names stay. KeyError for one that is
    missing."""

    def amount(size: int) -> int:
        return value_at(size, values)

    def kind(open_type: TensorType) -> TensorType:
        return dataclasses.replace(open_type, shape=tuple(map(amount, open_type.shape)))

    nodes = (
        dataclasses.replace(node, attrs=tuple((n, attr_with(v, amount)) for n, v in node.attrs))
        for node in graph.nodes
    )
    return dataclasses.replace(
        graph,
        inputs=tuple((name, kind(each)) for name, each in graph.inputs),
        nodes=tuple(nodes),
        types={name: kind(each) for name, each in graph.types.items()},
    )
