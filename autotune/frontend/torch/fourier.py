"""ATen importers: discrete Fourier transforms along axes, one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.errors import UnsupportedOpError
from autotune.frontend.fourier import ComplexValue, along, back_from_half
from autotune.frontend.torch.context import AtenCall, aten
from autotune.frontend.views import select_ranges

_NORMS = {0: 0.0, 1: 0.5, 2: 1.0}
"""PyTorch's number of a norm -> the power of the length that is divided by."""


@aten("complex._fft_r2c")
def of_real(n: AtenCall) -> ComplexValue:
    """The last of the axes is halved where `onesided`, since its second half mirrors the first."""
    x = n.value("self")
    *others, last = _axes(n, n.rank(x))
    extent = n.shape(x)[last]
    kept = extent // 2 + 1 if n.arg("onesided", True) else extent
    z = along(n, x, None, last, sign=-1, kept=kept)
    for axis in others:
        z = along(n, z.real, z.imaginary, axis, sign=-1)
    return _scaled(n, z, [n.shape(x)[a] for a in (*others, last)])


@aten("complex._fft_c2c")
def of_complex(n: AtenCall) -> ComplexValue:
    z = n.complex_value("self")
    sign, axes = -1 if n.arg("forward", True) else 1, _axes(n, n.rank(z.real))
    for axis in axes:
        z = along(n, z.real, z.imaginary, axis, sign=sign)
    return _scaled(n, z, [n.shape(z.real)[a] for a in axes])


@aten("complex._fft_c2r")
def to_real(n: AtenCall) -> str:
    """What has the given half as its transform: the other half is its mirror."""
    z, extent = n.complex_value("self"), n.integer("last_dim_size")
    *others, last = _axes(n, n.rank(z.real))
    for axis in others:
        z = along(n, z.real, z.imaginary, axis, sign=1)
    half = extent // 2 + 1
    z = ComplexValue(*(select_ranges(n, v, {last: range(half)}) for v in (z.real, z.imaginary)))
    y = back_from_half(n, z, last, extent)
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
