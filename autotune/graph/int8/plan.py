"""The plan of a quantization: the values and products that become bytes. In: a float32 graph and
the ranges of its values. Out: a plan.

A contraction with constant weights multiplies bytes if its reduction can be cut in fours. What it
reads is kept as bytes, and so is what that is a view, a pool of maxima or a part of; values that
are the same elements share their steps. Of two values that meet in a sum, the one that is there
first is kept as bytes too: the other one is added to where it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.graph.int8.calibrate import Range
from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import use_counts
from autotune.types import Array

SAME_ELEMENTS = frozenset({"reshape", "transpose", "slice", "concat", "max_pool2d", "copy"})
"""Ops whose results are elements of their operands, at least where bytes have a zero."""
PASSED = frozenset({"add", "relu", "clip", "mul", "sub"})
"""Ops between a contraction and the sum that it ends in."""
NEIGHBOURS = 4
"""Products of bytes that an instruction sums (vpdpbusd, sdot)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The scale of bytes: number = (byte - zero) * step."""

    step: float
    zero: int

    @property
    def low(self) -> float:
        return -self.zero * self.step

    @property
    def high(self) -> float:
        return (255 - self.zero) * self.step

    @staticmethod
    def of(found: Range) -> Steps:
        """Steps over a range and 0, which is met exactly."""
        low, high = min(found.low, 0.0), max(found.high, 0.0)
        step = (high - low) / 255 or 1.0
        return Steps(step=step, zero=min(255, round(-low / step)))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationPlan:
    """`contractions`: outputs of the nodes that multiply bytes; `steps`: of values kept as bytes;
    `exact`: those of them that are kept as floats, too, for whoever does not multiply bytes;
    `units`: per output channel the number that a weight of 1 stands for, where it is given;
    `own`: the steps are the model's own, so that nobody reads what a value was before rounding."""

    contractions: frozenset[str]
    steps: Mapping[str, Steps]
    exact: frozenset[str] = frozenset()
    units: Mapping[str, Array] = field(default_factory=dict)
    own: bool = False


def plan(
    graph: Graph,
    ranges: Mapping[str, Range],
    keep: frozenset[str] = frozenset(),
    exact: frozenset[str] = frozenset(),
) -> QuantizationPlan:
    """`keep`: outputs of contractions that stay in float32; `exact`: values that bytes spoil."""
    return _Planner(graph, ranges, keep, exact).plan()


def reduction_of(graph: Graph, node: Node) -> int:
    """Length of the innermost reduction of a contraction with constant weights; 0 for others."""
    if node.op not in ("conv2d", "matmul") or node.inputs[1] not in graph.constants:
        return 0
    data, weights = (graph.types[v] for v in node.inputs)
    if node.inputs[0] in graph.constants or weights.dtype != "float32":
        return 0
    if node.op == "conv2d":
        return weights.shape[2]
    plain = len(weights.shape) == 2 and not node.attributes.get("transpose_b")
    return data.shape[-1] if plain else 0


def multiplies_bytes(graph: Graph, node: Node) -> bool:
    """Whether a contraction's reduction can be cut in fours."""
    length, groups = reduction_of(graph, node), node.attributes.get("groups", 1)
    if length == 1 and groups == graph.types[node.output].shape[-1]:
        return True
    if node.op == "conv2d" and groups == 1:
        # Channels are added where they are few: pixels of an image.
        return length > 0 and (length % NEIGHBOURS == 0 or length == NEIGHBOURS - 1)
    return length > 0 and length % NEIGHBOURS == 0


class _Planner:
    def __init__(
        self,
        graph: Graph,
        ranges: Mapping[str, Range],
        keep: frozenset[str],
        exact: frozenset[str],
    ) -> None:
        self.graph, self.ranges, self.exact = graph, ranges, exact
        self.producer = {node.output: node for node in graph.nodes}
        self.position = {node.output: i for i, node in enumerate(graph.nodes)}
        self.uses = use_counts(graph)
        self.same: dict[str, str] = {}
        self.bytes: set[str] = set()
        self.contractions = frozenset(
            n.output for n in graph.nodes if n.output not in keep and self._multiplies_bytes(n)
        )

    def plan(self) -> QuantizationPlan:
        for output in self.contractions:
            self._keep(self.producer[output].inputs[0])
        for node in self.graph.nodes:
            self._keep_first_of_sum(node)
        groups: dict[str, Range] = {}
        for value in self.bytes:
            root = self._root(value)
            found = self.ranges[value]
            groups[root] = groups[root].union(found) if root in groups else found
        steps = {root: Steps.of(found) for root, found in groups.items()}
        return QuantizationPlan(
            contractions=self.contractions,
            steps={value: steps[self._root(value)] for value in self.bytes},
            exact=self.exact & self.bytes,
        )

    def _multiplies_bytes(self, node: Node) -> bool:
        return multiplies_bytes(self.graph, node) and node.inputs[0] in self.ranges

    def _root(self, value: str) -> str:
        while value in self.same:
            value = self.same[value]
        return value

    def _keep(self, value: str) -> None:
        """Keep a value as bytes, and what it takes its elements from."""
        if value in self.bytes or value not in self.ranges:
            return
        self.bytes.add(value)
        node = self.producer.get(value)
        if node is None or node.op not in SAME_ELEMENTS:
            return
        for operand in node.inputs:
            if operand in self.graph.constants:
                continue
            self._keep(operand)
            ours, theirs = self._root(value), self._root(operand)
            if ours != theirs:
                self.same[ours] = theirs

    def _keep_first_of_sum(self, node: Node) -> None:
        if node.op != "add" or any(i in self.graph.constants for i in node.inputs):
            return
        shapes = {self.graph.types[v].shape for v in (*node.inputs, node.output)}
        sources = [self._contraction_behind(v) for v in node.inputs]
        if len(shapes) != 1 or not any(sources):
            return
        places = [self.position.get(v, -1) for v in node.inputs]
        first = 0 if sources[0] is None or (sources[1] and places[0] < places[1]) else 1
        if sources[first] is not None and node.inputs[first] not in self.exact:
            self._keep(node.inputs[first])

    def _contraction_behind(self, value: str) -> str | None:
        """The contraction of bytes that ends in this value by way of its epilogue."""
        while True:
            if value in self.contractions:
                return value
            node = self.producer.get(value)
            if node is None or node.op not in PASSED or self.uses[value] != 1:
                return None
            varying = [i for i in node.inputs if i not in self.graph.constants]
            if len(varying) != 1:
                return None
            value = varying[0]
