"""A model cut into stages. In: a model in memory, which of its nodes are foreign, and which values
must be there before a node is looked at. Out: few stages, each all ours, or all foreign, or one
node of control flow.

A stage takes every node whose operands are there, so that foreign nodes between many of ours cut
the model once for all that can wait for one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import onnx

from autotune.fallback.shape_arithmetic import shape_arithmetic

Group = tuple["Kind", list[onnx.NodeProto]]
"""Nodes of one kind that run in one go."""
Kind = Literal["own", "foreign", "control", "counted"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_NUMBERS = {
    "value_int": "int64", "value_ints": "int64",
    "value_float": "float32", "value_floats": "float32",
}  # fmt: skip
"""Attributes of a node of numbers -> their element types."""
SINGLE: tuple[Kind, ...] = ("control", "counted")
"""Kinds of stages that have one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A division of a model's nodes, which are known by the name of their first output."""

    foreign: frozenset[str] = frozenset()
    """Nodes that have no kernel of ours."""
    known_first: frozenset[tuple[str, str]] = frozenset()
    """(node, value): the value must have been computed before the node's stage begins."""
    control: frozenset[str] = frozenset()
    """Branches and loops that a run decides on."""
    counted: frozenset[str] = frozenset()
    """Nodes that give as much as their values say."""

    def kind(self, node: onnx.NodeProto) -> Kind:
        """Whose stage a node belongs to."""
        name = node_id(node)
        kinds: tuple[tuple[Kind, frozenset[str]], ...] = (
            ("foreign", self.foreign), ("control", self.control), ("counted", self.counted),
        )  # fmt: skip
        return next((kind for kind, some in kinds if name in some), "own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Some nodes of a model, in order, with the values that they take and give."""

    nodes: tuple[onnx.NodeProto, ...]
    kind: Kind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def operators(self) -> dict[str, int]:
        """Operators with their numbers of nodes."""
        found: dict[str, int] = {}
        for node in self.nodes:
            found[node.op_type] = found.get(node.op_type, 0) + 1
        return found


def cut(graph: onnx.GraphProto, how: Cut) -> tuple[Stage, ...]:
    """The stages, in the order in which they run."""
    there = {""} | {i.name for i in graph.input} | {t.name for t in graph.initializer}
    there |= {t.values.name for t in graph.sparse_initializer}
    there |= (constants := tensors_of(graph)).keys()
    left = [node for node in graph.node if node_id(node) not in constants]
    groups = list[Group]()
    while left:
        for kind in KINDS:  # control flow when all else has to wait for it
            taken = _ready(left, there, how, kind)[: 1 if kind in SINGLE else None]
            if taken:
                break
        else:
            break
        there |= {name for node in taken for name in node.output}
        ids = set(map(id, taken))
        left = [node for node in left if id(node) not in ids]
        groups.append((kind, taken))
    again = shape_arithmetic(graph, groups, constants)
    wanted = {info.name for info in graph.output}
    made = (_stage(groups, again, number, wanted) for number in range(len(groups)))
    return tuple(stage for stage in made if stage.outputs)


def tensors_of(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """A graph's constants by name."""
    return {t.name: t for t in graph.initializer} | constant_tensors(graph)


def constant_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """What nodes of numbers give, by name: stages have it as they have weights."""
    out = {}
    for node in graph.node:
        for a in node.attribute if node.op_type == "Constant" else ():
            name = node_id(node)
            if a.name == "value":
                out[name] = onnx.TensorProto()
                out[name].CopyFrom(a.t)
                out[name].name = name
            elif a.name in _NUMBERS:
                array = np.array(onnx.helper.get_attribute_value(a), _NUMBERS[a.name])
                out[name] = onnx.numpy_helper.from_array(array, name)
    return out


def node_id(node: onnx.NodeProto) -> str:
    """A node's name here: the first value that it makes."""
    return next(filter(None, node.output), "")


def reads(node: onnx.NodeProto) -> set[str]:
    """The values that a node takes, those of the graphs within it too."""
    return {name for name in _used(node) if name}


def _ready(
    nodes: Sequence[onnx.NodeProto], there: set[str], how: Cut, kind: Kind
) -> list[onnx.NodeProto]:
    """The nodes of one kind that can run now, one after the other."""
    here, taken = set[str](), list[onnx.NodeProto]()
    for node in nodes:
        name = node_id(node)
        if how.kind(node) != kind:
            continue
        needed = reads(node)
        late = {value for other, value in how.known_first if other == name}
        if needed <= there | here and not late & here:
            taken.append(node)
            here |= set(node.output)
    return taken


def _stage(
    groups: Sequence[Group], again: Sequence[list[onnx.NodeProto]], number: int, wanted: set[str]
) -> Stage:
    """`again`: by group, nodes of groups before it that it runs for itself, too."""
    kind, nodes = groups[number]
    every = [*again[number], *nodes]
    made = {name for node in every for name in node.output if name}
    taken = dict.fromkeys(name for node in every for name in sorted(reads(node)))
    later = set(wanted)
    for (_, others), more in zip(groups[number + 1 :], again[number + 1 :], strict=True):
        own = {name for node in more for name in node.output}
        later |= {name for node in (*more, *others) for name in reads(node)} - own
    given = dict.fromkeys(n for node in nodes for n in node.output if n in later)
    return Stage(
        nodes=tuple(every),
        kind=kind,
        inputs=tuple(name for name in taken if name not in made),
        outputs=tuple(given),
    )


def read_within(graph: onnx.GraphProto) -> set[str]:
    """The values that a graph within a node takes from around it."""
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    own |= {name for inner in graph.node for name in inner.output}
    used = {name for inner in graph.node for name in _used(inner)}
    used |= {info.name for info in graph.output}
    return used - own - {""}


def _used(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
        for graph in graphs:
            yield from read_within(graph)


def part_of(
    model: onnx.ModelProto, stage: Stage, tensors: Mapping[str, onnx.TensorProto]
) -> onnx.ModelProto:
    """A stage as a model whose inputs are not declared yet; `tensors`: the model's constants."""
    part = onnx.ModelProto(ir_version=model.ir_version)
    part.opset_import.extend(model.opset_import)
    part.graph.name = model.graph.name or "model"
    part.graph.node.extend(stage.nodes)
    part.graph.initializer.extend(tensors[n] for n in stage.inputs if n in tensors)
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in stage.outputs)
    return part
