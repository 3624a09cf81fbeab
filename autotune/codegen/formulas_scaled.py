"""Formulas of functions that end in a power of e, which is kept scaled: exact down to denormal
numbers. In and out: as in `autotune.codegen.formulas`, whose errors these are among.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.codegen.arithmetic import FormulaWriter, FusedWriter

EXPM1 = (1.387187862e-3, 8.366876282e-3, 4.166743159e-2, 1.666654199e-1, 4.999999702e-1)
"""(e**r - 1 - r) / r**2, |r| <= ln(2) / 2."""
FINE_EXP = (*EXPM1, 1.0, 1.0)
"""e**r again, where it is one of several roundings."""
EXP2 = (
    1.535336050e-4, 1.339887502e-3, 9.618436918e-3, 5.550332367e-2, 2.402264774e-1, 6.931471825e-1,
    1.0,
)  # fmt: skip
"""2**r, |r| <= 1/2, where it is one of several roundings."""
TAIL_TOP = (
    9.685657267e-7, 9.653650729e-3, 9.178834753e-2, 3.661297129e-1, math.sqrt(2 / math.pi),
)  # fmt: skip
TAIL_BOTTOM = (9.697636630e-3, 9.094062027e-2, 3.948314616e-1, 9.143040679e-1, 1.0)
"""v as a ratio, 0 <= a < 14.4: the normal distribution's tail beyond a is its density at a divided
by a + v."""
GELU_TOP = tuple(c / 2 for c in TAIL_BOTTOM)
GELU_BOTTOM = tuple(c / TAIL_TOP[-1] for c in TAIL_TOP[:-1])
"""v's bottom / sqrt(2 pi) and v's top, so scaled that the last of the first is 1/2 and that of the
second, which is left out, is 1."""
GELU_TANH = (2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715)
GELU_TANH_OF_TWO = tuple(c * math.log2(math.e) for c in GELU_TANH)
SLOPE_STEP = 2.0**-20
"""A slope begins at a multiple of this; what it has more is exact, since slopes are below 16."""
ROUNDER = 1.5 * 2.0**23
"""Adding it rounds to an integer, which then stands in the lowest bits."""
SCALE = 32
"""Powers of e are computed times two to this power, and products of them are scaled back last: so
they end in denormal numbers rather than in 0."""
NOTHING = 105.0
"""e to minus this counts as 0."""


def silu(w: FormulaWriter, x: str) -> str:
    """x / (1 + e**-x)."""
    a, limit = w.call("fabs", x), w.const(NOTHING)
    far = w.compare("ogt", a, limit)
    high = w.op("fsub", w.const(0.0), w.choose(far, limit, a))
    return _weighted(w, (x, x), _scaled_exp(w, high, ""), far)


def swish(w: FormulaWriter, x: str, slope: str) -> str:
    """x / (1 + e**(-slope x)). Where that is small, the exponent's error counts: it is a product
    in two parts."""
    z, zero = w.op("fmul", x, slope), w.const(0.0)
    far = w.compare("ogt", w.call("fabs", z), w.const(NOTHING))
    turn = w.choose(w.compare("ogt", z, zero), w.const(-1.0), w.const(1.0))
    first, steep = w.upper(x), w.upper(slope)
    high = w.op("fmul", w.op("fmul", first, steep), turn)
    rest = w.op("fmul", first, w.op("fsub", slope, steep))
    rest = w.fma(w.op("fsub", x, first), slope, rest)
    low = w.choose(far, zero, w.op("fmul", rest, turn))
    large, e = _scaled_exp(w, w.choose(far, w.const(-NOTHING), high), low)
    large = w.choose(far, zero, large)
    # With a small slope x may be so large that it must be scaled before the product, not after it.
    big, down = w.compare("ogt", w.call("fabs", x), w.const(1.0)), w.const(2.0**-SCALE)
    small = w.op("fmul", w.choose(big, w.op("fmul", x, down), x), large)
    small = w.op("fmul", small, w.choose(big, w.const(1.0), down))
    # The power forgets that its argument is not a number.
    e = w.fma(w.choose(far, zero, z), zero, e)
    top = w.choose(w.compare("olt", z, zero), small, x)
    return w.op("fdiv", top, w.op("fadd", e, w.const(1.0)))


def gelu_tanh(w: FormulaWriter, x: str) -> str:
    """x (1 + tanh(u)) / 2 = x / (1 + e**-2u), 2u = c x + d x**3 in two parts."""
    a, limit = w.call("fabs", x), w.const(10.74)
    far = w.compare("ogt", a, limit)
    a = w.choose(far, limit, a)
    fused = w.fused()
    power = _scaled_exp(w, *_gelu_exponent(w, a)) if fused is None else _gelu_power(fused, a)
    return _weighted(w, (x, x), power, far)


def _gelu_power(w: FusedWriter, a: str) -> tuple[str, str]:
    """See `_scaled_exp`, of -(c a + d a**3): a slope and what it lacks, times a, powers of two."""
    linear, cubic = GELU_TANH_OF_TWO
    start, steep = SLOPE_STEP * round(linear / SLOPE_STEP), float(np.float32(cubic))
    square, zero = w.op("fmul", a, a), w.const(0.0)
    more = w.fma_once(a, a, w.op("fsub", zero, square))
    slope = w.fma_once(square, w.const(-steep), w.const(-start))
    lack = w.fma_once(square, w.const(-steep), w.op("fsub", w.const(-start), slope))
    rest = w.fma(more, w.const(-steep), w.const(start - linear))
    lack = w.op("fadd", lack, w.fma(square, w.const(steep - cubic), rest))
    # The nearest integer is taken away from the product before that is rounded.
    shifted = w.fma_once(a, slope, w.const(ROUNDER))
    r = w.fma_once(a, slope, w.op("fsub", w.const(ROUNDER), shifted))
    return _scaled_power(w, shifted, w.polynomial(w.fma(a, lack, r), EXP2))


def _gelu_exponent(w: FormulaWriter, a: str) -> tuple[str, str]:
    """-(c a + d a**3) in two parts."""
    linear, cubic = GELU_TANH
    whole, part = _cut(linear), _cut(cubic)
    first = w.upper(a)
    rest = w.op("fsub", a, first)
    # a**2 = square + more, and the first is square's; both are exact but for more's last bits.
    square, more = w.op("fmul", first, first), w.op("fmul", rest, w.op("fadd", a, first))
    leading = w.upper(square)
    small = w.fma(w.const(cubic), more, w.const(linear - whole))
    small = w.fma(w.const(cubic - part), square, small)
    small = w.fma(w.const(part), w.op("fsub", square, leading), small)
    large = w.op("fmul", w.const(part), leading)
    factor = w.upper(w.op("fadd", w.op("fadd", large, w.const(whole)), small))
    left = w.op("fadd", w.op("fsub", w.const(whole), factor), large)
    left = w.op("fadd", left, small)
    high = w.op("fmul", first, factor)
    low = w.fma(rest, factor, w.op("fmul", a, left))
    zero = w.const(0.0)
    return w.op("fsub", zero, high), w.op("fsub", zero, low)


def _weighted(w: FormulaWriter, x_z: tuple[str, str], power: tuple[str, str], far: str) -> str:
    """x / (1 + e**-z) by e**-|z|, see `_scaled_exp`, which is 0 where the flag `far` is set."""
    (x, z), zero = x_z, w.const(0.0)
    large, e = power
    large = w.choose(far, zero, large)
    small = w.op("fmul", w.op("fmul", x, large), w.const(2.0**-SCALE))
    top = w.choose(w.compare("olt", z, zero), small, x)
    return w.op("fdiv", top, w.op("fadd", e, w.const(1.0)))


def _scaled_exp(w: FormulaWriter, high: str, low: str) -> tuple[str, str]:
    """(e**(high + low) * 2**SCALE, the power itself)."""
    shifted, r = w.reduced(high, low)
    return _scaled_power(w, shifted, w.polynomial(r, FINE_EXP))


def _scaled_power(w: FormulaWriter, shifted: str, p: str) -> tuple[str, str]:
    """(p * 2**(n + SCALE), p * 2**n), n in the lowest bits of `shifted`."""
    large = w.times_power(p, shifted, SCALE)
    return large, w.op("fmul", large, w.const(2.0**-SCALE))


def mish(w: FormulaWriter, x: str) -> str:
    """x tanh(log(1 + e**x)) = x n / (n + 2) with n = e**x (e**x + 2)."""
    low, high, zero = w.const(-NOTHING), w.const(20.0), w.const(0.0)
    far = w.compare("olt", x, low)
    limited = w.choose(far, low, x)
    limited = w.choose(w.compare("ogt", limited, high), high, limited)
    large, e = _scaled_exp(w, limited, "")
    more = w.op("fadd", e, w.const(2.0))
    # x is multiplied before the power is scaled back where that is small, after the division where
    # x is large.
    negative = w.compare("olt", x, zero)
    top = w.op("fmul", x, w.choose(far, zero, large))
    top = w.choose(negative, top, large)
    top = w.fma(top, e, w.op("fadd", top, top))  # rounded once
    top = w.op("fmul", top, w.const(2.0**-SCALE))
    share = w.op("fdiv", top, w.fma(e, more, w.const(2.0)))
    return w.choose(negative, share, w.op("fmul", share, x))


def gelu(w: FormulaWriter, x: str) -> str:
    """x times the normal distribution's share below x: max(x, 0) less a times its tail beyond
    a = |x|, so that nothing cancels."""
    a = w.call("fabs", x)
    limit = w.const(14.45)
    near = w.choose(w.compare("ogt", a, limit), limit, a)
    first = w.upper(near)
    rest = w.op("fmul", w.op("fsub", near, first), w.op("fadd", near, first))
    half = w.const(-0.5)
    shifted, r = w.reduced(
        w.op("fmul", w.op("fmul", first, first), half), w.op("fmul", rest, half)
    )
    large = w.times_power(w.polynomial(r, FINE_EXP), shifted, SCALE)
    top = w.op("fmul", near, w.polynomial(near, GELU_TOP))
    more = w.op("fmul", near, w.polynomial(near, GELU_BOTTOM))
    more = w.fma(top, w.const(math.sqrt(2 * math.pi)), more)
    bottom = w.op("fadd", more, w.const(1.0))  # rounded once where a is small
    tail = w.op("fmul", large, w.op("fdiv", top, bottom))
    # Not a number for minus infinity, as the product is.
    above = w.fma(x, w.const(0.5), w.op("fmul", a, w.const(0.5)))
    return w.fma(tail, w.const(-(2.0**-SCALE)), above)


def _cut(value: float) -> float:
    """A number's first 12 significant bits."""
    bits = np.float32(value).view(np.uint32) & np.uint32(0xFFFFF000)
    return float(bits.view(np.float32))
