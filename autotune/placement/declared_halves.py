"""Inputs and outputs that callers have as float16, as that. In: a graph after the other passes,
which holds them as float32. Out: the graph with conversions at its ends, which kernels around them
make as they read and write; numpy would take some nanoseconds for each element.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import rewritten
from autotune.target import Target
from autotune.types import TensorType

HALF, WIDE = "float16", "float32"


def converts_halves(target: Target) -> bool:
    """Whether a CPU has instructions that turn vectors of float16 into float32, and back."""
    wide = not {"+f16c", "+avx512f"}.isdisjoint(target.features.split(","))
    return target.takes_lanes or (target.kind == "cpu" and wide)


def as_declared(graph: Graph) -> Graph:
    """The graph with float16 where its inputs and outputs are declared to be that."""
    declared = dict(graph.declared)
    outputs = {
        public: value for public, value in graph.outputs
        if _is_short(declared, public, graph.types[value])
    }  # fmt: skip
    inputs = {name for name, kind in graph.inputs if _is_short(declared, name, kind)}
    if not inputs and not outputs:
        return graph
    fresh = (f"half{i}" for i in itertools.count())
    names = (name for name in fresh if name not in graph.types)
    types = {n: _as(k, HALF) if n in inputs else k for n, k in graph.types.items()}
    wide = {name: next(names) for name in sorted(inputs)}
    before = [_converted(types, name, value, WIDE) for name, value in wide.items()]
    nodes = [
        dataclasses.replace(node, inputs=tuple(wide.get(i, i) for i in node.inputs))
        for node in graph.nodes
    ]
    short = {public: next(names) for public in outputs}
    rounded = {n.output: n.inputs[0] for n in nodes if _rounds(n)}
    behind = [
        _converted(types, rounded.get(value, wide.get(value, value)), short[public], HALF)
        for public, value in outputs.items()
    ]
    made = dataclasses.replace(
        graph,
        inputs=tuple((name, types[name]) for name, _ in graph.inputs),
        outputs=tuple((p, short.get(p, wide.get(v, v))) for p, v in graph.outputs),
        nodes=(*before, *nodes, *behind),
        types=types,
        declared=tuple((n, d) for n, d in graph.declared if n not in inputs | outputs.keys()),
    )
    return rewritten(made, lambda *_: None)


def _is_short(declared: Mapping[str, str], name: str, kind: TensorType) -> bool:
    return declared.get(name) == HALF and kind.dtype == WIDE and kind.size != 0


def _rounds(node: Node) -> bool:
    """Whether a node rounds as the conversion does."""
    attrs = node.attributes
    plain = attrs.get("kind", HALF) == HALF and not attrs.get("saturate", 0)
    return node.op == "narrow_float" and plain


def _as(kind: TensorType, dtype: str) -> TensorType:
    return dataclasses.replace(kind, dtype=dtype)


def _converted(types: dict[str, TensorType], value: str, made: str, dtype: str) -> Node:
    types[made] = _as(types[value], dtype)
    return Node(op=f"to_{dtype}", inputs=(value,), output=made, name=value)
