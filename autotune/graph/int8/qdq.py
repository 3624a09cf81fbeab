"""Models that say by themselves how their values are bytes. In: a graph whose quantized values are
snapped to the numbers that bytes can say (op `snap`). Out: the graph on bytes, by these steps.

conv(snap(x), W) + b, snap   ->   uint8 times int8, requantized in the epilogue. Weights are bytes
where they are whole multiples of one number per output channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.graph.int8.lower import lower
from autotune.graph.int8.plan import SAME_ELEMENTS, QuantizationPlan, Steps, multiplies_bytes
from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter, use_counts
from autotune.types import Array

_SAMPLED = 64
"""Weights of a channel that candidates for its step are tried on first."""
_NEAR = 1e-3
"""How far from a whole multiple a weight may be, in steps: float32 rounds."""


def has_own_steps(graph: Graph) -> bool:
    return any(node.op == "snap" for node in graph.nodes)


def by_own_steps(graph: Graph) -> Graph:
    """The graph on bytes where its values are snapped; the graph itself where none is."""
    if not has_own_steps(graph):
        return graph
    found = _stripped(graph)
    units: dict[str, Array] = {}
    contractions = []
    for node in found.graph.nodes:
        if node.inputs and node.inputs[0] in found.steps and multiplies_bytes(found.graph, node):
            weights = found.graph.constants[node.inputs[1]]
            unit = unit_of(weights)
            if unit is not None:
                unit = of_float32(weights, unit)
                contractions.append(node.output)
                units[node.inputs[1]] = unit
    plan = QuantizationPlan(
        contractions=frozenset(contractions), steps=found.steps, units=units, own=True
    )
    return lower(found.graph, plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stripped:
    """A graph whose snapped values are named, rather than computed."""

    graph: Graph
    steps: Mapping[str, Steps]


def _stripped(graph: Graph) -> _Stripped:
    new, steps, uses = Rewriter(graph), dict[str, Steps](), use_counts(graph)
    outputs = {value for _, value in graph.outputs}
    for node in graph.nodes:
        if node.op != "snap" or node.output in outputs:
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
