"""A graph with the right sides of matches in place of their left sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune.errors import ModelError
from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import Rewriter
from autotune.ops import OPS, compute_flops
from autotune.rewrite import expressions
from autotune.rewrite.attributes import DEFAULTS
from autotune.rewrite.corrected import corrected
from autotune.rewrite.match import Match
from autotune.rewrite.parse import leaves
from autotune.rewrite.rule import Application, Rewrite
from autotune.types import Array, Attr, TensorType

MOST_FOLDED_FLOPS = 4e9
"""Operations of a product of constants that is done while a model is compiled, at most: some
tenths of a second, and operands that memory has room for in double precision."""

Emit = Callable[[str, Sequence[str], dict[str, Attr]], str]


def build(
    rewrite: Rewrite,
    sides: Sequence[Application | str],
    symbols: Mapping[str, Any],
    values: Mapping[str, str],
    emit: Emit,
) -> list[str]:
    """The values of some sides of a rewrite, over the values of a match, each term once. Raises
    ModelError where an operator refuses, or an attribute is nothing."""
    if rewrite.box and sides is rewrite.right:
        sides = corrected(rewrite, symbols)
    made: dict[Application, str] = {}
    lets = dict(rewrite.lets)

    def value(term: Application | str) -> str:
        if isinstance(term, str):
            return value(lets[term]) if term in lets else values[term]
        if term not in made:
            inputs = [value(a) for a in term.args]
            try:
                attrs = {n: expressions.value(text, symbols) for n, text in term.attrs}
            except expressions.NOTHING as error:
                raise ModelError(f"{rewrite.name}: {term.op} has no attributes: {error}") from None
            made[term] = emit(term.op, inputs, attrs)
        return made[term]

    return [value(side) for side in sides]


def apply(graph: Graph, matches: Sequence[Match]) -> Graph | None:
    """The graph with every match rewritten; None where one reads what it makes, or changes a
    value's type. No two matches may end in the same nodes."""
    ordered = _ordered(graph, matches)
    if ordered is None:
        return None
    new = Rewriter(graph)
    heads = {node.output: m for m in matches for node in m.roots}
    done: set[str] = set()
    for node in ordered:
        match = heads.get(node.output)
        if match is None:
            new.keep(node)
        elif node.output not in done and not _replaced(new, match, done):
            return None
    return new.finish()


def _replaced(new: Rewriter, match: Match, done: set[str]) -> bool:
    used = {v for term in match.rewrite.left for v in leaves(term)}
    values = {n: new.new(v) for n, v in match.values.items() if n in used}
    emitting = _Emitting(new, match.roots[0])
    try:
        found = build(match.rewrite, match.rewrite.right, match.symbols, values, emitting.emit)
    except ModelError:
        return False
    results = [emitting.value(name) for name in found]
    for root, result in zip(match.roots, results, strict=True):
        if new.types[result] != new.graph.types[root.output]:
            return False
        new.replace(root.output, result)
        done.add(root.output)
    return True


def _check_folded(op: str, arrays: Sequence[Array], attrs: dict[str, Attr]) -> None:
    """Raises ModelError for products of constants that take too long."""
    operator = OPS.get(op)
    if operator.kind != "contraction":
        return
    inputs = [(f"i{n}", TensorType(dtype="float32", shape=a.shape)) for n, a in enumerate(arrays)]
    result = operator.infer([kind for _, kind in inputs], attrs)
    flops = sum(compute_flops(c) for c in operator.expression(inputs, ("o", result), attrs))
    if flops > MOST_FOLDED_FLOPS:
        raise ModelError(f"{op} of constants takes {flops:.0e} operations; it is left to the run")


class _Emitting:
    """Emits nodes with all their attributes; what constants alone decide becomes a constant, in
    double precision until something that is none reads it."""

    def __init__(self, new: Rewriter, like: Node) -> None:
        self.new, self.like = new, like
        self.made: dict[str, Array] = {}

    def emit(self, op: str, inputs: Sequence[str], attrs: dict[str, Attr]) -> str:
        attrs = {**DEFAULTS.get(op, {}), **attrs}
        known = [self._known(i) for i in inputs]
        arrays = [a for a in known if a is not None]
        if op != "expand" and arrays and len(arrays) == len(inputs):
            _check_folded(op, arrays, attrs)
            name, wide = f"%{len(self.made)}", [a.astype(np.float64, copy=False) for a in arrays]
            self.made[name] = np.asarray(OPS.get(op).reference(wide, attrs))
            return name
        return self.new.emit(op, [self.value(i) for i in inputs], self.like, **attrs)

    def value(self, name: str) -> str:
        """A value's name in the new graph; a constant made for the match becomes one there."""
        if name not in self.made:
            return name
        return self.new.constant(self.made[name].astype(np.float32), self.like.output)

    def _known(self, name: str) -> Array | None:
        return self.made[name] if name in self.made else self.new.known(name)


def _ordered(graph: Graph, matches: Sequence[Match]) -> list[Node] | None:
    """The nodes, each after what it will need: of a match, all of its values."""
    needs: dict[str, set[str]] = {}
    for match in matches:
        wanted = {match.values[v] for t in match.rewrite.left for v in leaves(t)}
        for root in match.roots:
            needs[root.output] = wanted
    if all(len(m.roots) == 1 for m in matches):
        return list(graph.nodes)
    there = {name for name, _ in graph.inputs} | set(graph.constants)
    order: list[Node] = []
    waiting = list(graph.nodes)
    while waiting:
        left: list[Node] = []
        for node in waiting:
            if needs.get(node.output, set()).union(node.inputs) <= there:
                there.add(node.output)
                order.append(node)
            else:
                left.append(node)
        if len(left) == len(waiting):
            return None
        waiting = left
    return order
