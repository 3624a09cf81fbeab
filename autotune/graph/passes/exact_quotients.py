"""Products whose small values are divided by are summed as the model says.

In: a graph ready to partition. Out: the same; convolutions and products that a quotient's
denominator is made of have the attribute `exact`. Winograd's and Strassen's algorithms take away
what they have added: where a row of the result is zero, theirs is as large as the rounding of the
other rows, and a vector divided by its own length (`x / max(|x|, 1e-12)`) then has a direction
where it should be zero. Quotients by what is surely larger than that rounding, as `x + 1`, are
left alone, and those by one number for all: rounding is small beside the largest of all values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.sizes import is_size
from autotune.types import EXACT, Array

SURE = 5e-6
"""What is at least as large cannot be rounding alone: errors of algorithms are about that share of
the largest value, which is about 1 or more behind layers that are normalised. Half of the usual
1e-5, which is a little less in float32."""
SURE_SQUARE = 1e-8
"""The same of what a root is taken of."""
DENOMINATORS = {
    "div": (1, SURE),
    "reciprocal": (0, SURE),
    "rsqrt": (0, SURE_SQUARE),
    "log": (0, SURE),
}
"""Operators -> which input they magnify where it is small, and what is not small."""
ROOTS = ("sqrt", "pow")
CONTRACTIONS = ("conv2d", "matmul")
SMALL_STAYS_SMALL = frozenset((
    "abs", "neg", "relu", "leaky_relu", "sqrt", "pow", "mul", "div", "clip", "max", "min", "add",
    "sub", "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reshape", "transpose",
    "slice", "expand", "concat", "pad", "gather", "copy", "tanh", "erf", "sin", "silu", "gelu",
    "gelu_erf", "gelu_tanh",
))  # fmt: skip
"""Operators whose result is small where their inputs are."""
SUMS = ("add", "sub", "max")
"""Those that a second operand keeps from being small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactQuotients:
    """x / sqrt(reduce_sum(x * x)) with x = matmul(a, b) -> the same with matmul {exact}."""

    def run(self, graph: Graph) -> Graph:
        made = {node.output: node for node in graph.nodes}
        found: set[str] = set()
        seen: set[tuple[str, float]] = set()
        waiting: list[tuple[str, float]] = []
        for node in graph.nodes:
            if node.op in DENOMINATORS:
                place, sure = DENOMINATORS[node.op]
                waiting.append((node.inputs[place], sure))
            elif node.op == "pow" and (power := _known(graph, made, node.inputs[1])) is not None:
                waiting += [(node.inputs[0], SURE_SQUARE)] * bool((power < 0).all())
        while waiting:
            now = name, sure = waiting.pop()
            if now in seen or name not in made or _is_one_number(graph, name):
                continue
            seen.add(now)
            if made[name].op in CONTRACTIONS:
                found.add(name)
            else:
                sure = SURE_SQUARE if made[name].op in ROOTS else sure
                waiting += [(i, sure) for i in _small_with(graph, made, made[name], sure)]
        nodes = tuple(_exact(node) if node.output in found else node for node in graph.nodes)
        return dataclasses.replace(graph, nodes=nodes) if found else graph


def _is_one_number(graph: Graph, name: str) -> bool:
    return all(extent == 1 for extent in graph.types[name].shape)


def _small_with(graph: Graph, made: Mapping[str, Node], node: Node, sure: float) -> Sequence[str]:
    """Inputs that make a node's result smaller than `sure` where they are."""
    known = [c for i in node.inputs if (c := _known(graph, made, i)) is not None]
    computed = [i for i in node.inputs if _known(graph, made, i) is None]
    least = node.attributes.get("min", 0.0)
    if node.op not in SMALL_STAYS_SMALL or (isinstance(least, float) and least >= sure):
        return ()
    large = len(computed) > 1 or any((abs(c) >= sure).all() for c in known)
    return () if node.op in SUMS and large else computed


def _known(graph: Graph, made: Mapping[str, Node], name: str) -> Array | None:
    """A constant's values, or a number's."""
    if name in graph.constants:
        return graph.constants[name]
    node = made.get(name)
    if node is None or node.op != "scalar" or is_size(node.attributes["value"]):
        return None
    return np.asarray(node.attributes["value"])


def _exact(node: Node) -> Node:
    return dataclasses.replace(node, attrs=tuple(sorted({**node.attributes, EXACT: 1}.items())))
