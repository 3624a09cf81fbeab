"""Pruning of what says nothing new: renamed ones, and those that one step of an equation
of fewer or as many operators makes, somewhere in a term, or that step and one more that leaves
operators out, or two over terms of no more operators and one that leaves some out.

In: `Pair`s, in the order in which they should be kept. Out: equations with one name for what is
the same but for names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.graph.rewriter import COMMUTATIVE
from autotune.rewrite import expressions
from autotune.rewrite.attributes import normal
from autotune.rewrite.enumeration import Enumerated, Pair
from autotune.rewrite.match import Bindings, bind_items
from autotune.rewrite.rule import Application, Declared, Rewrite
from autotune.rewrite.symbolic_shapes import Shape, shape_of

_SYMBOL = re.compile(r"\b(?!len\b|tuple\b|range\b|for\b|in\b|True\b|False\b)[a-z]\w*")


@dataclass(frozen=True, slots=True)
class Made:
    """A term in one form: operands of commutative operators sorted, attributes as they are."""

    op: str
    attrs: tuple[tuple[str, Any], ...]
    args: tuple[Made, ...]
    shape: Shape

    @property
    def size(self) -> int:
        """How many operators it has."""
        return bool(self.args) + sum(a.size for a in self.args)

    @property
    def key(self) -> str:
        """Equal for equal terms."""
        return f"{self.op}{self.attrs}({','.join(a.key for a in self.args)})"


def made(term: Enumerated) -> Made:
    """The one form of a term."""
    if isinstance(term.term, str):
        return Made(term.term, (), (), term.shape)
    return _applied(term.term.op, tuple(map(made, term.args)), dict(term.attrs), term.shape)


def _applied(op: str, args: tuple[Made, ...], attrs: Mapping[str, Any], shape: Shape) -> Made:
    full = normal(op, attrs, [a.shape for a in args])
    if op in COMMUTATIVE:
        args = tuple(sorted(args, key=lambda a: a.key))
    return Made(op, tuple(sorted(full.items())), args, shape)


def operators(term: Made) -> frozenset[str]:
    """Names of a term's operators."""
    own = {term.op} if term.args else set()
    return frozenset(own.union(*(operators(a) for a in term.args)))


class Known:
    """Equations that others are compared with."""

    def __init__(self) -> None:
        self._ways: list[tuple[frozenset[str], Rewrite, Application, Application | str]] = []
        self._several: list[Rewrite] = []

    def add(self, rewrite: Rewrite) -> None:
        """From now on what follows from this one by one step says nothing new."""
        if len(rewrite.left) > 1:
            self._several.append(rewrite)
            return
        left, right = (_inlined(rewrite, t[0]) for t in (rewrite.left, rewrite.right))
        for here, to in ((left, right), (right, left)):
            if isinstance(here, Application):
                self._ways.append((_ops(here), rewrite, here, to))

    def has(self, pair: Pair) -> bool:
        """Whether one side follows from the other."""
        one, other = made(pair.one), made(pair.other)
        wanted = other.key
        seen: set[str] = set()
        for after in self._steps(one):
            if after.key == wanted:
                return True
            if after.key not in seen and after.size > other.size:
                seen.add(after.key)
                if any(last.key == wanted for last in self._steps(after, shorter=True)):
                    return True
        return False

    def leads_to(self, pair: Pair) -> bool:
        """Whether the second side follows from the first in three steps: two over terms that are
        no larger than it, and one that leaves operators out."""
        one, other = made(pair.one), made(pair.other)
        seen = {one.key}
        for first in self._steps(one):
            if first.key in seen or first.size > one.size:
                continue
            seen.add(first.key)
            for second in self._steps(first):
                if second.key in seen or not other.size < second.size <= one.size:
                    continue
                seen.add(second.key)
                if any(last.key == other.key for last in self._steps(second, shorter=True)):
                    return True
        return False

    def _steps(self, term: Made, *, shorter: bool = False) -> Iterator[Made]:
        """Terms behind one step; `shorter`: of steps that leave operators out."""
        there = operators(term)
        for ops, rewrite, here, to in self._ways:
            if ops <= there and (not shorter or _count(to) < _count(here)):
                yield from _after(rewrite, here, to, term)

    def has_all(self, several: Sequence[Pair]) -> bool:
        """Whether several results together are a case of an equation of as many results; the first
        of each pair is what there is, the second what it becomes."""
        sides = [(made(pair.one), made(pair.other)) for pair in several]
        return any(
            len(rewrite.left) == len(sides) and _is_case(rewrite, order)
            for rewrite in self._several
            for order in itertools.permutations(sides)
        )


def _is_case(rewrite: Rewrite, sides: Sequence[tuple[Made, Made]]) -> bool:
    declared = {v.name: v for v in rewrite.values}
    here = [_inlined(rewrite, t) for t in rewrite.left]
    there = [_inlined(rewrite, t) for t in rewrite.right]
    for bound in _all_matched(here, [one for one, _ in sides], declared, {}):
        found = [_built(rewrite, term, bound) for term in there]
        if all(f and f.key == other.key for f, (_, other) in zip(found, sides, strict=True)):
            return True
    return False


def _inlined(rewrite: Rewrite, term: Application | str) -> Application | str:
    if isinstance(term, str):
        let = dict(rewrite.lets).get(term)
        return _inlined(rewrite, let) if let is not None else term
    return Application(term.op, tuple(_inlined(rewrite, a) for a in term.args), term.attrs)


def _ops(term: Application | str) -> frozenset[str]:
    if isinstance(term, str):
        return frozenset()
    return frozenset({term.op}).union(*map(_ops, term.args))


def _count(term: Application | str) -> int:
    return 0 if isinstance(term, str) else 1 + sum(map(_count, term.args))


def _after(
    rewrite: Rewrite, here: Application, there: Application | str, term: Made
) -> Iterator[Made]:
    """The terms behind one step, wherever in a term it is taken."""
    if not term.args:
        return
    declared = {v.name: v for v in rewrite.values}
    for bound in _matched(here, term, declared, {}):
        found = _built(rewrite, there, bound)
        if found is not None:
            yield found
    for at, arg in enumerate(term.args):
        for changed in _after(rewrite, here, there, arg):
            args = (*term.args[:at], changed, *term.args[at + 1 :])
            yield _applied(term.op, args, dict(term.attrs), term.shape)


def _matched(
    pattern: Application | str, term: Made, declared: Mapping[str, Declared], bound: Bindings
) -> Iterator[Bindings]:
    if isinstance(pattern, str):
        name = f"%{pattern}"
        if name in bound:
            if bound[name].key == term.key:
                yield bound
            return
        more = bind_items(declared[pattern].shape, term.shape, bound)
        if more is not None:
            yield more | {name: term}
        return
    if pattern.op != term.op or len(pattern.args) != len(term.args) or not term.args:
        return
    turned = term.op in COMMUTATIVE and len(term.args) == 2
    for args in (term.args, term.args[::-1]) if turned else (term.args,):
        for more in _all_matched(pattern.args, args, declared, bound):
            attrs = _attributes(pattern, term, more)
            if attrs is not None:
                yield attrs


def _all_matched(
    patterns: Sequence[Application | str], terms: Sequence[Made],
    declared: Mapping[str, Declared], bound: Bindings,
) -> Iterator[Bindings]:  # fmt: skip
    if not patterns:
        yield bound
        return
    for more in _matched(patterns[0], terms[0], declared, bound):
        yield from _all_matched(patterns[1:], terms[1:], declared, more)


def _attributes(pattern: Application, term: Made, bound: Bindings) -> Bindings | None:
    wanted = dict(pattern.attrs)
    assumed = normal(term.op, {}, [a.shape for a in term.args])
    more: Bindings | None = bound
    for name, attr in term.attrs:
        if name not in wanted:
            if assumed.get(name) != attr:
                return None
            continue
        text = wanted[name]
        items = expressions.parts(text)
        if items is not None:
            fits = isinstance(attr, tuple)
            more = bind_items(tuple(items), attr, more) if fits and more is not None else None
        elif more is not None:
            more = bind_items((text,), (attr,), more)
        if more is None:
            return None
    return more


def _built(rewrite: Rewrite, term: Application | str, bound: Bindings) -> Made | None:
    symbols = expressions.defined(
        rewrite.defines, {n: v for n, v in bound.items() if not n.startswith("%")}
    )
    if symbols is None or not all(_may_hold(text, symbols) for text in rewrite.where):
        return None

    def value(part: Application | str) -> Made | None:
        if isinstance(part, str):
            found = bound.get(f"%{part}")
            return found if isinstance(found, Made) else None
        args = [value(a) for a in part.args]
        shapes = [a.shape for a in args if a is not None]
        if len(shapes) < len(args):
            return None
        try:
            attrs = {n: expressions.value(text, symbols) for n, text in part.attrs}
        except expressions.NOTHING:
            return None
        shape = shape_of(part.op, shapes, attrs)
        if shape is None:
            return None
        return _applied(part.op, tuple(a for a in args if a is not None), attrs, shape)

    return value(term)


def _may_hold(text: str, symbols: Mapping[str, Any]) -> bool:
    """Whether a condition holds, or depends on sizes."""
    try:
        return bool(expressions.value(text, symbols))
    except expressions.NOTHING:
        return True


def renamed_key(*several: Pair) -> str:
    """Equal for pairs that differ in the names of values and symbols alone, or in their order, of
    the pairs and of the terms in each."""
    forms = [_renamed(order) for order in itertools.permutations(several)]
    if len(several) == 1 and several[0].one.size == several[0].other.size:
        (pair,) = several
        forms.append(_renamed([Pair(pair.header, pair.other, pair.one)]))
    return min(forms)


def _renamed(several: Sequence[Pair]) -> str:
    """The pairs' text, with numbers for names."""
    shapes = {v.name: v.shape for v in several[0].header.values}
    names: dict[str, str] = {}

    def symbols(text: str) -> str:
        return _SYMBOL.sub(lambda m: names.setdefault(m[0], f"d{len(names)}"), text)

    def text(term: Application | str) -> str:
        if isinstance(term, str):
            shape = symbols(",".join(shapes[term]))
            return f"{names.setdefault('%' + term, str(len(names)))}[{shape}]"
        attrs = ",".join(f"{n}:{symbols(t)}" for n, t in term.attrs)
        return f"{term.op}({','.join(map(text, term.args))};{attrs})"

    return "; ".join(f"{text(p.one.term)} = {text(p.other.term)}" for p in several)
