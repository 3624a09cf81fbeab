"""Transforms of Winograd's minimal filtering F(m, r): m outputs of an r-tap filter by m + r - 1
multiplications instead of m * r.

y = A^T [(G g) * (B^T d)]. In: m, r and the stride. Out: the three matrices, exact until the last
conversion. With a stride s, taps 0, s, 2s... see only every s-th input, taps 1, s + 1... those
between, and so on: the result is the sum of s filters without stride, one beside the other.
Source: Toom-Cook multiplication, transposed (Winograd 1980; Lavin and Gray, arXiv 1509.09308).
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from fractions import Fraction

from autotune.errors import ScheduleError

Matrix = tuple[tuple[float, ...], ...]
LEAST_SHARED = 3
"""Elements of two rows from which computing what they share takes fewer additions."""
# Small points of both signs and their inverses lose the fewest digits; of pairs of those, these
# lose fewest as the last four (Barabasz et al. 2018 search so).
_POINTS = (
    0, 1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2), Fraction(3, 4), Fraction(-3, 4),
    Fraction(4, 3), Fraction(-4, 3),
)  # fmt: skip


def points_of(m: int, r: int, stride: int = 1) -> int:
    """Multiplications of F(m, r) at a stride; as many inputs are read."""
    return stride * (m - 1) + r


@functools.cache
def transforms(m: int, r: int, stride: int = 1) -> tuple[Matrix, Matrix, Matrix]:
    """(A^T [m, a], G [a, r], B^T [a, a]) with a = points_of(m, r, stride).

    Raises ScheduleError where there are more points than are known."""
    if stride > 1 and m > 1 and r < stride:
        raise ScheduleError(f"no F({m}, {r}) at stride {stride}: some inputs meet no tap")
    outputs: list[list[Fraction]] = [[] for _ in range(m)]
    a = points_of(m, r, stride)
    filters, inputs = [], []
    for phase in range(min(stride, r)):
        ours = _plain(m, len(range(phase, r, stride)))
        for row, part in zip(outputs, ours[0], strict=True):
            row.extend(part)
        filters += [_spread(row, r, phase, stride) for row in ours[1]]
        inputs += [_spread(row, a, phase, stride) for row in ours[2]]
    return _floats(outputs), _floats(filters), _floats(inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of B^T that has rows and columns of its own: those rows from `row` on, and every
    `step`-th column from `column` on."""

    matrix: Matrix
    row: int
    column: int
    step: int


@functools.cache
def phases(m: int, r: int, stride: int = 1) -> tuple[Phase, ...]:
    """B^T of `transforms`, part by part; a single one without stride."""
    whole, found, row = transforms(m, r, stride)[2], list[Phase](), 0
    for phase in range(min(stride, r)):
        size = m + len(range(phase, r, stride)) - 1
        part = tuple(line[phase::stride][:size] for line in whole[row : row + size])
        found.append(Phase(matrix=part, row=row, column=phase, step=stride))
        row += size
    return tuple(found)


def _spread(row: list[Fraction], width: int, first: int, step: int) -> list[Fraction]:
    """The row with zeros between: entry k at first + k * step."""
    out = [Fraction(0)] * width
    out[first::step] = row
    return out


def _plain(m: int, r: int) -> tuple[list[list[Fraction]], ...]:
    """The matrices without stride."""
    a = m + r - 1
    if r == 1:
        identity = [[Fraction(int(i == j)) for j in range(m)] for i in range(m)]
        return identity, [[Fraction(1)] for _ in range(m)], identity
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
    return outputs, filters, inputs


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


@functools.cache
def factored(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """(C, D) with C D = matrix: what rows, or else columns, of points of both signs share is
    computed once, their sums and differences in C. One of the two is the unit matrix where nothing
    is shared."""
    ours, turned = _by_rows(matrix), _by_rows(_turned(matrix))
    if ours is None and turned is None:
        return _unit(len(matrix)), matrix
    if turned is None or (ours is not None and additions(ours) <= additions(turned)):
        assert ours is not None
        return ours
    return _turned(turned[1]), _turned(turned[0])


def additions(matrices: tuple[Matrix, ...]) -> int:
    """Additions, or multiply-adds, in products of the matrices and a vector."""
    return sum(sum(v != 0 for v in row) - 1 for matrix in matrices for row in matrix)


def _by_rows(matrix: Matrix) -> tuple[Matrix, Matrix] | None:
    """Pairs of rows that are alike but for signs as the sum and the difference of two rows: of
    what is the same in both, and of what is not. None where no pair gains."""
    combine = [list(row) for row in _unit(len(matrix))]
    parts = [list(row) for row in matrix]
    gains = False
    for i, j in itertools.combinations(range(len(matrix)), 2):
        same = [v if v == w else 0.0 for v, w in zip(matrix[i], matrix[j], strict=True)]
        other = [v if v == -w else 0.0 for v, w in zip(matrix[i], matrix[j], strict=True)]
        alike = all(v == s + o for v, s, o in zip(matrix[i], same, other, strict=True))
        free = parts[i] == list(matrix[i]) and parts[j] == list(matrix[j])
        if not alike or not free or not any(same) or not any(other):
            continue
        if sum(v != 0 for v in matrix[i]) < LEAST_SHARED:
            continue
        parts[i], parts[j], gains = same, other, True
        combine[i][j], combine[j][i], combine[j][j] = 1.0, 1.0, -1.0
    return (_frozen(combine), _frozen(parts)) if gains else None


def _unit(size: int) -> Matrix:
    return tuple(tuple(float(i == j) for j in range(size)) for i in range(size))


def _turned(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _frozen(rows: list[list[float]]) -> Matrix:
    return tuple(tuple(row) for row in rows)
