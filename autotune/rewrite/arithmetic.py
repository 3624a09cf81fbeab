"""Numbers that operators' references are run on to prove equations, in place of floats.

    Residue   the field of the whole numbers modulo the Mersenne prime 2^61 - 1: sums, differences,
              products and fractions, exactly. Polynomials of degree d that differ are equal at a
              random point with probability d / p at most (Schwartz 1980, Zippel 1979).
    Rounding  names of floating-point results: equal where the same products are summed, in any
              order, and rounded after the same operators. What is equal here loses nothing.

Both take numpy's object arrays through every reference that adds, multiplies and moves; comparing
them is a TypeError.
"""

from __future__ import annotations

import hashlib
import numbers
from fractions import Fraction

PRIME = (1 << 61) - 1
"""A Mersenne prime: reducing by it is a shift and an addition."""
_LARGEST_DIVISOR = 1 << 20
"""The largest divisor of a float in a reference: shares of a resize are small fractions."""


class Residue:
    """A whole number modulo PRIME. Floats that meet one are the nearest fractions of small
    numbers, which is what references mean by them."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number % PRIME

    def __add__(self, other: object) -> Residue:
        return Residue(self.number + residue(other))

    __radd__ = __add__

    def __sub__(self, other: object) -> Residue:
        return Residue(self.number - residue(other))

    def __rsub__(self, other: object) -> Residue:
        return Residue(residue(other) - self.number)

    def __mul__(self, other: object) -> Residue:
        return Residue(self.number * residue(other))

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Residue:
        return Residue(self.number * pow(residue(other), -1, PRIME))

    def __rtruediv__(self, other: object) -> Residue:
        return Residue(residue(other) * pow(self.number, -1, PRIME))

    def __neg__(self) -> Residue:
        return Residue(-self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Residue | int | float) and self.number == residue(other)

    def __hash__(self) -> int:
        return hash(self.number)

    def __bool__(self) -> bool:
        return self.number != 0

    def through(self, function: str) -> Residue:
        """A function of which nothing is known but its name, here."""
        return Residue(digest(f"{function}({self.number})"))

    def rounded(self) -> Residue:
        """Itself: nothing is rounded."""
        return self


def residue(value: object) -> int:
    """A number modulo PRIME. Raises TypeError of what is none."""
    if isinstance(value, Residue | Rounding):
        return value.number
    if not isinstance(value, numbers.Rational | float):
        raise TypeError(f"{value!r} is no number here")
    exact = Fraction(value).limit_denominator(_LARGEST_DIVISOR)
    return int(exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME)


class Rounding:
    """The name of a result: sums of names of products, renamed where an operator ends."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number % PRIME

    def __add__(self, other: object) -> Rounding:
        return Rounding(self.number + residue(other))

    __radd__ = __add__

    def __sub__(self, other: object) -> Rounding:
        return Rounding(self.number - residue(other))

    def __rsub__(self, other: object) -> Rounding:
        return Rounding(residue(other) - self.number)

    def __mul__(self, other: object) -> Rounding:
        (sign, one), (turn, two) = _signed(self.number), _signed(residue(other))
        one, two = sorted((one, two))
        if one in (0, 1):  # exact, whatever the other is
            return Rounding(sign * turn * one * two)
        return Rounding(sign * turn * digest(f"{one}*{two}"))

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Rounding:
        return Rounding(digest(f"{self.number}/{residue(other)}"))

    def __rtruediv__(self, other: object) -> Rounding:
        return Rounding(digest(f"{residue(other)}/{self.number}"))

    def __neg__(self) -> Rounding:
        return Rounding(-self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rounding | int | float) and self.number == residue(other)

    def __hash__(self) -> int:
        return hash(self.number)

    def __bool__(self) -> bool:
        return self.number != 0

    def through(self, function: str) -> Rounding:
        """A function of which nothing is known but its name, here."""
        return Rounding(digest(f"{function}({self.number})"))

    def rounded(self) -> Rounding:
        """What an operator's end makes of a sum."""
        sign, size = _signed(self.number)
        return Rounding(sign * digest(f"round {size}")) if size else self


def _signed(number: int) -> tuple[int, int]:
    """(sign, size): rounding is the same on both sides of zero."""
    return (1, number) if number <= PRIME // 2 else (-1, PRIME - number)


def through(number: Residue | Rounding | int, function: str) -> Residue | Rounding | int:
    """A function of which nothing is known but its name, of a number of any of the kinds here."""
    if isinstance(number, Residue | Rounding):
        return number.through(function)
    return digest(f"{function}({number})") - PRIME // 2


def digest(text: str) -> int:
    """A number modulo PRIME that a text gives: as good as drawn for it at random."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest()) % PRIME
