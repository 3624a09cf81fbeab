"""Products whose small values are divided by are summed as the model says.

In: a graph ready to partition. Out: the same; convolutions and products that a quotient's
denominator is made of have the attribute `exact`. Winograd's and Strassen's algorithms take away
what they have added: where a row of the result is zero, theirs is as large as the rounding of the
other rows, and a vector divided by its own length (`x / max(|x|, 1e-12)`) then has a direction
where it should be zero. Quotients by what is surely larger than that rounding, as `x + 1`, are
left alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.types import EXACT, Array

SURE = 1e-5
"""What is at least as large cannot be rounding alone: errors of algorithms are below this share of
the largest value, which is about 1 or more behind layers that are normalised."""
DENOMINATORS = {"div": 1, "reciprocal": 0, "rsqrt": 0, "log": 0}
"""Operators -> which input they magnify where it is small."""
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
        seen: set[str] = set()
        waiting = [n.inputs[DENOMINATORS[n.op]] for n in graph.nodes if n.op in DENOMINATORS]
        while waiting:
            name = waiting.pop()
            if name in seen or name not in made:
                continue
            seen.add(name)
            if made[name].op in CONTRACTIONS:
                found.add(name)
            else:
                waiting += _small_with(graph, made, made[name])
        nodes = tuple(_exact(node) if node.output in found else node for node in graph.nodes)
        return dataclasses.replace(graph, nodes=nodes) if found else graph


def _small_with(graph: Graph, made: Mapping[str, Node], node: Node) -> Sequence[str]:
    """Inputs that make a node's result small where they are."""
    known = [c for i in node.inputs if (c := _known(graph, made, i)) is not None]
    computed = [i for i in node.inputs if _known(graph, made, i) is None]
    least = node.attributes.get("min", 0.0)
    if node.op not in SMALL_STAYS_SMALL or (isinstance(least, float) and least >= SURE):
        return ()
    sure = len(computed) > 1 or any((abs(c) >= SURE).all() for c in known)
    return () if node.op in SUMS and sure else computed


def _known(graph: Graph, made: Mapping[str, Node], name: str) -> Array | None:
    """A constant's values, or a number's."""
    if name in graph.constants:
        return graph.constants[name]
    node = made.get(name)
    return np.asarray(node.attributes["value"]) if node and node.op == "scalar" else None


def _exact(node: Node) -> Node:
    return dataclasses.replace(node, attrs=tuple(sorted({**node.attributes, EXACT: 1}.items())))
