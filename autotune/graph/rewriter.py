"""The rewriter that passes are written with. In: a graph. Out: a new graph, built node by node.

A pass walks the old graph's nodes in order and says for each what stands for its output in the new
one: itself (`keep`), something emitted instead, or another value. `finish` drops what no output
needs, so a pass never deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.ops import OPS
from autotune.sizes import is_size
from autotune.types import Array, Attr, TensorType, freeze_attrs, is_turned

COMMUTATIVE = frozenset({"add", "mul", "max", "min", "eq", "ne", "and", "or"})


def kind_of(op: str) -> str:
    """contraction | pool | row | elementwise | data | view."""
    return OPS.get(op).kind


def ints(node: Node, attr: str) -> tuple[int, ...]:
    """An attribute that is a tuple of integers."""
    value = node.attributes[attr]
    assert isinstance(value, tuple)
    return value


def use_counts(graph: Graph) -> Counter[str]:
    """How often each value is read: by nodes and as an output of the graph."""
    uses = Counter(i for node in graph.nodes for i in node.inputs)
    uses.update(value for _, value in graph.outputs)
    return uses


def needed(nodes: Sequence[Node], outputs: Sequence[tuple[str, str]]) -> set[str]:
    """Values that the outputs of a graph depend on."""
    values = {value for _, value in outputs}
    for node in reversed(nodes):
        if node.output in values:
            values.update(node.inputs)
    return values


def rewritten(graph: Graph, instead: Callable[[Rewriter, Node], str | None], *ops: str) -> Graph:
    """The graph with another value for the output of each node, of these operators if any are
    named, for which `instead` gives one; without nodes that no output needs."""
    new, live = Rewriter(graph), needed(graph.nodes, graph.outputs)
    for node in graph.nodes:
        asked = node.output in live and (not ops or node.op in ops)
        value = instead(new, node) if asked else None
        if value is None:
            new.keep(node)
        else:
            new.replace(node.output, value)
    return new.finish()


class Rewriter:
    """A new graph in the making. Names of the old graph are "old", of the new one "new"."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.types: dict[str, TensorType] = dict(graph.inputs)
        self.constants: dict[str, Array] = {}
        self._nodes: list[Node] = []
        self._producers: dict[str, Node] = {}
        self._new: dict[str, str] = {}
        self._uses = use_counts(graph)
        self._new_uses: Counter[str] = Counter()
        self._taken = set(graph.types)
        for name, _ in graph.inputs:
            self.replace(name, name)
        for name, array in graph.constants.items():
            self.constants[name] = array
            self.types[name] = graph.types[name]
            self.replace(name, name)

    def replace(self, old: str, new: str) -> None:
        """From now on `new` stands for `old`."""
        self._new[old] = new
        self._new_uses[new] += self._uses[old]

    def new(self, old: str) -> str:
        return self._new[old]

    def inputs(self, node: Node) -> tuple[str, ...]:
        """New names of an old node's inputs."""
        return tuple(self._new[i] for i in node.inputs)

    def keep(self, node: Node) -> str:
        """The old node over the new inputs, under its old output name."""
        inputs = self.inputs(node)
        alike = all(
            self.types[i] == self.graph.types[o] for i, o in zip(inputs, node.inputs, strict=True)
        )
        if inputs != node.inputs:
            node = Node(
                op=node.op, inputs=inputs, output=node.output, attrs=node.attrs, name=node.name
            )
        # Most nodes of most passes: nothing is to be inferred again.
        kind = self.graph.types[node.output] if alike else self._inferred(node)
        self.replace(node.output, self._taken_over(node, kind))
        return node.output

    def emit(self, op: str, inputs: Sequence[str], like: Node, **attrs: Attr) -> str:
        """A node over new values, named in messages as `like` is; returns its output."""
        output = self._fresh(like.output)
        return self._add(op, tuple(inputs), freeze_attrs(attrs), like.name, output)

    def constant(self, array: Array, stem: str) -> str:
        """A new constant; its name derives from `stem`."""
        name = self._fresh(stem)
        self.constants[name] = array if is_turned(array) else np.asarray(array, order="C")
        self.types[name] = TensorType(dtype=array.dtype.name, shape=tuple(array.shape))
        return name

    def shape(self, new: str) -> tuple[int, ...]:
        return self.types[new].shape

    def producer(self, new: str, *ops: str) -> Node | None:
        """The new node that computes a new value, by one of these operators if any are named; None
        for inputs and constants."""
        node = self._producers.get(new)
        return None if node is not None and ops and node.op not in ops else node

    def known(self, new: str) -> Array | None:
        """The array of a constant or a `scalar` node; None where only a run can tell."""
        if new in self.constants:
            return self.constants[new]
        node = self._producers.get(new)
        if node is None or node.op != "scalar":
            return None
        attrs = node.attributes
        return None if is_size(attrs["value"]) else np.asarray(attrs["value"], str(attrs["dtype"]))

    def used_once(self, new: str) -> bool:
        """True where the old graph reads what `new` stands for at most once."""
        return self._new_uses[new] <= 1

    def finish(self) -> Graph:
        """The new graph, without what no output needs. Its inputs all stay: callers name them."""
        outputs = tuple((public, self._new[value]) for public, value in self.graph.outputs)
        live = needed(self._nodes, outputs)
        nodes = tuple(node for node in self._nodes if node.output in live)
        live.update(name for name, _ in self.graph.inputs)
        return Graph(
            name=self.graph.name,
            inputs=self.graph.inputs,
            outputs=outputs,
            nodes=nodes,
            constants={n: a for n, a in self.constants.items() if n in live},
            types={n: t for n, t in self.types.items() if n in live},
            declared=self.graph.declared,
        )

    def _add(
        self,
        op: str,
        inputs: tuple[str, ...],
        attrs: tuple[tuple[str, Attr], ...],
        name: str,
        output: str,
    ) -> str:
        node = Node(op=op, inputs=inputs, output=output, attrs=attrs, name=name)
        return self._taken_over(node, self._inferred(node))

    def _inferred(self, node: Node) -> TensorType:
        return OPS.get(node.op).infer([self.types[i] for i in node.inputs], dict(node.attrs))

    def _taken_over(self, node: Node, kind: TensorType) -> str:
        self.types[node.output] = kind
        self._nodes.append(node)
        self._producers[node.output] = node
        return node.output

    def _fresh(self, stem: str) -> str:
        number = 1
        while (name := f"{stem}.{number}") in self._taken:
            number += 1
        self._taken.add(name)
        return name
