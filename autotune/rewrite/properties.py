"""Properties of operators as rules of an e-graph. In: an equation, the ranks and orders of
dimensions that occur. Out: egglog's text for it, from left to right and back, for each of them.

A side is matched where its operators are, its values have their shapes and its conditions hold;
what the other side computes then is added, each term with its shape, and both are one. A side that
is a value alone is matched where the operands of the other side are.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import ModelError
from autotune.rewrite import expressions
from autotune.rewrite.apply import build
from autotune.rewrite.dims import (
    Dim,
    RealSymbol,
    WordSymbol,
    is_symbol,
    prefix_form,
    symbol,
    symbols_of,
)
from autotune.rewrite.egraph import (
    Variant,
    literal,
    ruleset,
    shape_fact,
    variant,
    with_broadcasts,
)
from autotune.rewrite.parse import leaves
from autotune.rewrite.rule import Application, Rewrite
from autotune.rewrite.symbolic_shapes import Shape, shape_of

_STRUCTURE = ("perm", "axis", "axes")
"""Attributes that say which dimension is meant: rules are written for each of their values."""
_MOST_FREE = 4
"""Dimensions that a starred symbol stands for, at most."""
_MOST_APART = 3
"""Starred symbols whose lengths are apart from each other; of more, all have one length."""
_COMPARED: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "=", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Translated:
    """A property, or a part of it, as text of the ruleset with its name; `variants`: the
    constructors that it names."""

    name: str
    text: str
    variants: tuple[Variant, ...]


class _NoRuleError(Exception):
    """These ranks or this direction make no rule."""


def translated(
    given: Rewrite, ranks: frozenset[int], perms: frozenset[tuple[int, ...]]
) -> list[Translated]:
    """The rules of a property over terms of these ranks."""
    found = []
    for symbols in _choices(given, max(ranks), perms):
        for turned in (False, True):
            made = _translated(given, tuple(sorted(symbols.items(), key=str)), turned)
            if made is not None and (made[0] <= ranks or "*" in symbols):
                found.append(made[1])
    return found


def _choices(
    given: Rewrite, most: int, perms: frozenset[tuple[int, ...]]
) -> Iterator[dict[str, Any]]:
    """How long each starred symbol is, and what every symbol is that names dimensions."""
    structure = sorted(_structure(given))
    if _is_whole(given):
        yield {"*": "whole"}
        return
    stars = {d[1:] for v in given.values for d in v.shape if d.startswith("*")}
    stars |= {d.name[1:] for d in given.domains if d.name.startswith("*")}
    follow = {name for name, text in given.drawn if text.startswith("put(")}
    free = sorted(stars - set(structure) - follow)
    orders = [n for n in structure if n in stars]
    axes = [n for n in structure if n not in stars]
    counts = range(min(most, _MOST_FREE) + 1)
    alike = len(free) > _MOST_APART
    every = (
        ((k,) * len(free) for k in counts)
        if alike
        else itertools.product(counts, repeat=len(free))
    )
    for lengths in every:
        for chosen in itertools.product(sorted(perms), repeat=len(orders)):
            for places in itertools.product(range(most), repeat=len(axes)):
                yield {
                    **{n: ("length", k) for n, k in zip(free, lengths, strict=True)},
                    **dict(zip(orders, chosen, strict=True)),
                    **dict(zip(axes, places, strict=True)),
                }


def _terms(given: Rewrite) -> Iterator[Application]:
    pending = [*given.left, *given.right, *(t for _, t in given.lets)]
    while pending:
        term = pending.pop()
        if isinstance(term, Application):
            yield term
            pending += term.args


@functools.lru_cache(maxsize=1024)
def _structure(given: Rewrite) -> frozenset[str]:
    """Symbols that name dimensions; a starred one does where it is an order, while it only has a
    length where a place is counted from it."""
    starred = {d.name[1:] for d in given.domains if d.name.startswith("*")}
    single = {d.name for d in given.domains if not d.name.startswith("*")}
    used = {
        (key, name)
        for term in _terms(given) for key, text in term.attrs if key in _STRUCTURE
        for name in expressions.names(text)
    }  # fmt: skip
    return frozenset(n for key, n in used if n in single or (n in starred and key == "perm"))


def _is_whole(given: Rewrite) -> bool:
    """Whether all values have one shape, whatever it is, and operators keep it."""
    shapes = {v.shape for v in given.values}
    plain = not given.domains and not given.where and all(not t.attrs for t in _terms(given))
    return plain and len(shapes) == 1 and all(len(s) == 1 and s[0][0] == "*" for s in shapes)


@functools.lru_cache(maxsize=1 << 16)
def _translated(
    given: Rewrite, chosen: tuple[tuple[str, Any], ...], turned: bool
) -> tuple[frozenset[int], Translated] | None:
    """(ranks of its terms, rule) of one direction; None where it makes none."""
    sides = (given.left[0], given.right[0])
    here, there = sides[::-1] if turned else sides
    try:
        rule = _Rule(given, dict(chosen))
        text = rule.written(here, there)
    except (_NoRuleError, ModelError, *expressions.NOTHING):
        return None
    ranks = frozenset(map(len, rule.shapes.values()))
    return ranks, Translated(given.name, text, tuple(rule.variants))


@dataclass(slots=True)
class _Rule:
    """One rule as it is written: what it asks, and what it then adds."""

    given: Rewrite
    chosen: dict[str, Any]
    asked: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    variants: dict[Variant, None] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    shapes: dict[str, Shape] = field(default_factory=dict)

    def written(self, here: Application | str, there: Application | str) -> str:
        """The text. Raises _NoRuleError."""
        symbols = self._symbols()
        here, there = self._inlined(here), self._inlined(there)
        asked = [here] if isinstance(here, Application) else []
        if not asked:
            assert isinstance(there, Application)
            asked = [a for a in there.args if isinstance(a, Application)]
        if not asked or not leaves(there) <= {v for t in asked for v in leaves(t)}:
            raise _NoRuleError
        values = self._leaves({v for t in asked for v in leaves(t)} | leaves(here), symbols)
        ends = [self._built(t, symbols, values, self._ask) for t in asked]
        root = values[here] if isinstance(here, str) else ends[0]
        for text in self.given.where:
            self._condition(ast.parse(text, mode="eval").body, symbols)
        result = self._built(there, symbols, values, self._add)
        if not self.needed <= self.bound or self.shapes[result] != self.shapes[root]:
            raise _NoRuleError
        self.added.append(f"(union {root} {result})")
        body = f"({' '.join(self.asked)}) ({' '.join(self.added)})"
        return f"(rule {body} :ruleset {ruleset(self.given.name)})"

    def _inlined(self, term: Application | str) -> Application | str:
        """The term with what its lets stand for."""
        if isinstance(term, str):
            let = dict(self.given.lets).get(term)
            return self._inlined(let) if let is not None else term
        return Application(term.op, tuple(map(self._inlined, term.args)), term.attrs)

    def _symbols(self) -> dict[str, Any]:
        names = {d for v in self.given.values for d in v.shape if not d.isdecimal()}
        names |= {d.name for d in self.given.domains} | {name for name, _ in self.given.drawn}
        out: dict[str, Any] = {}
        for name in names:
            plain = name.removeprefix("*")
            known = self.chosen.get(plain)
            if self.chosen.get("*") == "whole":
                out[plain] = (f"*{plain}",)
            elif isinstance(known, tuple) and known and known[0] == "length":
                out[plain] = tuple(symbol(f"{plain}{i}") for i in range(known[1]))
            else:
                out[plain] = symbol(plain) if known is None else known
        for domain in self.given.domains:
            if domain.words:
                out[domain.name] = WordSymbol({(domain.name,): 1})
            if domain.real:
                out[domain.name] = RealSymbol({(domain.name,): 1})
        for name, text in self.given.drawn:
            if text.startswith("put("):  # as another shape, but for one dimension
                out[name] = expressions.value(text, out)
        found = expressions.defined(self.given.defines, out)
        if found is None:
            raise _NoRuleError
        return found

    def _leaves(self, used: set[str], symbols: Mapping[str, Any]) -> dict[str, str]:
        values = {}
        for declared in self.given.values:
            if declared.name in used:
                name = values[declared.name] = f"v_{declared.name}"
                shape = self._shape(declared.shape, symbols)
                self.shapes[name] = shape
                self.asked.append(shape_fact(name, [self._pattern(d) for d in shape]))
        return values

    def _shape(self, dims: Sequence[str], symbols: Mapping[str, Any]) -> Shape:
        out: list[Any] = []
        for dim in dims:
            out += (
                symbols[dim[1:]]
                if dim.startswith("*")
                else [int(dim) if dim.isdecimal() else symbols[dim]]
            )
        return tuple(out)

    def _built(self, term: Application | str, symbols: Any, values: Any, make: Any) -> str:
        def emit(op: str, inputs: Sequence[str], attrs: dict[str, Any]) -> str:
            shapes = [self.shapes[i] for i in inputs]
            out = shape_of(op, shapes, attrs)
            if out is None:
                raise _NoRuleError
            return with_broadcasts(make, op, inputs, attrs, shapes=shapes, out=out)

        return build(self.given, [term], symbols, values, emit)[0]

    def _ask(self, op: str, terms: Sequence[str], attrs: Mapping[str, Any], out: Shape) -> str:
        made, flat = variant(op, len(terms), attrs)
        items = [self._pattern(item) for item in flat]
        return self._named(made, [*terms, *items], out, "(= {0} {1})", self.asked)

    def _add(self, op: str, terms: Sequence[str], attrs: Mapping[str, Any], out: Shape) -> str:
        made, flat = variant(op, len(terms), attrs)
        items = [self._computed(item) for item in flat]
        name = self._named(made, [*terms, *items], out, "(let {0} {1})", self.added)
        self.added.append(shape_fact(name, [self._computed(d) for d in out]))
        return name

    def _named(
        self, made: Variant, items: Sequence[str], out: Shape, form: str, lines: list[str]
    ) -> str:
        self.variants[made] = None
        name = f"term_{len(self.shapes)}"
        self.shapes[name] = out
        lines.append(form.format(name, f"({' '.join([made[0], *items])})"))
        return name

    def _pattern(self, item: Any) -> str:
        if not isinstance(item, Dim):
            return item if isinstance(item, str) and item.startswith("*") else literal(item)
        if is_symbol(item):
            self.bound.add(str(item))
            return str(item)
        name = f"g{len(self.asked)}_{len(self.needed)}_{len(self.bound)}"
        self.asked.append(f"(= {name} {self._computed(item)})")
        return name

    def _computed(self, item: Any) -> str:
        if not isinstance(item, Dim):
            return item if isinstance(item, str) and item.startswith("*") else literal(item)
        self.needed |= symbols_of([item])
        return prefix_form(item)

    def _condition(self, node: ast.expr, symbols: Mapping[str, Any]) -> None:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for part in node.values:
                self._condition(part, symbols)
            return
        if not isinstance(node, ast.Compare):
            raise _NoRuleError
        items = [
            expressions.value(ast.unparse(e), symbols) for e in (node.left, *node.comparators)
        ]
        for (one, other), op in zip(itertools.pairwise(items), node.ops, strict=True):
            pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
            for a, b in pairs:
                self._compared(a, b, op)

    def _compared(self, one: Any, other: Any, op: ast.cmpop) -> None:
        if isinstance(one, Dim) or isinstance(other, Dim):
            word = _COMPARED[type(op)]
            self.asked.append(f"({word} {self._computed(one)} {self._computed(other)})")
        elif not expressions.value(f"a {_SIGNS[word_of(op)]} b", {"a": one, "b": other}):
            raise _NoRuleError


def word_of(op: ast.cmpop) -> str:
    """The comparison's name in egglog."""
    return _COMPARED[type(op)]


_SIGNS = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
