"""ATen importers: discrete Fourier transforms, as products with matrices of roots of unity.

A length of two factors is transformed along both, with a product by roots in between (Cooley and
Tukey 1965), until factors are short.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.complex_parts import times
from autotune.frontend.torch.context import AtenCall, ComplexValue, aten
from autotune.frontend.views import select_ranges
from autotune.types import Array

DIRECT = 256
"""The longest transform that is one product where its length has two factors."""
LONGEST_PRIME = 2048
"""The longest one of a length that has none: its matrix has 4 N^2 elements."""
_NORMS = {0: 0.0, 1: 0.5, 2: 1.0}
"""PyTorch's number of a norm -> the power of the length that is divided by."""


@aten("complex._fft_r2c")
def of_real(n: AtenCall) -> ComplexValue:
    """The last of the axes is halved where `onesided`, since its second half mirrors the first."""
    x = n.value("self")
    *others, last = _axes(n, n.rank(x))
    extent = n.shape(x)[last]
    kept = extent // 2 + 1 if n.arg("onesided", True) else extent
    z = _along(n, x, None, last, sign=-1, kept=kept)
    for axis in others:
        z = _along(n, z.real, z.imaginary, axis, sign=-1)
    return _scaled(n, z, [n.shape(x)[a] for a in (*others, last)])


@aten("complex._fft_c2c")
def of_complex(n: AtenCall) -> ComplexValue:
    z = n.complex_value("self")
    sign, axes = -1 if n.arg("forward", True) else 1, _axes(n, n.rank(z.real))
    for axis in axes:
        z = _along(n, z.real, z.imaginary, axis, sign=sign)
    return _scaled(n, z, [n.shape(z.real)[a] for a in axes])


@aten("complex._fft_c2r")
def to_real(n: AtenCall) -> str:
    """What has the given half as its transform: the other half is its mirror."""
    z, extent = n.complex_value("self"), n.integer("last_dim_size")
    *others, last = _axes(n, n.rank(z.real))
    for axis in others:
        z = _along(n, z.real, z.imaginary, axis, sign=1)
    half = extent // 2 + 1
    z = ComplexValue(*(select_ranges(n, v, {last: range(half)}) for v in (z.real, z.imaginary)))
    if extent <= DIRECT or _factor(extent) == 1:
        y = _from_half(n, z, last, extent)
    else:
        mirror = range(extent - half, 0, -1)
        again = [select_ranges(n, v, {last: mirror}) for v in (z.real, z.imaginary)]
        real = n.op("concat", z.real, again[0], axis=last)
        imaginary = n.op("concat", z.imaginary, n.op("neg", again[1]), axis=last)
        y = _along(n, real, imaginary, last, sign=1).real
    extents = [*(n.shape(y)[a] for a in others), extent]
    factor = _norm(n, extents)
    return y if factor == 1 else n.op("mul", y, n.like(factor, y))


def _axes(n: AtenCall, rank: int) -> list[int]:
    axes = [a % rank for a in n.integers("dim")]
    if not axes:
        raise UnsupportedOpError("transforms along no axis are not supported")
    return axes


def _norm(n: AtenCall, extents: Sequence[int]) -> float:
    return float(math.pow(math.prod(extents), -_NORMS[n.integer("normalization")]))


def _scaled(n: AtenCall, z: ComplexValue, extents: Sequence[int]) -> ComplexValue:
    factor = _norm(n, extents)
    if factor == 1:
        return z
    number = n.like(factor, z.real)
    return ComplexValue(n.op("mul", z.real, number), n.op("mul", z.imaginary, number))


def _along(
    n: AtenCall, real: str, imaginary: str | None, axis: int, *, sign: int, kept: int | None = None
) -> ComplexValue:
    """The transform along an axis, of which the first `kept` elements are asked for."""
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


def _rows(n: AtenCall, real: str, imaginary: str | None, sign: int, kept: int) -> ComplexValue:
    """The transforms of rows [R, N]; the first `kept` elements of each."""
    count, extent = n.shape(real)
    one = _factor(extent) if extent > DIRECT else 1
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
    roots = ComplexValue(*(n.constant(r, n.dtype(real)) for r in _roots(turns)))
    z = times(n, turned, roots)
    rows = [
        n.reshape(n.transpose(v, (0, 2, 1)), (count * one, other)) for v in (z.real, z.imaginary)
    ]
    z = _rows(n, rows[0], rows[1], sign, other)
    made = [
        n.reshape(n.transpose(n.reshape(v, (count, one, other)), (0, 2, 1)), (count, extent))
        for v in (z.real, z.imaginary)
    ]
    return ComplexValue(*(select_ranges(n, v, {1: range(kept)}) for v in made))


def _product(n: AtenCall, real: str, imaginary: str | None, sign: int, kept: int) -> ComplexValue:
    """[R, N] by one product with [N, 2 kept], or [R, 2 N] with [2 N, 2 kept]."""
    extent = n.shape(real)[1]
    if extent > LONGEST_PRIME:
        n.refuse(f"a transform of {extent} elements")
    cosines, sines = _roots(np.outer(np.arange(extent), np.arange(kept)) * (sign / extent))
    matrix = np.concatenate([cosines, sines], 1)
    x = real
    if imaginary is not None:
        matrix = np.concatenate([matrix, np.concatenate([-sines, cosines], 1)])
        x = n.op("concat", real, imaginary, axis=1)
    y = n.op("matmul", x, n.constant(matrix, n.dtype(real)), transpose_b=False)
    halves = (range(kept), range(kept, 2 * kept))
    return ComplexValue(*(select_ranges(n, y, {1: half}) for half in halves))


def _from_half(n: AtenCall, z: ComplexValue, axis: int, extent: int) -> str:
    """Elements along an axis whose transform's first half is given, by one product."""
    if extent > LONGEST_PRIME:
        n.refuse(f"a transform of {extent} elements")
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


def _roots(turns: Array) -> tuple[Array, Array]:
    """Cosines and sines of so many turns."""
    angles = 2 * np.pi * (turns - np.round(turns))
    return np.cos(angles), np.sin(angles)


@functools.cache
def _factor(extent: int) -> int:
    """The factor of a length that is nearest to its root; 1 of a prime."""
    return next(f for f in range(math.isqrt(extent), 0, -1) if extent % f == 0)
