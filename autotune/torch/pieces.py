"""A functional ATen graph, compiled: pieces of ours and of PyTorch, one after the other.

In: a graph module as AOTAutograd makes it, what its nodes give, and its weights. Out: a function
of the graph's inputs.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from autotune.errors import ModelError
from autotune.frontend.torch.importer import Values, import_nodes, refusals
from autotune.frontend.torch.sizes import KNOWN, SYMBOLIC, OpenGraphSizes
from autotune.graph.ir import Graph
from autotune.torch.aliases import result_views
from autotune.torch.gain import predicted_gain
from autotune.torch.native import AnyDirectCall, Model, NativePiece
from autotune.torch.numbers import CallNumbers
from autotune.torch.open_piece import OpenPiece
from autotune.torch.split import GraphPiece, split
from autotune.torch.spreads import OpenStrides, open_spreads
from autotune.torch.weight_views import weight_views

Weights = Mapping[fx.Node, torch.Tensor]
CompileGraph = Callable[[Graph | OpenPiece], Model]
Run = Callable[[Sequence[Any]], Sequence[Any]]
_NUMBERS = (bool, int, float, *SYMBOLIC)
_KNOWN_CHECKS = (torch.ops.aten._assert_tensor_metadata.default,)
_CHECKS = (
    torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg,
    torch.ops.aten._assert_scalar.default,
)  # fmt: skip
"""Operators that raise an error where a tensor of one element, or a number, is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPlan:
    """A graph cut into pieces, before anything is compiled."""

    pieces: tuple[GraphPiece, ...]
    refused: Mapping[fx.Node, str]
    """The nodes that there is no operator for here, and why."""
    quicker: int
    """Further nodes, which are predicted to take less time in PyTorch."""
    values: Values
    weights: Weights
    results: tuple[Any, ...]
    """What the graph gives: nodes, or numbers and None as they are."""
    conditions: tuple[fx.Node, ...] = ()
    """Nodes of one element, and numbers, that must not be 0: PyTorch's `_assert_async`."""
    opened: OpenGraphSizes | None = None
    """The graph's symbols, where its sizes stay open."""
    spreads: Mapping[fx.Node, OpenStrides] = field(default_factory=dict)
    """Strides of our results that have gaps, where sizes stay open."""

    @property
    def native_nodes(self) -> int:
        return sum(len(piece.nodes) for piece in self.pieces if piece.native)


def plan(
    module: fx.GraphModule,
    values: Values,
    weights: Weights,
    min_gain: float = 0.0,
    opened: OpenGraphSizes | None = None,
) -> GraphPlan:
    """`values`: what every node gives, with static sizes, or those of `opened`. `min_gain`: how
    many times as fast as in PyTorch a piece of ours must be predicted to be."""
    graph = module.graph
    graph.eliminate_dead_code()
    held = dict(weights)
    for node in graph.nodes:
        if node.op == "get_attr":
            held[node] = operator.attrgetter(node.target)(module)
    nodes = [n for n in graph.nodes if n.op in ("call_function", "call_method", "call_module")]
    checks = [c for n in nodes if n.target in _CHECKS for c in n.all_input_nodes]
    conditions = [c for c in checks if values.get(c) is not True]
    nodes = [n for n in nodes if _is_work(n, values)]
    results: Sequence[Any] = graph.output_node().args[0]  # type: ignore[assignment]
    asked = {r for r in (*results, *conditions) if isinstance(r, fx.Node)}
    views = result_views(results)
    if views is not None:
        nodes, asked = views.without(nodes), views.asked(asked)
    sizes, usual = (opened.sizes, opened.examples) if opened else (KNOWN, values)
    refused = refusals(nodes, values, held, sizes=sizes, examples=usual)
    if refused:
        seen = weight_views(nodes, held, asked)
        nodes = [n for n in nodes if n not in seen]
        refused = {n: why for n, why in refused.items() if n not in seen}
        held |= seen
    known = held.keys() | {n for n, v in values.items() if isinstance(v, _NUMBERS)}
    pieces = split(nodes, refused, asked, known)
    quick = [p for p in pieces if p.native and predicted_gain(p, usual) < min_gain]
    pieces = [dataclasses.replace(p, native=False) if p in quick else p for p in pieces]
    ours = {n for p in pieces if p.native for n in p.outputs if n in asked}
    return GraphPlan(
        pieces=(*pieces, views.piece) if views is not None else tuple(pieces),
        refused=refused, quicker=sum(len(p.nodes) for p in quick), values=values, weights=held,
        results=tuple(results), conditions=tuple(conditions), opened=opened,
        spreads=open_spreads(ours, opened) if opened else {},
    )  # fmt: skip


def _is_work(node: fx.Node, values: Values) -> bool:
    """Numbers are computed beforehand, that tensors are of their types is known, conditions are
    looked at when all else is done."""
    return node.target not in (*_KNOWN_CHECKS, *_CHECKS) and not isinstance(
        values.get(node), _NUMBERS
    )


class PieceRunner:
    """A plan, compiled. Called with the graph's inputs; gives what the graph gives."""

    def __init__(self, module: fx.GraphModule, found: GraphPlan, compile_: CompileGraph) -> None:
        self._slots = {node: i for i, node in enumerate(module.graph.nodes)}
        self._inputs = [self._slots[n] for n in module.graph.nodes if n.op == "placeholder"]
        self._fixed: list[tuple[int, Any]] = [
            (self._slots[n], t) for n, t in found.weights.items() if n.op != "placeholder"
        ]
        self._fixed += [
            (self._slots[n], v)
            for n, v in found.values.items()
            if isinstance(v, bool | int | float) and n.op != "placeholder"
        ]
        self._results = found.results
        self._conditions = [self._slots[n] for n in found.conditions]
        self.plan = found
        self._steps = [self._step(module, piece, compile_) for piece in found.pieces]
        self._given = [
            (self._slots[r], None) if isinstance(r, fx.Node) else (-1, r) for r in found.results
        ]
        self._numbers = None
        if found.opened is not None:
            wanted = {n for n, v in found.values.items() if isinstance(v, SYMBOLIC)}
            self._numbers = CallNumbers(found.opened, wanted, self._slots, found.spreads)
        self._whole = self._one_step()

    def _one_step(self) -> tuple[Run, list[int], AnyDirectCall | None] | None:
        """What is the whole graph, which inputs it takes, and how it may run in fewer steps; None
        where there is more to do."""
        if len(self._steps) != 1 or self._conditions or self.plan.spreads:
            return None
        ((run, takes, gives),) = self._steps
        places = {slot: i for i, slot in enumerate(self._inputs)}
        if [slot for slot, _ in self._given] != gives or not places.keys() >= set(takes):
            return None
        wanted = [places[slot] for slot in takes]
        direct = run.direct if isinstance(run, NativePiece) else None
        return run, wanted, direct and direct.at(wanted)

    @property
    def direct(self) -> AnyDirectCall | None:
        """What runs the whole graph on its inputs' memory, where that is one piece of ours."""
        return None if self._whole is None else self._whole[2]

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if self._whole is not None:
            run, places, direct = self._whole
            made = None if direct is None else direct(inputs)
            if made is not None:
                return made
            return run([inputs[i] for i in places])
        held: list[Any] = [None] * len(self._slots)
        for slot, given in zip(self._inputs, inputs, strict=True):
            held[slot] = given
        for slot, fixed in self._fixed:
            held[slot] = fixed
        if self._numbers is not None:
            self._numbers.enter(held)
        for run, takes, gives in self._steps:
            values = run([held[slot] for slot in takes])
            for slot, value in zip(gives, values, strict=True):
                held[slot] = value
        if self._numbers is not None:
            self._numbers.spread(held)
        if not all(map(held.__getitem__, self._conditions)):
            raise ModelError("a condition of the graph is not met")
        return [held[slot] if slot >= 0 else number for slot, number in self._given]

    def _step(
        self, module: fx.GraphModule, piece: GraphPiece, compile_: CompileGraph
    ) -> tuple[Run, list[int], list[int]]:
        found = self.plan
        if piece.native:
            run: Run = native_piece(piece, found, compile_)
            inputs: Collection[fx.Node] = piece.inputs
        else:
            inputs = [*piece.inputs, *_read(piece.nodes, found)]
            run = eager_piece(module, piece, tuple(inputs))
        return run, [self._slots[n] for n in inputs], [self._slots[n] for n in piece.outputs]


def _read(nodes: Sequence[fx.Node], found: GraphPlan) -> list[fx.Node]:
    """The weights and numbers that nodes read."""
    inside = set(nodes)
    read = dict.fromkeys(r for n in nodes for r in n.all_input_nodes if r not in inside)
    return [r for r in read if r in found.weights or isinstance(found.values.get(r), _NUMBERS)]


def native_piece(piece: GraphPiece, found: GraphPlan, compile_: CompileGraph) -> NativePiece:
    """A piece compiled by us."""
    if found.opened is not None:
        opened = OpenPiece(piece, found.opened, found.weights)
        return NativePiece(compile_(opened), *opened.ports)
    imported = import_nodes(
        piece.nodes, found.values, piece.inputs, piece.outputs, weights=found.weights
    )
    return NativePiece(compile_(imported.graph), imported.inputs, imported.outputs)


def eager_piece(module: fx.GraphModule, piece: GraphPiece, inputs: Sequence[fx.Node]) -> Run:
    """A piece that PyTorch runs."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in inputs}
    for node in piece.nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output([copies[node] for node in piece.outputs])
    run = fx.GraphModule(module, graph)
    return lambda tensors: run(*tensors)
