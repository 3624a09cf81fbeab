"""Dimensions and attributes of which only names are known: polynomials of symbols, in one form.

A `Dim` takes part in the arithmetic of a rewrite's expressions, so `expressions.value` over Dims
says what an attribute is for all sizes at once. What depends on no symbol is an `int` again.
Quotients and remainders are symbols of their own.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

_Terms = dict[tuple[str, ...], int]
_PRIMITIVES: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%",
}  # fmt: skip


class Dim:
    """A sum of products of symbols; equal where the polynomials are."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[tuple[str, ...], int]) -> None:
        self.terms: _Terms = {k: terms[k] for k in sorted(terms) if terms[k]}

    def __add__(self, other: object) -> Any:
        out = dict(self.terms)
        for product, count in _terms(other).items():
            out[product] = out.get(product, 0) + count
        return simplest(out)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return simplest({product: -count for product, count in self.terms.items()})

    def __sub__(self, other: object) -> Any:
        return self + simplest({p: -n for p, n in _terms(other).items()})

    def __rsub__(self, other: object) -> Any:
        return -self + other

    def __mul__(self, other: object) -> Any:
        out: _Terms = {}
        for one, n in self.terms.items():
            for two, m in _terms(other).items():
                product = tuple(sorted((*one, *two)))
                out[product] = out.get(product, 0) + n * m
        return simplest(out)

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Any:
        if other == 1:
            return self
        if self == other:
            return 1
        if isinstance(other, Dim) and (shared := _shared_factors(self, other)):
            return _divided(self, shared) // _divided(other, shared)
        if isinstance(other, Dim) and (whole := _multiples(self, other)):
            return _divided(whole, *other.terms) + (self - whole) // other
        return Dim({(f"(({self}) // ({other}))",): 1})

    def __rfloordiv__(self, other: object) -> Any:
        return Dim({(f"(({other}) // ({self}))",): 1})

    def __mod__(self, other: object) -> Any:
        return 0 if other in (1, self) else Dim({(f"(({self}) % ({other}))",): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        parts = []
        for product, count in sorted(self.terms.items(), key=lambda t: (t[1] < 0, not t[0])):
            factors = [*([str(abs(count))] if abs(count) != 1 or not product else []), *product]
            parts.append(f"{'-' if count < 0 else '+'} {' * '.join(factors)}")
        text = " ".join(parts)
        return text.removeprefix("+ ") if text.startswith("+") else f"0 {text}"

    __repr__ = __str__


class WordSymbol(Dim):
    """A symbol that stands for a word, and no dimension."""

    __slots__ = ()


class RealSymbol(Dim):
    """A symbol that stands for a floating-point number."""

    __slots__ = ()


def _shared_factors(one: Dim, other: Dim) -> tuple[str, ...]:
    """Symbols that all terms of both have as factors, each as often; a divisor's are not 0."""
    products = [Counter(product) for product in (*one.terms, *other.terms)]
    shared = functools.reduce(operator.and_, products)
    return tuple(sorted(shared.elements()))


def _multiples(number: Dim, divisor: Dim) -> Dim | None:
    """The terms that a product of symbols divides, all of which are left out of a quotient by it:
    (a * b + c) // b is a + c // b."""
    factors = [Counter(product) for product, count in divisor.terms.items() if count == 1]
    if len(factors) != len(divisor.terms) or len(factors) != 1 or not factors[0]:
        return None
    whole = {p: n for p, n in number.terms.items() if factors[0] <= Counter(p)}
    return Dim(whole) if whole else None


def _divided(number: Dim, factors: tuple[str, ...]) -> Any:
    """A Dim of which all terms have these factors, without them."""
    terms: _Terms = {}
    for product, count in number.terms.items():
        left = Counter(product) - Counter(factors)
        terms[tuple(sorted(left.elements()))] = count
    return simplest(terms)


def symbol(name: str) -> Dim:
    """A dimension that is called so."""
    return Dim({(name,): 1})


def simplest(terms: _Terms) -> Dim | int:
    """The Dim, or the number that it is."""
    found = Dim(terms)
    if not found.terms:
        return 0
    return found.terms[()] if tuple(found.terms) == ((),) else found


def _terms(number: object) -> _Terms:
    if isinstance(number, Dim):
        return number.terms
    assert isinstance(number, int), f"{number!r} is no dimension"
    return {(): int(number)} if number else {}


def is_symbol(number: object) -> bool:
    """Whether a dimension is a name alone."""
    return isinstance(number, Dim) and str(number).isidentifier()


def symbols_of(numbers: Iterable[object]) -> frozenset[str]:
    """The symbols of some dimensions."""
    trees = (ast.walk(ast.parse(str(n), mode="eval")) for n in numbers if isinstance(n, Dim))
    return frozenset(n.id for tree in trees for n in tree if isinstance(n, ast.Name))


def prefix_form(number: object) -> str:
    """A dimension in prefix form, as egglog computes it: `a * b + 1` is `(+ (* a b) 1)`."""

    def of(node: ast.expr) -> str:
        if isinstance(node, ast.BinOp):
            return f"({_PRIMITIVES[type(node.op)]} {of(node.left)} {of(node.right)})"
        if isinstance(node, ast.UnaryOp):
            return f"(- 0 {of(node.operand)})"
        assert isinstance(node, ast.Name | ast.Constant)
        return ast.unparse(node)

    return of(ast.parse(str(number), mode="eval").body)
