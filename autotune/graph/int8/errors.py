"""Quantization noise, node by node. In: a graph, a sample of its inputs and a plan. Out: signal to
noise ratios in decibels, where 6 are a bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from autotune.graph.feeds import Feeds
from autotune.graph.int8.lower import weight_bytes
from autotune.graph.int8.plan import QuantizationPlan, Steps
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.ops import OPS
from autotune.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Decibels by value: of contractions done on bytes, and of values kept as bytes."""

    contractions: Mapping[str, float]
    values: Mapping[str, float]


def losses(graph: Graph, feeds: Feeds, plan: QuantizationPlan) -> Losses:
    """Each loss by itself: everything before is computed in float32."""
    measured = _Measured(graph, plan)
    for name, _ in graph.inputs:
        measured.see(name, feeds[name])
    run_graph(graph, feeds, "float32", measured.see)
    return Losses(contractions=measured.contractions, values=measured.values)


def decibels(exact: Array, got: Array) -> float:
    """Signal to noise ratio; infinite where there is no noise."""
    signal = float(np.square(exact, dtype=np.float64).sum())
    noise = float(np.square(exact - got, dtype=np.float64).sum())
    if noise == 0:
        return float("inf")
    return float(10 * np.log10(max(signal, 1e-300) / noise))


def rounded(array: Array, steps: Steps) -> Array:
    """The numbers nearest to an array's that bytes can say, in float32."""
    counts = np.clip(np.rint(array / steps.step) + steps.zero, 0, 255)
    return np.asarray((counts - steps.zero) * steps.step, np.float32)


@dataclass(kw_only=True)
class _Held:
    array: Array
    readers: int


@dataclass
class _Measured:
    graph: Graph
    plan: QuantizationPlan
    contractions: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = {n.output: n for n in self.graph.nodes if n.output in self.plan.contractions}
        self.held: dict[str, _Held] = {}

    def see(self, name: str, array: Array) -> None:
        steps = self.plan.steps.get(name)
        if steps is not None:
            near = rounded(array, steps)
            self.values[name] = decibels(array, near)
            count = sum(n.inputs[0] == name for n in self.nodes.values())
            if count:
                self.held[name] = _Held(array=near, readers=count)
        node = self.nodes.get(name)
        if node is not None:
            held = self.held[node.inputs[0]]
            counts, unit = weight_bytes(self.graph.constants[node.inputs[1]])
            weights = (counts * unit).astype(np.float32)
            got = OPS.get(node.op).reference([held.array, weights], node.attributes)
            self.contractions[name] = decibels(array, got)
            held.readers -= 1
            if not held.readers:
                del self.held[node.inputs[0]]
