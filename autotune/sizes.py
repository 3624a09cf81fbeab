"""Sizes that are known only when a model runs: integer expressions of symbols.

    size   := sum of  coefficient * factor * ...  plus a constant
    factor := SYMBOL | (size // n)

A `Size` stands where an `int` does (a dimension, a stride, a loop's extent) and takes part in the
same arithmetic; what does not depend on a symbol is an `int` again. Equality is that of normal
forms: equal for all values, or not. An order that the symbols' ranges do not decide raises
`UndecidedError`, and nothing turns a Size into an int by accident (`range`, numpy and indexing
refuse it): code that was made for known sizes fails loudly where it needs one. `least` and
`greatest` are bounds, `surely_less` and `surely_at_most` ask without raising.

To the type checker a Size is an `int`: most signatures never look at which of the two it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeGuard, cast

from autotune.errors import UndecidedError

UNBOUNDED = 1 << 31
"""What a symbol without an upper bound is taken to be less than: dimensions are."""
_DEEPEST = 4
"""Quotients replaced, one after the other, in search of a bound."""


@dataclass(frozen=True, slots=True)
class SizeSymbol:
    """An integer known at run time, from `low` to `high`, both included; not negative."""

    name: str
    low: int = 1
    high: int = UNBOUNDED

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"range of {self.name} must be 0 <= low <= high, got {self}")


@dataclass(frozen=True, slots=True)
class Quotient:
    """size // divisor, rounding down; the size is never negative."""

    size: Size
    divisor: int


Factor = SizeSymbol | Quotient
Product = tuple[Factor, ...]


class Size:
    """A sum of products; see the module. Made by `symbol` and by arithmetic."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Product, int], ...]) -> None:
        self.terms = terms
        self._hash = 0  # not known yet

    def __hash__(self) -> int:
        self._hash = self._hash or hash(self.terms)
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (self.terms,)

    def __bool__(self) -> bool:
        """False is what is 0 for all values, and that is no Size."""
        return True

    def __repr__(self) -> str:
        return " + ".join(_product_text(p, c) for p, c in self.terms).replace("+ -", "- ")

    # -------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: object) -> int:
        if isinstance(other, int):  # a sum's number comes first: the order of the others stays
            there = not self.terms[0][0]
            number = other + self.terms[0][1] * there
            return cast(int, Size(_terms(number) * bool(number) + self.terms[there:]))
        return _sum([*self.terms, *_terms(other)]) if _is_amount(other) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> int:
        return self * -1

    def __sub__(self, other: object) -> int:
        return self + -other if _is_amount(other) else NotImplemented

    def __rsub__(self, other: object) -> int:
        return -self + other if _is_amount(other) else NotImplemented

    def __mul__(self, other: object) -> int:
        if isinstance(other, int):
            return cast(int, Size(tuple((p, c * other) for p, c in self.terms))) if other else 0
        if not _is_amount(other):
            return NotImplemented
        return _sum(
            (tuple(sorted(p + q, key=_factor_text)), c * d)
            for p, c in self.terms
            for q, d in _terms(other)
        )

    __rmul__ = __mul__

    def __floordiv__(self, divisor: object) -> int:
        if isinstance(divisor, Size):
            return _exact(self, divisor)
        if not isinstance(divisor, int):
            return NotImplemented
        whole = [(p, c // divisor) for p, c in self.terms]
        rest = _sum((p, c % divisor) for p, c in self.terms)
        if divisor < 1:
            raise UndecidedError(f"({self}) // {divisor}")
        quotient = _quotient(rest, divisor)
        return _sum([*whole, *_terms(quotient)])

    def __rfloordiv__(self, other: object) -> int:
        if not isinstance(other, int) or not surely_less(abs(other), self):
            raise UndecidedError(f"{other} // ({self})")
        return -1 if other < 0 else 0

    def __mod__(self, divisor: object) -> int:
        if not _is_amount(divisor):
            return NotImplemented
        return self - (self // divisor) * divisor

    def __rmod__(self, other: object) -> int:
        return NotImplemented if not isinstance(other, int) else other - (other // self) * self

    # ------------------------------------------------------------------------------------- order

    def __lt__(self, other: object) -> bool:
        return self._less(self, other, f"{self} < {other}")

    def __le__(self, other: object) -> bool:
        return not self._less(other, self, f"{self} <= {other}")

    def __gt__(self, other: object) -> bool:
        return self._less(other, self, f"{self} > {other}")

    def __ge__(self, other: object) -> bool:
        return not self._less(self, other, f"{self} >= {other}")

    @staticmethod
    def _less(first: object, second: object, asked: str) -> bool:
        less = surely_less(first, second)
        if not less and not surely_at_most(second, first):
            raise UndecidedError(asked, (cast(int, first), cast(int, second)))
        return less


def symbol(name: str, low: int = 1, high: int = UNBOUNDED) -> int:
    """The size that is a symbol's value."""
    return _sum([((SizeSymbol(name, low, high),), 1)])


def is_size(amount: object) -> TypeGuard[Any]:
    """Whether an amount is known at run time only."""
    return isinstance(amount, Size)


def any_size(amounts: Iterable[object]) -> bool:
    return any(map(is_size, amounts))


def symbols_of(amount: object) -> frozenset[SizeSymbol]:
    """Every symbol that an amount depends on."""
    return frozenset(_symbols(amount) if isinstance(amount, Size) else ())


def value_at(amount: int, values: Mapping[str, int]) -> int:
    """An amount where the symbols have these values. KeyError for one that is missing."""
    if not is_size(amount):
        return amount
    return sum(c * math.prod(_factor_at(f, values) for f in p) for p, c in amount.terms)


def least(amount: int) -> int:
    """A lower bound for all values; the least one itself where all terms grow with the symbols."""
    return _least(amount, _DEEPEST)


def greatest(amount: int) -> int:
    """An upper bound that holds for all values."""
    return -_least(-amount, _DEEPEST)


def surely_less(first: object, second: object) -> bool:
    """Whether first < second for all values."""
    if type(first) is int and type(second) is int:
        return first < second
    return least(cast(int, second) - cast(int, first)) > 0


def surely_at_most(first: object, second: object) -> bool:
    """Whether first <= second for all values."""
    if type(first) is int and type(second) is int:
        return first <= second
    return least(cast(int, second) - cast(int, first)) >= 0


def ratio(amount: int, other: int) -> Fraction:
    """amount / other where that is the same for all values; UndecidedError where it is not."""
    found = Fraction(_terms(amount)[-1][1], _terms(other)[-1][1])
    if amount * found.denominator != other * found.numerator:
        raise UndecidedError(f"({amount}) / ({other})")
    return found


def ceil_div(amount: int, divisor: int) -> int:
    """amount / divisor, rounding up."""
    return (amount + divisor - 1) // divisor


# ------------------------------------------------------------------------------------------- parts


def _is_amount(value: object) -> TypeGuard[int]:
    return isinstance(value, int | Size)


def _terms(amount: object) -> tuple[tuple[Product, int], ...]:
    return amount.terms if isinstance(amount, Size) else (((), cast(int, amount)),)


def _sum(terms: Iterable[tuple[Product, int]]) -> int:
    """The sum in normal form: products in the order of their text, none of them zero."""
    total: dict[Product, int] = {}
    for product, c in terms:
        total[product] = total.get(product, 0) + c
    kept = sorted(((p, c) for p, c in total.items() if c), key=lambda t: _product_key(t[0]))
    if not kept or (len(kept) == 1 and not kept[0][0]):
        return kept[0][1] if kept else 0
    return cast(int, Size(tuple(kept)))


def _quotient(rest: int, divisor: int) -> int:
    """rest // divisor, where all coefficients are from 0 to divisor - 1; what is a quotient of a
    quotient alone is one quotient."""
    if not is_size(rest):
        return rest // divisor
    if greatest(rest) < divisor:
        return 0
    variable = [(p, c) for p, c in rest.terms if p]
    if sum(2 * c - divisor for _, c in variable) > 0:
        # (6x + k) // 7  =  x - (x - k + 6) // 7: what lacks to a multiple is a product of 7.
        whole = _sum((p, 1) for p, _ in variable)
        return whole - (divisor * (whole + 1) - 1 - cast(int, rest)) // divisor
    if len(variable) == 1 and variable[0][1] == 1 and len(variable[0][0]) == 1:
        (factor,) = variable[0][0]
        if isinstance(factor, Quotient):
            # ((x // a) + b) // d  =  (x + a*b) // (a*d)
            const = cast(int, rest) - _sum(variable)
            return (cast(int, factor.size) + const * factor.divisor) // (factor.divisor * divisor)
    return _sum([((Quotient(cast(Size, rest), divisor),), 1)])


def _exact(amount: Size, divisor: Size) -> int:
    """amount / divisor where it is a polynomial; UndecidedError where it is none."""
    left: int = cast(int, amount)
    lead, factor = divisor.terms[-1]
    out = 0
    while is_size(left):
        found = next((t for t in reversed(left.terms) if _divides(lead, factor, t)), None)
        if found is None:
            break
        part = _sum([(_without(found[0], lead), found[1] // factor)])
        out += part
        left -= part * cast(int, divisor)
    if left != 0:
        raise UndecidedError(f"({amount}) // ({divisor})")
    return out


def _divides(lead: Product, factor: int, term: tuple[Product, int]) -> bool:
    product, c = term
    return c % factor == 0 and all(product.count(f) >= lead.count(f) for f in lead)


def _without(product: Product, lead: Product) -> Product:
    left = list(product)
    for factor in lead:
        left.remove(factor)
    return tuple(left)


@functools.lru_cache(maxsize=65536)
def _least(amount: int, depth: int) -> int:
    if not is_size(amount):
        return amount
    best = _least_of_terms(amount)
    if best < 0 and depth:
        for quotient, scale in _quotients(amount).items():
            bound = _least(_replaced(cast(Size, amount * scale), quotient), depth - 1)
            best = max(best, ceil_div(bound, scale))
    return best


def _least_of_terms(amount: Size) -> int:
    """With every factor written as its least value plus a rest that is not negative, the sum of
    the products' least values."""
    shifted: dict[Product, int] = {}
    for product, c in amount.terms:
        for rest, scale in _shifted(product):
            shifted[rest] = shifted.get(rest, 0) + c * scale
    total = 0
    for rest, c in shifted.items():
        if not rest:
            total += c
        elif c < 0:
            total += c * math.prod(_high(f) - _low(f) for f in rest)
    return total


def _shifted(product: Product) -> Iterator[tuple[Product, int]]:
    """(a + x)(b + y) .. as products of what varies, and what is before them."""
    for picked in range(1 << len(product)):
        rest = tuple(f for i, f in enumerate(product) if picked >> i & 1)
        scale = math.prod(_low(f) for i, f in enumerate(product) if not picked >> i & 1)
        if scale:
            yield rest, scale


def _replaced(amount: Size, quotient: Quotient) -> int:
    """A lower bound without a quotient: d * (x // d) is at least x - d + 1 and at most x."""
    size, divisor = cast(int, quotient.size), quotient.divisor
    out = 0
    for product, c in amount.terms:
        if product.count(quotient) != 1 or c % divisor:
            out += _sum([(product, c)])
            continue
        bound = size - (divisor - 1) if c > 0 else size
        out += _sum([(_without(product, (quotient,)), c // divisor)]) * bound
    return out


def _quotients(amount: Size) -> dict[Quotient, int]:
    """Quotients, and what to scale the sum by for whole multiples of their divisors to stand
    before them."""
    out: dict[Quotient, int] = {}
    for product, c in amount.terms:
        for factor in product:
            if isinstance(factor, Quotient):
                scale = factor.divisor // math.gcd(c, factor.divisor)
                out[factor] = math.lcm(out.get(factor, 1), scale)
    return out


def _low(factor: Factor) -> int:
    if isinstance(factor, SizeSymbol):
        return factor.low
    return max(0, least(cast(int, factor.size)) // factor.divisor)


def _high(factor: Factor) -> int:
    if isinstance(factor, SizeSymbol):
        return factor.high
    return greatest(cast(int, factor.size)) // factor.divisor


def _symbols(amount: Size) -> Iterator[SizeSymbol]:
    for product, _ in amount.terms:
        for factor in product:
            yield from (factor,) if isinstance(factor, SizeSymbol) else _symbols(factor.size)


def _factor_at(factor: Factor, values: Mapping[str, int]) -> int:
    if isinstance(factor, SizeSymbol):
        return values[factor.name]
    return value_at(cast(int, factor.size), values) // factor.divisor


def _factor_text(factor: Factor) -> str:
    return (
        factor.name if isinstance(factor, SizeSymbol) else f"(({factor.size})//{factor.divisor})"
    )


@functools.lru_cache(maxsize=65536)
def _product_key(product: Product) -> tuple[int, tuple[str, ...]]:
    return len(product), tuple(map(_factor_text, product))


def _product_text(product: Product, coefficient: int) -> str:
    words = [_factor_text(f) for f in product]
    if coefficient == -1 and words:
        return f"-{'*'.join(words)}"
    return "*".join([str(coefficient)] * (coefficient != 1 or not words) + words)
