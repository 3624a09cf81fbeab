"""Models that say by themselves how their values are bytes. In: a graph whose quantized values are
snapped to the numbers that bytes can say (op `snap`). Out: the graph on bytes, by these steps.

conv(snap(x), W) + b, snap   ->   uint8 times int8, requantized in the epilogue. Weights are bytes
where they are whole multiples of one number per output channel. Products that bytes make slower
multiply the snapped numbers themselves, in float32: the same sums but for their rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from autotune.graph.int8.lower import lower
from autotune.graph.int8.plan import SAME_ELEMENTS, QuantizationPlan, Steps, multiplies_bytes
from autotune.graph.int8.quantize import Pays, Slower
from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, kind_of, use_counts
from autotune.types import Array

_SAMPLED = 64
"""Weights of a channel that candidates for its step are tried on first."""
_NEAR = 1e-3
"""How far from a whole multiple a weight may be, in steps: float32 rounds."""


def has_own_steps(graph: Graph) -> bool:
    return any(node.op == "snap" for node in graph.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSteps:
    """A graph on bytes by its own steps; how many of its contractions can multiply bytes, and
    those of them that stay in float32."""

    graph: Graph
    contractions: int = 0
    slower: Slower = field(default_factory=Slower)

    @property
    def none_on_bytes(self) -> bool:
        """True where all of them stay in float32."""
        return 0 < self.contractions == len(self.slower.times)

    def notes(self) -> tuple[str, ...]:
        """A line for people, where some stay in float32."""
        count = len(self.slower.times)
        if not count:
            return ()
        return (
            f"{count} of {self.contractions} quantized products are computed in float32, on the "
            "same numbers: bytes are slower for them",
        )


def by_own_steps(graph: Graph, pays: Pays | None = None) -> OwnSteps:
    """The graph on bytes where its values are snapped; the graph itself where none is. `pays`: a
    choice by time."""
    if not has_own_steps(graph):
        return OwnSteps(graph=graph)
    units, slower = _units(graph), Slower()
    if pays is not None and units:
        slower = pays(graph, lambda g, kept: _lowered(g, units, kept), frozenset(units))
    lowered = _lowered(graph, units, frozenset(slower.times))
    return OwnSteps(graph=lowered, contractions=len(units), slower=slower)


def in_floats(graph: Graph) -> Graph:
    """The graph where no product is one of bytes, though values may lie as bytes."""
    units = _units(graph)
    return _lowered(graph, units, frozenset(units))


def by_snapped_numbers(graph: Graph) -> frozenset[str]:
    """Nodes that read snapped numbers as floats, by their outputs: their steps are given."""
    snapped: set[str] = set()
    found = []
    for node in graph.nodes:
        if node.op == "snap" or (node.op in SAME_ELEMENTS and snapped.issuperset(node.inputs)):
            snapped.add(node.output)
        elif node.inputs and node.inputs[0] in snapped:
            found.append(node.output)
    return frozenset(found)


def _units(graph: Graph) -> dict[str, Array]:
    """What a weight of 1 stands for, of every contraction that can multiply bytes, by output."""
    found, units = _stripped(graph, frozenset()), dict[str, Array]()
    for node in found.graph.nodes:
        if node.inputs and node.inputs[0] in found.steps and multiplies_bytes(found.graph, node):
            weights = found.graph.constants[node.inputs[1]]
            unit = unit_of(weights)
            if unit is not None:
                units[node.output] = of_float32(weights, unit)
    return units


def _lowered(graph: Graph, units: Mapping[str, Array], kept: frozenset[str]) -> Graph:
    """On bytes but for the contractions in `kept`. What these alone read stays snapped floats."""
    found = _stripped(graph, _for_floats_alone(graph, units.keys() - kept))
    weights = {node.output: node.inputs[1] for node in graph.nodes if node.output in units}
    plan = QuantizationPlan(
        contractions=frozenset(units.keys() - kept), steps=found.steps, own=True,
        units={weights[output]: unit for output, unit in units.items()},
    )  # fmt: skip
    return lower(found.graph, plan)


def _for_floats_alone(graph: Graph, on_bytes: Set[str]) -> frozenset[str]:
    """Values that contractions in float32 read, moved or as they are, and none on bytes."""
    floats, multiplied = set[str](), set[str]()
    for node in reversed(graph.nodes):
        for read in (floats, multiplied):
            if node.op in SAME_ELEMENTS and node.output in read:
                read.update(node.inputs)
        if node.output in on_bytes:
            multiplied.add(node.inputs[0])
        elif kind_of(node.op) == "contraction":
            floats.update(node.inputs)
    return frozenset(floats - multiplied)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stripped:
    """A graph whose snapped values are named, rather than computed."""

    graph: Graph
    steps: Mapping[str, Steps]


def _stripped(graph: Graph, kept: frozenset[str]) -> _Stripped:
    """`kept`: values that are snapped as before."""
    new, steps, uses = Rewriter(graph), dict[str, Steps](), use_counts(graph)
    kept |= {value for _, value in graph.outputs}
    outputs = {value for _, value in graph.outputs}
    for node in graph.nodes:
        if node.op != "snap" or node.output in kept:
            made = new.keep(node)
            same = {steps.get(i) for i in new.inputs(node)}
            if node.op in SAME_ELEMENTS and len(same) == 1 and None not in same:
                steps[made] = next(s for s in same if s is not None)
            continue
        (source,), wanted = new.inputs(node), _steps(node)
        apart = uses[node.inputs[0]] > 1 or source in new.constants or source in outputs
        if steps.get(source, None if apart else wanted) != wanted:
            source = new.emit("copy", [source], node)
        steps[source] = wanted
        new.replace(node.output, source)
    made_graph = new.finish()
    known = {v: s for v, s in steps.items() if v in made_graph.types}
    return _Stripped(graph=made_graph, steps=known)


def _steps(node: Node) -> Steps:
    step, zero = (node.attributes[name] for name in ("step", "zero"))
    assert isinstance(step, float)
    assert isinstance(zero, int | float)
    return Steps(step=step, zero=int(zero))


def unit_of(weights: Array) -> Array | None:
    """The number per output channel (the last axis) of which all its weights are whole multiples,
    -128 to 127 times; None where there is none for some channel."""
    flat = weights.reshape(-1, weights.shape[-1]).astype(np.float64)
    largest = np.abs(flat).max(axis=0)
    unit = np.where(largest > 0, largest / 127, 1.0)
    left = np.flatnonzero(~_whole(flat, unit))
    # One step for all channels; then for each channel any count of steps in its largest weight.
    for steps in (127, 128) if left.size else ():
        common = np.full(len(largest), largest.max() / steps)
        if _whole(flat, common).all():
            return common
    few = flat[:: -(-len(flat) // _SAMPLED)]
    for steps in (128, *range(126, 0, -1)):
        tried = largest[left] / steps
        fits = _whole(few[:, left], tried)
        fits[fits] = _whole(flat[:, left[fits]], tried[fits])
        unit[left[fits]] = tried[fits]
        left = left[~fits]
        if not left.size:
            return unit
    return None if left.size else unit


def of_float32(weights: Array, unit: Array) -> Array:
    """The float32 numbers near the units that give exactly these weights as whole multiples, where
    there are such: what the model's own scales are."""
    flat = weights.reshape(-1, weights.shape[-1])
    counts = np.rint(flat / unit)
    out, found = unit.copy(), np.zeros(len(unit), bool)
    for ulps in (0, 1, -1, 2, -2):
        middle = unit.astype(np.float32)
        near = middle + np.float32(ulps) * np.spacing(middle)
        fits = ((counts * near.astype(np.float64)).astype(np.float32) == flat).all(axis=0)
        out[fits & ~found] = near.astype(np.float64)[fits & ~found]
        found |= fits
    return out


def _whole(weights: Array, unit: Array) -> Array:
    """Per channel: whether all its weights are whole multiples of its unit, as int8 holds them."""
    counts = weights / unit
    near = np.abs(counts - np.rint(counts)).max(axis=0, initial=0) < _NEAR
    return np.asarray(near & (counts.max(axis=0, initial=0) < 127.5))
