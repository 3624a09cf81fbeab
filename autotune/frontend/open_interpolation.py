"""Axes resized between extents that only a run knows. In: a value, an axis, a method. Out: gathers
of the elements around each place, and sums of them by weights that the run works out.

Places are ratios of whole numbers, as those of the op `resize` are, so that no rounding decides
which elements are nearest. They are vectors as long as the axis, which take no time beside it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from autotune.errors import UndecidedError
from autotune.frontend.assembly import Assembler
from autotune.frontend.views import counted_up

_WHOLE = "int64"


class OpenAxis(NamedTuple):
    """An axis, its extents before and after, and the standard's name of how places are counted."""

    axis: int
    before: int
    after: int
    coordinate: str
    factor: Fraction | None = None
    """What coordinates are divided by; None: the ratio of the extents."""


class _PlaceLine(NamedTuple):
    """Values of the graph: where element i lies, (i * slope + offset) / divisor."""

    slope: str
    offset: str
    divisor: str


def nearest_on_axis(n: Assembler, x: str, along: OpenAxis, nearest: str) -> str:
    """The nearest elements. Raises UndecidedError for coordinates that are not ratios."""
    line = _line(n, along)
    at, divisor = _numerators(n, line, along.after), line.divisor
    if nearest.startswith("round"):
        at, divisor = _twice(n, at), _twice(n, divisor)
        at = n.op("add", at, line.divisor)
    if nearest == "ceil":
        at = n.op("add", at, divisor)
    if nearest in ("ceil", "round_prefer_floor"):
        at = n.op("sub", at, n.scalar(1, _WHOLE))
    rows = _inside(n, _floor(n, at, divisor), along.before)
    return n.op("gather", x, rows, axis=along.axis)


def mixed_on_axis(n: Assembler, x: str, along: OpenAxis, cubic_a: float | None) -> str:
    """The same between two elements, or four by Keys' cubic kernel of `cubic_a`."""
    line = _line(n, along)
    at = _numerators(n, line, along.after)
    first = _floor(n, at, line.divisor)
    rest = n.op("sub", at, n.op("mul", first, line.divisor))
    kind = n.dtype(x)
    share = n.op("div", n.cast(rest, kind), n.cast(line.divisor, kind))
    share = n.reshape(share, (along.after, *[1] * (n.rank(x) - along.axis - 1)))
    total = ""
    for tap, weight in _weights(n, share, cubic_a).items():
        row = n.op("add", first, n.scalar(tap, _WHOLE))
        picked = n.op("gather", x, _inside(n, row, along.before), axis=along.axis)
        part = n.op("mul", picked, weight)
        total = n.op("add", total, part) if total else part
    return total


def _line(n: Assembler, along: OpenAxis) -> _PlaceLine:
    _, before, after, coordinate, factor = along
    # Elements are as far apart as if this many became that many.
    from_, to = (before, after) if factor is None else (factor.denominator, factor.numerator)

    def size(amount: int) -> str:
        return n.scalar(amount, _WHOLE)

    if coordinate == "asymmetric":
        return _PlaceLine(size(from_), size(0), size(to))
    if coordinate == "align_corners":
        return _PlaceLine(size(before - 1), size(0), n.op("max", size(after - 1), size(1)))
    if coordinate not in ("half_pixel", "pytorch_half_pixel"):
        raise UndecidedError(f"{coordinate} places between {before} and {after} elements")
    offset = size(from_ - to)
    if coordinate == "pytorch_half_pixel":  # a single element lies at the first
        offset = n.op("mul", offset, n.op("min", size(after - 1), size(1)))
    return _PlaceLine(size(2 * from_), offset, size(2 * to))


def _numerators(n: Assembler, line: _PlaceLine, after: int) -> str:
    """Numerators of the places of all elements, none of which is before -1."""
    return n.op("add", n.op("mul", counted_up(n, 0, after), line.slope), line.offset)


def _twice(n: Assembler, value: str) -> str:
    return n.op("mul", value, n.scalar(2, _WHOLE))


def _floor(n: Assembler, at: str, divisor: str) -> str:
    """at / divisor rounded down, for places from -1 on: division of integers cuts towards 0."""
    quotient = n.op("div", n.op("add", at, divisor), divisor)
    return n.op("sub", quotient, n.scalar(1, _WHOLE))


def _inside(n: Assembler, rows: str, extent: int) -> str:
    """Those beyond the border are the border's."""
    least = n.op("max", rows, n.scalar(0, _WHOLE))
    return n.op("min", least, n.scalar(extent - 1, _WHOLE))


def _weights(n: Assembler, share: str, cubic_a: float | None) -> dict[int, str]:
    """By tap, counted from the element at or before a place, its weight."""
    one = n.like(1.0, share)
    rest = n.op("sub", one, share)
    if cubic_a is None:
        return {0: rest, 1: share}
    a = cubic_a

    def polynomial(distance: str, *coefficients: float) -> str:
        """By Horner's rule, the highest power first."""
        total = n.like(coefficients[0], share)
        for c in coefficients[1:]:
            total = n.op("add", n.op("mul", total, distance), n.like(c, share))
        return total

    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    return {
        -1: polynomial(n.op("add", share, one), *far),
        0: polynomial(share, *near),
        1: polynomial(rest, *near),
        2: polynomial(n.op("add", rest, one), *far),
    }
