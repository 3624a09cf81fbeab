"""Check that a model's values are defined once each, before their uses. In: a model's graph. Out:
nothing, or a ModelError that names value and node."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping

import onnx

from autotune.errors import ModelError

Definers = MutableMapping[str, str]
"""A value -> what defines it, in words."""


def describe(node: onnx.NodeProto, opset: int) -> str:
    """A node in messages: its operator, its name, or an output's where it has none."""
    name = node.name or next((o for o in node.output if o), "")
    return f"operator {node.op_type} (node {name!r}, opset {opset})"


def check_values(graph: onnx.GraphProto, opset: int, outer: Definers | None = None) -> None:
    """Raises ModelError where a value of the graph, or of a graph within, has no name, several
    definitions, or none before its use. `outer` are the values around a graph within."""
    own: dict[str, str] = {}
    known = ChainMap(own, outer or {})
    # What is given to a graph within may hide what is around it.
    for tensor in (*graph.initializer, *(s.values for s in graph.sparse_initializer)):
        _define(tensor.name, "the initializers", own)
    initialized = set(own)
    for info in graph.input:
        # Files of IR version 3 list initializers among the inputs.
        if info.name not in initialized:
            _define(info.name, "the inputs", own)
    for node in graph.node:
        where = describe(node, opset)
        for value in filter(None, node.input):
            if value not in known:
                raise ModelError(_undefined(where, value, graph, opset))
        for inner in _graphs_within(node):
            check_values(inner, opset, known)
        for value in filter(None, node.output):
            _define(value, where, known)
    for info in graph.output:
        if info.name not in known:
            raise ModelError(
                f"nothing defines output {info.name!r} of the graph {graph.name!r}; export the "
                "model again"
            )


def _define(value: str, definer: str, known: Definers) -> None:
    if not value:
        raise ModelError(f"one of {definer} has no name; export the model again")
    if before := known.get(value):
        definers = f"twice by {definer}" if definer == before else f"by {before} and by {definer}"
        raise ModelError(
            f"value {value!r} is defined {definers}; a value has one definition: export the model "
            "again"
        )
    known[value] = definer


def _undefined(where: str, value: str, graph: onnx.GraphProto, opset: int) -> str:
    text = f"{where} uses {value!r}, which nothing before it defines"
    if later := next((n for n in graph.node if value in n.output), None):
        text += f" ({describe(later, opset)} does: a cycle, or nodes out of order)"
    return f"{text}; export the model again"


def _graphs_within(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Branches of an If, the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
