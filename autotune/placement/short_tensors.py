"""Tensors between kernels as short floats. In: a graph after the other passes. Out: the graph with
conversions at the ends of kernels.

What a kernel computes is rounded when it is stored, and widened where it is loaded: it takes half
the memory, and products get their operands as tensor cores want them. Outputs of the model stay.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from autotune.graph.fusion import Group, fuse
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.canonical_operands import CanonicalOperands
from autotune.graph.rewriter import Rewriter, kind_of
from autotune.placement.storage import place
from autotune.types import TensorType

_READING = ("contraction", "pool")
"""Kinds of operators that read short floats themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTensors:
    """y = matmul(x, w); z = relu(y); u = matmul(z, w)   ->
    y = matmul(x, w); z = to_bfloat16(relu(y)); u = matmul(z, w)

    for every value that a kernel stores, and inputs, as long as no conversion would be a kernel of
    its own: not where a gather reads it, say.
    """

    dtype: str

    def run(self, graph: Graph) -> Graph:
        graph = CanonicalOperands().run(graph)
        public = {value for _, value in graph.outputs}
        stored = {g.output for g in _groups(graph)} | {name for name, _ in graph.inputs}
        # Copies that placement makes are no values of the graph.
        known = (stored & graph.types.keys()) - public
        chosen = {v for v in known if self._fits(graph.types[v])}
        while chosen:
            shortened = _Shortened(graph, frozenset(chosen), self.dtype)
            alone = shortened.alone()
            if not alone:
                return shortened.graph
            chosen -= alone
        return graph

    def _fits(self, kind: TensorType) -> bool:
        return kind.dtype == "float32" and kind.size > 0 and bool(kind.shape)


class _Shortened:
    """The graph with some values short. `short` has the new names of values that are, by their old
    ones, and `roots` which of the chosen ones they are made of."""

    def __init__(self, graph: Graph, chosen: frozenset[str], dtype: str) -> None:
        self._chosen, self._dtype = chosen, dtype
        self._public = {value for _, value in graph.outputs}
        self._short: dict[str, str] = {}
        self._roots: dict[str, frozenset[str]] = {}
        inputs = tuple((name, self._input(name, kind)) for name, kind in graph.inputs)
        types = {**graph.types, **dict(inputs)}
        self._new = Rewriter(dataclasses.replace(graph, inputs=inputs, types=types))
        for node in graph.nodes:
            self._add(node)
        self.graph = self._new.finish()

    def alone(self) -> set[str]:
        """The chosen values whose conversion is all that some kernel does."""
        found: set[str] = set()
        for group in _groups(self.graph):
            nodes = [n for n in group.nodes if n.op != "scalar"]
            if all(n.op in ("to_float32", f"to_{self._dtype}") for n in nodes):
                found.update(*(self._roots.get(n.output, frozenset()) for n in nodes))
        return found

    def _input(self, name: str, kind: TensorType) -> TensorType:
        if name not in self._chosen:
            return kind
        self._short[name] = name
        self._roots[name] = frozenset((name,))
        return TensorType(dtype=self._dtype, shape=kind.shape)

    def _add(self, node: Node) -> None:
        kind, new = kind_of(node.op), self._new
        inner = kind == "view" and node.output not in self._public
        if inner and node.inputs and all(i in self._short for i in node.inputs):
            inputs = [self._short[i] for i in node.inputs]
            output = new.emit(node.op, inputs, node, **node.attributes)
            roots = frozenset[str]().union(*(self._roots[i] for i in inputs))
            self._keep(node.output, output, roots)
            return
        wide = kind not in _READING
        inputs = [self._read(i, node, wide=wide) for i in node.inputs]
        if tuple(inputs) == new.inputs(node) and node.output not in self._chosen:
            new.keep(node)
            return
        output = new.emit(node.op, inputs, node, **node.attributes)
        new.replace(node.output, output)
        if node.output in self._chosen:
            short = new.emit(f"to_{self._dtype}", [output], node)
            self._keep(node.output, short, frozenset((node.output,)))
            self._roots[short] = frozenset((node.output,))

    def _keep(self, old: str, new: str, roots: frozenset[str]) -> None:
        """`new` is the short form of an old value; those who cannot read it widen it."""
        self._short[old] = new
        self._roots[new] = roots
        self._new.replace(old, new)

    def _read(self, value: str, node: Node, *, wide: bool) -> str:
        """What a node reads: of short values, floats that it makes itself if it wants such."""
        if value not in self._short:
            return self._new.new(value)
        short = self._short[value]
        if not wide:
            return short
        widened = self._new.emit("to_float32", [short], node)
        self._roots[widened] = self._roots[short]
        return widened


def _groups(graph: Graph) -> tuple[Group, ...]:
    """The kernels that the graph is cut into."""
    placed = place(graph)
    return fuse(placed.graph, placed.kernels, attention=False)
