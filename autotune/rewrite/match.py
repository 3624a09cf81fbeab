"""Pattern matching: the places of a rewrite's left side in a graph. In: a graph, a rewrite. Out:
matches, in the order of the graph's nodes.

Several left terms are found one after the other: the second one among the nodes that read what the
first has named, where they share a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.graph.ir import Graph, Node
from autotune.graph.rewriter import COMMUTATIVE
from autotune.rewrite import expressions
from autotune.rewrite.attributes import normal
from autotune.rewrite.parse import leaves
from autotune.rewrite.rule import Application, Declared, Rewrite
from autotune.sizes import any_size

Bindings = dict[str, Any]
"""Symbols -> numbers, words or tuples; values' names with a leading % -> values of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A rewrite at a place. `roots`: the nodes that left terms end in; `symbols` and `values`:
    what its symbols and its values are there."""

    rewrite: Rewrite
    roots: tuple[Node, ...]
    symbols: Mapping[str, Any]
    values: Mapping[str, str]


class Finder:
    """Looks for rewrites in one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = {node.output: node for node in graph.nodes}
        self.by_op: dict[str, list[Node]] = {}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            self.by_op.setdefault(node.op, []).append(node)
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(node)

        self._places = {node.output: i for i, node in enumerate(graph.nodes)}

    def place(self, value: str) -> int:
        """Where among the nodes a value is computed."""
        return self._places[value]

    def known(self, value: str) -> bool:
        """Whether a value is a constant, or a number."""
        node = self.producers.get(value)
        return value in self.graph.constants or (node is not None and node.op == "scalar")

    def matches(self, rewrite: Rewrite) -> Iterator[Match]:
        """Every place where the left side is and the conditions hold."""
        if any(t.op not in self.by_op for t in rewrite.left):
            return
        looking = _Looking(self, rewrite)
        seen: set[frozenset[str]] = set()
        for roots, bound in looking.found(0, (), {}):
            place = frozenset(node.output for node in roots)
            if len(place) < len(roots) or (len(roots) > 1 and place in seen):
                continue  # the same nodes in another order
            free = {n: v for n, v in bound.items() if not n.startswith("%")}
            symbols = expressions.defined(rewrite.defines, free)
            if symbols is not None and all(_holds(text, symbols) for text in rewrite.where):
                seen.add(place)
                values = {n[1:]: v for n, v in bound.items() if n.startswith("%")}
                yield Match(rewrite=rewrite, roots=roots, symbols=symbols, values=values)


def _holds(text: str, symbols: Mapping[str, Any]) -> bool:
    try:
        return bool(expressions.value(text, symbols))
    except expressions.NOTHING:
        return False


class _Looking:
    def __init__(self, finder: Finder, rewrite: Rewrite) -> None:
        self.finder, self.rewrite = finder, rewrite
        self.declared = {v.name: v for v in rewrite.values}
        self.domains = {p.name.removeprefix("*"): p for p in rewrite.domains}

    def found(
        self, number: int, roots: tuple[Node, ...], bound: Bindings
    ) -> Iterator[tuple[tuple[Node, ...], Bindings]]:
        """(roots, bindings) of the left terms from this one on."""
        if number == len(self.rewrite.left):
            yield roots, bound
            return
        term = self.rewrite.left[number]
        for node in self._candidates(term, bound):
            if node in roots:
                continue
            for more in self._node(term, node, bound):
                yield from self.found(number + 1, (*roots, node), more)

    def _candidates(self, term: Application, bound: Bindings) -> list[Node]:
        shared = [bound[f"%{a}"] for a in term.args if isinstance(a, str) and f"%{a}" in bound]
        if shared:
            readers = self.finder.readers.get(shared[0], [])
            return [n for n in readers if n.op == term.op]
        return self.finder.by_op.get(term.op, [])

    def _node(self, term: Application, node: Node, bound: Bindings) -> Iterator[Bindings]:
        types = self.finder.graph.types
        if node.op != term.op or len(node.inputs) != len(term.args):
            return
        if types[node.output].dtype != "float32" or any_size(types[node.output].shape):
            return
        turned = node.op in COMMUTATIVE and len(node.inputs) == 2
        orders = (node.inputs, node.inputs[::-1]) if turned else (node.inputs,)
        for inputs in dict.fromkeys(orders):
            for more in self._args(term.args, inputs, bound):
                attrs = self._attributes(term, node, more)
                if attrs is not None:
                    yield attrs

    def _args(
        self, args: tuple[Application | str, ...], inputs: tuple[str, ...], bound: Bindings
    ) -> Iterator[Bindings]:
        if not args:
            yield bound
            return
        for more in self._value(args[0], inputs[0], bound):
            yield from self._args(args[1:], inputs[1:], more)

    def _value(self, arg: Application | str, value: str, bound: Bindings) -> Iterator[Bindings]:
        if isinstance(arg, Application):
            node = self.finder.producers.get(value)
            if node is not None:
                yield from self._node(arg, node, bound)
            return
        name = f"%{arg}"
        if name in bound:
            if bound[name] == value:
                yield bound
            return
        more = self._shape(self.declared[arg], value, bound)
        if more is not None:
            yield more | {name: value}

    def _shape(self, declared: Declared, value: str, bound: Bindings) -> Bindings | None:
        graph = self.finder.graph
        if declared.constant and not self.finder.known(value):
            return None
        if graph.types[value].dtype != "float32":
            return None
        return bind_items(declared.shape, graph.types[value].shape, bound)

    def _attributes(self, term: Application, node: Node, bound: Bindings) -> Bindings | None:
        graph = self.finder.graph
        shapes = [graph.types[i].shape for i in node.inputs]
        there = normal(node.op, node.attributes, shapes)
        wanted = dict(term.attrs)
        assumed = normal(node.op, {}, shapes)
        for name, attr in there.items():
            if name not in wanted:
                if assumed.get(name) != attr:
                    return None
                continue
            more = self._attribute(wanted.pop(name), attr, bound)
            if more is None:
                return None
            bound = more
        return None if wanted else bound

    def _attribute(self, text: str, attr: Any, bound: Bindings) -> Bindings | None:
        items = expressions.parts(text)
        more: Bindings | None
        if items is not None:
            fits = isinstance(attr, tuple)
            more = bind_items(tuple(items), attr, bound) if fits else None
        else:
            more = bind_items((text,), (attr,), bound)
        if more is None or not all(
            self._in_domain(n, more[n]) for n in more.keys() - bound.keys()
        ):
            return None
        return more

    def _in_domain(self, name: str, found: Any) -> bool:
        domain = self.domains.get(name)
        if domain is None:
            return True
        if domain.words:
            return str(found) in domain.words
        if domain.real:
            return isinstance(found, float)
        numbers = found if isinstance(found, tuple) else (found,)
        return all(isinstance(n, int) and n >= domain.low for n in numbers)


def bind_items(items: tuple[str, ...], found: tuple[Any, ...], bound: Bindings) -> Bindings | None:
    """The bindings by which these expressions are what was found; None where they are not. A free
    symbol is bound; a starred one to as many as the others leave."""
    star = next((i for i, item in enumerate(items) if item.startswith("*")), None)
    if star is not None:
        after = len(items) - star - 1
        if len(found) < len(items) - 1:
            return None
        middle = tuple(found[star : len(found) - after])
        found = (*found[:star], middle, *found[len(found) - after :])
        items = (*items[:star], items[star][1:], *items[star + 1 :])
    if len(items) != len(found):
        return None
    bound = dict(bound)
    for item, actual in zip(items, found, strict=True):
        if item.isidentifier() and item not in ("True", "False") and item not in bound:
            bound[item] = actual
            continue
        try:
            wanted = expressions.value(item, bound)
        except expressions.NOTHING:
            return None
        if wanted != actual:
            return None
    return bound


def inside(match: Match, finder: Finder) -> frozenset[str]:
    """Outputs of all nodes that the left side covers."""
    ends = {match.values[v] for term in match.rewrite.left for v in leaves(term)}
    found: set[str] = set()
    pending = [node.output for node in match.roots]
    while pending:
        value = pending.pop()
        node = finder.producers.get(value)
        if node is None or value in found or (value in ends and value not in _roots(match)):
            continue
        found.add(value)
        pending += node.inputs
    return frozenset(found)


def _roots(match: Match) -> frozenset[str]:
    return frozenset(node.output for node in match.roots)
