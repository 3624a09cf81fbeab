"""Arithmetic on shapes, which a stage does for itself. In: a graph, and its nodes in groups. Out:
by group, the nodes of earlier ones that work out what it needs from shapes of values that are
there: then these follow from the shapes that the stage is given, at any sizes, and no value that
another stage gives decides on any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx

READS_SHAPE = ("Shape", "Size")
OPERATORS = frozenset(
    {
        "Add", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Gather", "Identity", "Max",
        "Min", "Mod", "Mul", "Neg", "ReduceProd", "Reshape", "Slice", "Squeeze", "Sub",
        "Unsqueeze", "Where",
    }
)  # fmt: skip
"""What exporters do with the numbers of a shape."""


def shape_arithmetic(
    graph: onnx.GraphProto,
    groups: Sequence[tuple[str, list[onnx.NodeProto]]],
    constants: Collection[str],
) -> list[list[onnx.NodeProto]]:
    """Nodes that each group begins with, in order; none for groups that are not ours."""
    derived = _derived(graph, constants)
    there = {info.name for info in graph.input} | set(constants)
    out = []
    passed = [_read(nodes) for _, nodes in groups]
    for number, (kind, nodes) in enumerate(groups):
        made = {name for node in nodes for name in node.output}
        given = there.union(*passed[number:]) - made
        wanted = {n for n in _read(nodes) - made if n in derived and _roots(n, derived) <= given}
        out.append(_makers(graph, wanted, derived, made) if kind == "own" else [])
    return out


def _read(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    return {name for node in nodes for name in node.input if name}


def _derived(graph: onnx.GraphProto, constants: Collection[str]) -> dict[str, onnx.NodeProto]:
    """Values that follow from shapes alone -> the nodes that make them."""
    out: dict[str, onnx.NodeProto] = {}
    for node in graph.node:
        inputs = [name for name in node.input if name]
        known = all(name in out or name in constants for name in inputs)
        follows = node.op_type in OPERATORS and known and any(name in out for name in inputs)
        if follows or node.op_type in READS_SHAPE:
            out |= dict.fromkeys(filter(None, node.output), node)
    return out


def _roots(name: str, derived: dict[str, onnx.NodeProto]) -> set[str]:
    """Values whose shapes a derived one follows from, and the constants in it."""
    node = derived.get(name)
    if node is None:
        return {name}
    if node.op_type in READS_SHAPE:
        return set(node.input[:1])
    return set().union(*(_roots(n, derived) for n in node.input if n))


def _makers(
    graph: onnx.GraphProto, wanted: set[str], derived: dict[str, onnx.NodeProto], made: set[str]
) -> list[onnx.NodeProto]:
    """The nodes behind derived values, but for those that the group has."""
    names, found = list(wanted), set[str]()
    while names:
        name = names.pop()
        if name in derived and name not in found | made:
            found.add(name)
            node = derived[name]
            names += [] if node.op_type in READS_SHAPE else list(node.input)
    return [node for node in graph.node if found & set(node.output)]
