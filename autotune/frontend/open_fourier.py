"""Discrete Fourier transforms along an axis whose extent only a run knows. In: values of a graph
being built. Out: a product with a matrix of roots of unity that the run works out, whose angles
are whole numbers of the extent's parts, as those of `fourier` are.
"""

from __future__ import annotations

import math

from autotune.errors import UndecidedError
from autotune.frontend.assembly import Assembler
from autotune.frontend.fourier import LONGEST_PRIME
from autotune.frontend.views import OpenRange, counted_up, select_ranges

_WHOLE = "int64"


def transformed(n: Assembler, x: str, length: int, *, inverse: bool, half: bool) -> str:
    """x [..., extent, parts] transformed along the extent. `half`: of what real numbers give, or
    are made of, the first half. Raises UndecidedError for lengths that are cut or filled, and
    those whose matrix would be large."""
    *outer, extent, parts = n.shape(x)
    given = length // 2 + 1 if inverse and half else length
    if extent != given:
        raise UndecidedError(f"a transform of {length} elements of {extent}")
    if length > LONGEST_PRIME:
        raise UndecidedError(f"a matrix of {length} by {length} roots")
    made = length // 2 + 1 if half and not inverse else length
    cosines, sines = _roots(n, extent, made, length, n.dtype(x))
    kept = 1 if inverse and half else 2
    if kept == 1:
        weights = _mirrored(n, extent, length, n.dtype(x))
        cosines, sines = (n.op("mul", part, weights) for part in (cosines, sines))
    # (a + bi) (c -+ si): what of a and b goes into real parts, and what into imaginary ones.
    turn = sines if inverse else n.op("neg", sines)
    of_real, of_imaginary = [cosines, turn][:kept], [n.op("neg", turn), cosines][:kept]
    matrix = [_beside(n, of_real), _beside(n, of_imaginary)][:parts]
    rows = n.reshape(x, (math.prod(outer), extent, parts))
    y = ""
    for part, factors in enumerate(matrix):
        column = n.reshape(
            select_ranges(n, rows, {2: range(part, part + 1)}), (math.prod(outer), extent)
        )
        term = n.op("matmul", column, factors, transpose_b=False)
        y = n.op("add", y, term) if y else term
    if inverse:
        one = n.scalar(1.0, n.dtype(x))
        y = n.op("mul", y, n.op("div", one, n.scalar(length, n.dtype(x))))
    halves = [
        n.reshape(
            select_ranges(n, y, {1: OpenRange(p * made, (p + 1) * made, 1)}), (*outer, made, 1)
        )
        for p in range(kept)
    ]
    return n.op("concat", *halves, axis=len(outer) + 1) if kept > 1 else halves[0]


def _roots(n: Assembler, rows: int, columns: int, length: int, kind: str) -> tuple[str, str]:
    """Cosines and sines [rows, columns] of row * column / length turns."""
    row = n.reshape(counted_up(n, 0, rows), (rows, 1))
    column = n.reshape(counted_up(n, 0, columns), (1, columns))
    at, whole = n.op("mul", row, column), n.scalar(length, _WHOLE)
    rest = n.op("sub", at, n.op("mul", n.op("div", at, whole), whole))
    share = n.op("div", n.cast(rest, "float64"), n.cast(whole, "float64"))
    angle = n.cast(n.op("mul", share, n.scalar(2 * math.pi, "float64")), "float32")
    return n.cast(n.op("cos", angle), kind), n.cast(n.op("sin", angle), kind)


def _mirrored(n: Assembler, rows: int, length: int, kind: str) -> str:
    """How often a half's elements stand in the whole: once the first one, and the one at half of
    an even length."""
    at = n.reshape(counted_up(n, 0, rows), (rows, 1))
    ends = [
        n.cast(n.op("eq", place, n.scalar(other, _WHOLE)), kind)
        for place, other in ((at, 0), (n.op("mul", at, n.scalar(2, _WHOLE)), length))
    ]
    return n.op("sub", n.scalar(2.0, kind), n.op("add", *ends))


def _beside(n: Assembler, parts: list[str]) -> str:
    return n.op("concat", *parts, axis=1) if len(parts) > 1 else parts[0]
