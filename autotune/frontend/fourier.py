"""Discrete Fourier transforms along an axis, as products with matrices of roots of unity.

In: real and imaginary parts as values of a graph being built. Out: the same. A length of two
factors is transformed along both, with a product by roots in between (Cooley and Tukey 1965),
until factors are short; a long prime is a sum over differences, which is a product of the
transforms of a longer length that has factors (Bluestein 1970).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.frontend.views import select_ranges
from autotune.types import Array

DIRECT = 160
"""The longest transform that is one product where its length has two factors (measured: 100 rows
of 128 take as long by factors, of 200 0.87 of that and of 512 0.51; Zen 4)."""
LONGEST_PRIME = 1024
"""The longest one of a length that has none: its matrix has 4 N^2 elements (chosen)."""


@dataclass(frozen=True, slots=True)
class ComplexValue:
    """A complex tensor: two values of a graph."""

    real: str
    imaginary: str


def parts_of(n: Assembler, value: str) -> ComplexValue:
    """The parts of complex numbers, which lie in the last dimension."""
    shape, last = n.shape(value)[:-1], n.rank(value) - 1
    real, imaginary = (
        n.reshape(select_ranges(n, value, {last: range(i, i + 1)}), shape) for i in (0, 1)
    )
    return ComplexValue(real, imaginary)


def joined(n: Assembler, value: ComplexValue) -> str:
    """Both parts in a last dimension."""
    parts = [n.reshape(v, (*n.shape(v), 1)) for v in (value.real, value.imaginary)]
    return n.op("concat", *parts, axis=n.rank(parts[0]) - 1)


def times(n: Assembler, a: ComplexValue, b: ComplexValue, op: str = "mul") -> ComplexValue:
    """The product of two, by a product `op` of real values."""
    further = {} if op == "mul" else {"transpose_b": False}
    one, two, three, four = (
        n.op(op, x, y, **further)
        for x, y in (
            (a.real, b.real), (a.imaginary, b.imaginary),
            (a.real, b.imaginary), (a.imaginary, b.real),
        )
    )  # fmt: skip
    return ComplexValue(n.op("sub", one, two), n.op("add", three, four))


def along(
    n: Assembler, real: str, imaginary: str | None, axis: int, *, sign: int,
    kept: int | None = None,
) -> ComplexValue:  # fmt: skip
    """The transform along an axis, of which the first `kept` elements are asked for; `sign` is
    that of the roots' angles, and nothing is divided by the length. Raises UnsupportedOpError
    where there is nothing to transform."""
    if 0 in n.shape(real):
        raise UnsupportedOpError("transforms of nothing are not supported")
    order = [d for d in range(n.rank(real)) if d != axis] + [axis]
    moved = [None if v is None else n.transpose(v, order) for v in (real, imaginary)]
    assert moved[0] is not None
    outer, extent = n.shape(moved[0])[:-1], n.shape(real)[axis]
    rows = [None if v is None else n.reshape(v, (math.prod(outer), extent)) for v in moved]
    assert rows[0] is not None
    count = extent if kept is None else kept
    z = _rows(n, rows[0], rows[1], sign, count)
    back = [order.index(d) for d in range(len(order))]
    made = [n.transpose(n.reshape(v, (*outer, count)), back) for v in (z.real, z.imaginary)]
    return ComplexValue(*made)


def back_from_half(n: Assembler, z: ComplexValue, axis: int, extent: int) -> str:
    """Real numbers along an axis of whose transform the first half is given, `extent // 2 + 1`
    elements: the other half is its mirror. Nothing is divided by the length."""
    if extent <= DIRECT or (_factor(extent) == 1 and extent <= LONGEST_PRIME):
        return _from_half(n, z, axis, extent)
    half = extent // 2 + 1
    mirror = range(extent - half, 0, -1)
    again = [select_ranges(n, v, {axis: mirror}) for v in (z.real, z.imaginary)]
    real = n.op("concat", z.real, again[0], axis=axis)
    imaginary = n.op("concat", z.imaginary, n.op("neg", again[1]), axis=axis)
    return along(n, real, imaginary, axis, sign=1).real


def _rows(n: Assembler, real: str, imaginary: str | None, sign: int, kept: int) -> ComplexValue:
    """The transforms of rows [R, N]; the first `kept` elements of each."""
    count, extent = n.shape(real)
    one = _factor(extent) if extent > DIRECT else 1
    if one == 1 and extent > LONGEST_PRIME:
        return _by_differences(n, real, imaginary, sign, kept)
    if one == 1:
        return _product(n, real, imaginary, sign, kept)
    other = extent // one
    # Place other * i + j -> [i, j]; what comes of i is k, of both k + one * l.
    columns = [
        None if v is None else n.reshape(
            n.transpose(n.reshape(v, (count, one, other)), (0, 2, 1)), (count * other, one)
        )
        for v in (real, imaginary)
    ]  # fmt: skip
    assert columns[0] is not None
    z = _rows(n, columns[0], columns[1], sign, one)
    turns = np.outer(np.arange(other), np.arange(one)) * (sign / extent)
    turned = ComplexValue(*(n.reshape(v, (count, other, one)) for v in (z.real, z.imaginary)))
    z = times(n, turned, _constant(n, turns, n.dtype(real)))
    rows = [
        n.reshape(n.transpose(v, (0, 2, 1)), (count * one, other)) for v in (z.real, z.imaginary)
    ]
    z = _rows(n, rows[0], rows[1], sign, other)
    made = [
        n.reshape(n.transpose(n.reshape(v, (count, one, other)), (0, 2, 1)), (count, extent))
        for v in (z.real, z.imaginary)
    ]
    return _first(n, ComplexValue(*made), kept)


def _product(n: Assembler, real: str, imaginary: str | None, sign: int, kept: int) -> ComplexValue:
    """[R, N] by one product with [N, 2 kept], or [R, 2 N] with [2 N, 2 kept]."""
    extent = n.shape(real)[1]
    cosines, sines = _roots(np.outer(np.arange(extent), np.arange(kept)) * (sign / extent))
    matrix = np.concatenate([cosines, sines], 1)
    x = real
    if imaginary is not None:
        matrix = np.concatenate([matrix, np.concatenate([-sines, cosines], 1)])
        x = n.op("concat", real, imaginary, axis=1)
    y = n.op("matmul", x, n.constant(matrix, n.dtype(real)), transpose_b=False)
    halves = (range(kept), range(kept, 2 * kept))
    return ComplexValue(*(select_ranges(n, y, {1: half}) for half in halves))


def _by_differences(
    n: Assembler, real: str, imaginary: str | None, sign: int, kept: int
) -> ComplexValue:
    """jk = (j^2 + k^2 - (k - j)^2) / 2: elements turned by j^2 / 2, summed up with what is turned
    back by (k - j)^2 / 2, and turned by k^2 / 2. The sum is a product of transforms of a length
    that no difference goes around twice."""
    count, extent = n.shape(real)
    length = 1 << (2 * extent - 2).bit_length()
    # Squares times half a turn: whole turns are left out as integers, which are exact.
    turns = np.array([(j * j % (2 * extent)) / (2 * extent) for j in range(extent)]) * sign
    kind = n.dtype(real)
    turn = _constant(n, turns, kind)
    if imaginary is None:
        z = ComplexValue(n.op("mul", real, turn.real), n.op("mul", real, turn.imaginary))
    else:
        z = times(n, ComplexValue(real, imaginary), turn)
    nothing = n.constant(np.zeros((count, length - extent)), kind)
    filled = [n.op("concat", v, nothing, axis=1) for v in (z.real, z.imaginary)]
    there = _rows(n, filled[0], filled[1], -1, length)
    back = np.zeros(length, np.complex128)
    back[:extent] = np.exp(-2j * np.pi * turns)
    back[length - extent + 1 :] = back[1:extent][::-1]
    factors = np.fft.fft(back) / length
    parts = ComplexValue(*(n.constant(v, kind) for v in (factors.real, factors.imag)))
    z = times(n, there, parts)
    z = _first(n, _rows(n, z.real, z.imaginary, 1, length), kept)
    return times(n, z, _constant(n, turns[:kept], kind))


def _from_half(n: Assembler, z: ComplexValue, axis: int, extent: int) -> str:
    """Elements along an axis whose transform's first half is given, by one product."""
    half = extent // 2 + 1
    cosines, sines = _roots(np.outer(np.arange(half), np.arange(extent)) / extent)
    mirrored = np.array([1 if 2 * k in (0, extent) else 2 for k in range(half)])[:, None]
    matrix = np.concatenate([cosines * mirrored, -sines * mirrored])
    order = [d for d in range(n.rank(z.real)) if d != axis] + [axis]
    parts = [n.transpose(v, order) for v in (z.real, z.imaginary)]
    outer = n.shape(parts[0])[:-1]
    x = n.op("concat", *(n.reshape(v, (math.prod(outer), half)) for v in parts), axis=1)
    y = n.op("matmul", x, n.constant(matrix, n.dtype(x)), transpose_b=False)
    back = [order.index(d) for d in range(len(order))]
    return n.transpose(n.reshape(y, (*outer, extent)), back)


def _first(n: Assembler, z: ComplexValue, kept: int) -> ComplexValue:
    """The first elements of rows."""
    return ComplexValue(*(select_ranges(n, v, {1: range(kept)}) for v in (z.real, z.imaginary)))


def _constant(n: Assembler, turns: Array, dtype: str) -> ComplexValue:
    """Roots of unity, by their angles in turns."""
    return ComplexValue(*(n.constant(part, dtype) for part in _roots(turns)))


def _roots(turns: Array) -> tuple[Array, Array]:
    """Cosines and sines of so many turns."""
    angles = 2 * np.pi * (turns - np.round(turns))
    return np.cos(angles), np.sin(angles)


@functools.cache
def _factor(extent: int) -> int:
    """The factor of a length that is nearest to its root; 1 of a prime."""
    return next(f for f in range(math.isqrt(extent), 0, -1) if extent % f == 0)
