"""Layouts of a graph's values that are not dense with their channels last.

In: a graph, and layouts of some of its values. Out: the graph with what these layouts need:
copies, and channels of zeros with the weights that meet them. Stride padding is left to `storage`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import ints
from autotune.placement.stride_padding import rows_together
from autotune.types import Array, Attr, TensorType, freeze_attrs


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLayout:
    """Where the elements of a value [n, rows, columns, channels] lie; without any of these it is
    dense."""

    padding: int = 0
    """Elements left free after the channels of a point."""
    copied: bool = False
    """The value is dense, and the windows over it read a copy that lies like this."""
    zeros: int = 0
    """Channels of zeros behind the others; the convolutions that read it have as many weights."""

    def __str__(self) -> str:
        parts = [f"{self.zeros} channel{'s' * (self.zeros > 1)} of zeros"] if self.zeros else []
        parts += [f"points {self.padding} elements further apart"] if self.padding else []
        return ("in a copy, " if self.copied else "") + (" and ".join(parts) or "dense")


DENSE = ValueLayout()
Layouts = Mapping[str, ValueLayout]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rearranged:
    """A graph whose values have layouts. `origins`: new value -> the value it stands for."""

    graph: Graph
    paddings: Mapping[str, int]
    origins: Mapping[str, str]


def rearrange(graph: Graph, layouts: Layouts) -> Rearranged:
    """The graph with these layouts. Raises ValueError for zeros that some reader cannot take."""
    work = _Work(graph)
    paddings: dict[str, int] = {}
    for value, layout in layouts.items():
        if layout.zeros:
            work.widen(value, layout.zeros)
        held = value
        if layout.copied:
            held = work.copy(value, lambda node, v: rows_together(node, v, work.types) > 1)
        if layout.padding:
            paddings[held] = layout.padding
    graph = dataclasses.replace(
        graph, nodes=tuple(work.nodes), types=work.types, constants=work.constants
    )
    return Rearranged(graph=graph, paddings=paddings, origins=work.origins)


def takes_zeros(graph: Graph, value: str) -> bool:
    """Whether channels may be added to a value: it is read by convolutions over all channels with
    constant weights, and by slices that such convolutions read."""
    if any(value == output for _, output in graph.outputs):
        return False
    readers = [n for n in graph.nodes if value in n.inputs]
    return bool(readers) and all(
        _convolves(n, value, graph) or (_slices_points(n, graph) and takes_zeros(graph, n.output))
        for n in readers
    )


def _convolves(node: Node, value: str, graph: Graph) -> bool:
    ours = node.op == "conv2d" and node.inputs[0] == value and node.inputs[1] in graph.constants
    return ours and node.attributes.get("groups", 1) == 1


def _slices_points(node: Node, graph: Graph) -> bool:
    """Whether it takes every channel of the points that it takes."""
    if node.op != "slice":
        return False
    return graph.types[node.inputs[0]].shape[-1:] == graph.types[node.output].shape[-1:]


class _Work:
    """A graph being changed."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = list(graph.nodes)
        self.types: dict[str, TensorType] = dict(graph.types)
        self.constants: dict[str, Array] = dict(graph.constants)
        self.origins: dict[str, str] = {}
        self._graph = graph

    def copy(self, value: str, reads: Callable[[Node, str], bool]) -> str:
        """A copy of the value for the nodes that `reads` says."""
        return self._insert("copy", value, self.types[value], reads)

    def widen(self, value: str, zeros: int) -> None:
        """Channels of zeros for all readers of the value."""
        if not takes_zeros(self._graph, value):
            raise ValueError(f"not every reader of {value} can take channels of zeros")
        pads = freeze_attrs({"pads": (0,) * 7 + (zeros,), "value": 0.0})
        type_ = _wider(self.types[value], zeros)
        self._follow(self._insert("pad", value, type_, lambda *_: True, pads), zeros)

    def _follow(self, value: str, zeros: int) -> None:
        """Let the readers of a widened value take its zeros."""
        for place, node in enumerate(self.nodes):
            if value not in node.inputs:
                continue
            if node.op == "slice":
                self.types[node.output] = _wider(self.types[node.output], zeros)
                stops = (*ints(node, "stops")[:-1], self.types[node.output].shape[-1])
                attrs = freeze_attrs({**node.attributes, "stops": stops})
                self.nodes[place] = dataclasses.replace(node, attrs=attrs)
                self._follow(node.output, zeros)
            else:
                weights = self._widened(node.inputs[1], zeros)
                inputs = (node.inputs[0], weights, *node.inputs[2:])
                self.nodes[place] = dataclasses.replace(node, inputs=inputs)

    def _widened(self, weights: str, zeros: int) -> str:
        name = f"{weights}.wide{zeros}"
        array = np.pad(self.constants[weights], ((0, 0), (0, 0), (0, zeros), (0, 0)))
        self.constants[name] = array
        self.types[name] = dataclasses.replace(self.types[weights], shape=array.shape)
        return name

    def _insert(
        self,
        op: str,
        value: str,
        type_: TensorType,
        reads: Callable[[Node, str], bool],
        attrs: tuple[tuple[str, Attr], ...] = (),
    ) -> str:
        """op(value) in front of the first of its readers that `reads` says, for all of these."""
        name = f"{value}.laid"
        places = [p for p, n in enumerate(self.nodes) if value in n.inputs and reads(n, value)]
        for place in places:
            node = self.nodes[place]
            inputs = tuple(name if i == value else i for i in node.inputs)
            self.nodes[place] = dataclasses.replace(node, inputs=inputs)
        label = f"{op} of {value}"
        made = Node(op=op, inputs=(value,), output=name, name=label, attrs=attrs)
        self.nodes.insert(places[0], made)
        self.types[name] = type_
        self.origins[name] = value
        return name


def _wider(type_: TensorType, zeros: int) -> TensorType:
    shape = type_.shape
    return dataclasses.replace(type_, shape=(*shape[:-1], shape[-1] + zeros))
