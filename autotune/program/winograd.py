"""Transforms of Winograd's minimal filtering F(m, r): m outputs of an r-tap filter by m + r - 1
multiplications instead of m * r.

y = A^T [(G g) * (B^T d)]. In: m and r. Out: the three matrices, exact until the last conversion.
Source: Toom-Cook multiplication, transposed (Winograd 1980; Lavin and Gray, arXiv 1509.09308).
"""

from __future__ import annotations

import functools
from fractions import Fraction

from autotune.errors import ScheduleError

Matrix = tuple[tuple[float, ...], ...]
# Small points of both signs and their inverses lose the fewest digits.
_POINTS = (0, 1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2))


@functools.cache
def transforms(m: int, r: int) -> tuple[Matrix, Matrix, Matrix]:
    """(A^T [m, a], G [a, r], B^T [a, a]) with a = m + r - 1."""
    a = m + r - 1
    if a - 1 > len(_POINTS):
        raise ScheduleError(f"no F({m}, {r}): it needs {a} points, {len(_POINTS) + 1} are known")
    points = [Fraction(p) for p in _POINTS[: a - 1]]
    inverse = _inverse(_vandermonde(points, a))
    scales = [_scale(points, i) for i in range(a - 1)] + [Fraction(1)]
    outputs = _transposed(_vandermonde(points, m))
    filters = [
        [v / s for v in row] for row, s in zip(_vandermonde(points, r), scales, strict=True)
    ]
    inputs = [[v * s for v in row] for row, s in zip(_transposed(inverse), scales, strict=True)]
    return _floats(outputs), _floats(filters), _floats(inputs)


def _vandermonde(points: list[Fraction], width: int) -> list[list[Fraction]]:
    """Powers of the points, and of the point at infinity as the last row."""
    rows = [[p**k for k in range(width)] for p in points]
    return [*rows, [Fraction(int(k == width - 1)) for k in range(width)]]


def _scale(points: list[Fraction], i: int) -> Fraction:
    """What makes row i of B^T whole numbers."""
    out = Fraction(1)
    for j, p in enumerate(points):
        if j != i:
            out *= points[i] - p
    return out


def _transposed(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _inverse(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    """Gauss-Jordan over the rationals."""
    n = len(rows)
    work = [[*row, *(Fraction(int(i == j)) for j in range(n))] for i, row in enumerate(rows)]
    for c in range(n):
        pivot = next(i for i in range(c, n) if work[i][c])
        work[c], work[pivot] = work[pivot], work[c]
        work[c] = [v / work[c][c] for v in work[c]]
        for i in range(n):
            if i != c and work[i][c]:
                factor = work[i][c]
                work[i] = [v - factor * u for v, u in zip(work[i], work[c], strict=True)]
    return [row[n:] for row in work]


def _floats(rows: list[list[Fraction]]) -> Matrix:
    return tuple(tuple(float(v) for v in row) for row in rows)
