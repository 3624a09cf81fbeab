"""Element functions as formulas of float32 arithmetic, written once for every language.

In: whatever writes arithmetic (an LLVM function, a C function) and an argument of it. Out: the
result. No formula branches, so that all of them work on vectors. None needs a fused multiply-add,
and contraction does no harm: what has to be exact is a product of factors of 12 bits each or, with
fewer instructions where a processor has them, a multiply-add that is rounded once. Errors are in
ulp, of results that are normal numbers, over all of float32 (tests/contracts/
test_element_functions.py):

    function   ulp   results below 2**-126       function   ulp   results below 2**-126
    expm1       3    as exact as they can be     asinh       4    as exact as they can be
    softplus    3    0                           acosh       4    none
    sinh        3    as exact as they can be     atanh       4    as exact as they can be
    cosh        2    none                        tanh        4    as exact as they can be
    asin        3    as exact as they can be     silu        4    as exact as they can be
    acos        2    none                        swish       4    as exact as they can be
    atan        3    as exact as they can be     mish        4    as exact as they can be
    tan         3    as exact as they can be     gelu        4    as exact as they can be

Where denormal numbers are flushed (see `float_control`), one of them counts as 0 or as anything
between, and a result that should be denormal is 0 or the smallest normal number.

The coefficients are least-maximum fits against float64, of the highest power first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autotune.codegen.arithmetic import FormulaWriter, FusedWriter

Formula = Callable[..., str]

EXP = (8.312514835e-3, 4.189021057e-2, 1.666711487e-1, 4.999923113e-1, 1.0, 1.0)
"""e**r, |r| <= ln(2) / 2, within 2^-23.5."""
EXPM1 = (1.387187862e-3, 8.366876282e-3, 4.166743159e-2, 1.666654199e-1, 4.999999702e-1)
"""(e**r - 1 - r) / r**2, |r| <= ln(2) / 2."""
FINE_EXP = (*EXPM1, 1.0, 1.0)
"""e**r again, where it is one of several roundings."""
EXP2 = (
    1.535336050e-4, 1.339887502e-3, 9.618436918e-3, 5.550332367e-2, 2.402264774e-1, 6.931471825e-1,
    1.0,
)  # fmt: skip
"""2**r, |r| <= 1/2, where it is one of several roundings."""
LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
"""(log(1 + r) - r + r**2 / 2) / r**3, sqrt(1/2) < 1 + r < sqrt(2)."""
LN2 = (0.693359375, -2.12194440e-4)
"""In two parts; multiples of the first are exact."""
TANH_TOP = (3.625 * 5.705293559e-5, 3.625 * 1.488328600e-2, 3.625 * 4.999999964e-1)
TANH_BOTTOM = (
    3.625 * 1.226096514e-6, 3.625 * 1.205803531e-3, 3.625 * 1.130998560e-1, 3.625,
)  # fmt: skip
"""tanh(x / 2) / x as a ratio of polynomials in x**2, |x| < 9.02, as exact as tanh(x) needs it. The
common factor is one by which the coefficients' rounding does least, and by which no normal number
becomes a denormal one."""
ATAN = (
    -1.787547604e-3, 1.088736113e-2, -3.112700209e-2, 5.790654570e-2, -8.400475234e-2,
    1.095117480e-1, -1.426405162e-1, 1.999853104e-1, -3.333329856e-1,
)  # fmt: skip
"""(atan(x) / x - 1) / x**2 in x**2, |x| <= 1."""
ASIN = (4.215830564e-2, 2.418477833e-2, 4.546914995e-2, 7.495309412e-2, 1.666675210e-1)
"""(asin(x) / x - 1) / x**2 in x**2, |x| <= 1/2."""
SINH = (2.782213187e-6, 1.984289556e-4, 8.333310485e-3, 1.666666716e-1)
"""(sinh(x) / x - 1) / x**2 in x**2, |x| <= 1."""
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
"""What such a slope has more than the first of these, cut to multiples of this, is exact: slopes
are below 16."""
ROUNDER = 1.5 * 2.0**23
"""Adding it rounds to an integer, which then stands in the lowest bits."""
SCALE = 32
"""Powers of e are computed times two to this power, and products of them are scaled back last: so
they end in denormal numbers rather than in 0."""
NOTHING = 105.0
"""e to minus this counts as 0."""


def tanh(w: FormulaWriter, x: str) -> str:
    """2 t / (1 + t**2) with t = tanh(x / 2): where the result is near 1 it hardly depends on t."""
    limited = _limited(w, x, 9.02)
    square = w.op("fmul", limited, limited)
    top = w.op("fmul", limited, w.polynomial(square, TANH_TOP))
    bottom = w.polynomial(square, TANH_BOTTOM)
    both = w.op("fmul", w.op("fadd", top, top), bottom)
    return w.op("fdiv", both, w.fma(top, top, w.op("fmul", bottom, bottom)))


def expm1(w: FormulaWriter, x: str) -> str:
    """e**x - 1: (e**r - 1) 2**n + (2**n - 1), by half of each, so that 2**128 is none of them."""
    limited = w.choose(w.compare("olt", x, w.const(-18.0)), w.const(-18.0), x)
    limited = w.choose(w.compare("ogt", limited, w.const(89.0)), w.const(89.0), limited)
    shifted, r = w.reduced(limited, "")
    p = w.fma(w.op("fmul", r, r), w.polynomial(r, EXPM1), r)
    power = w.times_power(w.const(1.0), shifted, -1)
    half = w.fma(p, power, w.op("fsub", power, w.const(0.5)))
    out = w.op("fadd", half, half)
    # What is nearer to 0 than all denormal numbers of the half above keeps its bits.
    return w.choose(w.compare("olt", w.call("fabs", x), w.const(1e-30)), x, out)


def softplus(w: FormulaWriter, x: str) -> str:
    """log(1 + e**x) = max(x, 0) + log(1 + t) with t = e**-|x|."""
    t = w.function("exp", w.op("fsub", w.const(0.0), w.call("fabs", x)))
    steep = w.compare("ogt", t, w.const(math.sqrt(2) - 1))
    one, zero = w.const(1.0), w.const(0.0)
    r = w.choose(steep, w.op("fmul", w.op("fsub", t, one), w.const(0.5)), t)
    tail = _log_of_parts(w, r, w.choose(steep, one, zero))
    return w.op("fadd", w.choose(w.compare("ogt", x, zero), x, zero), tail)


def _log1p(w: FormulaWriter, x: str) -> str:
    """log(1 + x), x below 2**126 or infinite."""
    u = w.op("fadd", x, w.const(1.0))
    n, power = w.binade(u)
    r = w.fma(x, power, w.op("fsub", power, w.const(1.0)))
    p = _log_of_parts(w, r, n)
    p = w.choose(w.compare("ogt", u, w.const(2.0**126)), u, p)
    zero, below = w.const(0.0), w.const(-math.inf)
    p = w.choose(w.compare("ogt", u, zero), p, w.op("fadd", u, below))
    return w.choose(w.compare("olt", u, zero), w.const(math.nan), p)


def _log_of_parts(w: FormulaWriter, r: str, n: str) -> str:
    """log((1 + r) 2**n)."""
    square = w.op("fmul", r, r)
    p = w.op("fmul", w.op("fmul", w.polynomial(r, LOG), r), square)
    p = w.fma(n, w.const(LN2[1]), p)
    p = w.fma(square, w.const(-0.5), p)
    return w.fma(n, w.const(LN2[0]), w.op("fadd", r, p))


def sinh(w: FormulaWriter, x: str) -> str:
    a = w.call("fabs", x)
    half = _half_exp(w, a)
    far = w.op("fsub", half, w.op("fdiv", w.const(0.25), half))
    near = _odd(w, a, w.op("fmul", a, a), SINH)
    out = w.choose(w.compare("ogt", a, w.const(1.0)), far, near)
    return w.call("copysign", out, x)


def cosh(w: FormulaWriter, x: str) -> str:
    half = _half_exp(w, w.call("fabs", x))
    return w.op("fadd", half, w.op("fdiv", w.const(0.25), half))


def _half_exp(w: FormulaWriter, a: str) -> str:
    """e**a / 2 for a >= 0: finite up to 89.41."""
    limit = w.const(89.4159927)
    inside = w.compare("olt", a, limit)
    shifted, r = w.reduced(w.choose(inside, a, limit), "")
    half = w.times_power(w.polynomial(r, EXP), shifted, -1)
    return w.choose(inside, half, w.op("fmul", a, w.const(math.inf)))


def asin(w: FormulaWriter, x: str) -> str:
    steep, p = _asin_parts(w, w.call("fabs", x))
    far = w.op("fadd", w.fma(p, w.const(-2.0), w.const(_HALF_PI)), w.const(_HALF_PI_REST))
    return w.call("copysign", w.choose(steep, far, p), x)


def acos(w: FormulaWriter, x: str) -> str:
    steep, p = _asin_parts(w, w.call("fabs", x))
    middle = w.op("fsub", w.const(_HALF_PI), w.call("copysign", p, x))
    middle = w.op("fadd", middle, w.const(_HALF_PI_REST))
    twice = w.op("fadd", p, p)
    left = w.op("fsub", w.const(2 * _HALF_PI), twice)
    end = w.choose(w.compare("olt", x, w.const(0.0)), left, twice)
    return w.choose(steep, end, middle)


def _asin_parts(w: FormulaWriter, a: str) -> tuple[str, str]:
    """(whether a > 1/2, asin(a), or there asin(sqrt((1 - a) / 2)), half of what is left)."""
    steep = w.compare("ogt", a, w.const(0.5))
    rest = w.op("fmul", w.op("fsub", w.const(1.0), a), w.const(0.5))
    square = w.choose(steep, rest, w.op("fmul", a, a))
    return steep, _odd(w, w.choose(steep, w.call("sqrt", rest), a), square, ASIN)


def atan(w: FormulaWriter, x: str) -> str:
    a = w.call("fabs", x)
    steep = w.compare("ogt", a, w.const(1.0))
    t = w.choose(steep, w.op("fdiv", w.const(1.0), a), a)
    p = _odd(w, t, w.op("fmul", t, t), ATAN)
    far = w.op("fadd", w.op("fsub", w.const(_HALF_PI), p), w.const(_HALF_PI_REST))
    return w.call("copysign", w.choose(steep, far, p), x)


def tan(w: FormulaWriter, x: str) -> str:
    return w.op("fdiv", w.function("sin", x), w.function("cos", x))


def asinh(w: FormulaWriter, x: str) -> str:
    """log(a + sqrt(a**2 + 1)), by what that is more than 1."""
    a = w.call("fabs", x)
    root = w.call("sqrt", w.fma(a, a, w.const(1.0)))
    more = w.fma(a, w.op("fdiv", a, w.op("fadd", root, w.const(1.0))), a)
    return w.call("copysign", _log_of_more(w, a, more), x)


def acosh(w: FormulaWriter, x: str) -> str:
    """log(x + sqrt(x**2 - 1)), by what that is more than 1."""
    t = w.op("fsub", x, w.const(1.0))
    root = w.call("sqrt", w.op("fmul", t, w.op("fadd", t, w.const(2.0))))
    out = _log_of_more(w, x, w.op("fadd", t, root))
    return w.choose(w.compare("olt", x, w.const(1.0)), w.const(math.nan), out)


def _log_of_more(w: FormulaWriter, a: str, more: str) -> str:
    """log(1 + more); log(2 a) where squares of a lose the 1, or overflow."""
    large = w.compare("ogt", a, w.const(2.0**30))
    near = _log1p(w, w.choose(large, w.op("fmul", a, w.const(0.25)), more))
    return w.choose(large, w.op("fadd", near, w.const(math.log(8))), near)


def atanh(w: FormulaWriter, x: str) -> str:
    a = w.call("fabs", x)
    ratio = w.op("fdiv", w.op("fadd", a, a), w.op("fsub", w.const(1.0), a))
    out = w.op("fmul", _log1p(w, ratio), w.const(0.5))
    return w.call("copysign", out, x)


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


def _odd(w: FormulaWriter, x: str, square: str, coefficients: tuple[float, ...]) -> str:
    """x + x**3 times a polynomial of x**2."""
    return w.fma(w.op("fmul", x, square), w.polynomial(square, coefficients), x)


def _limited(w: FormulaWriter, x: str, limit: float) -> str:
    """x between -limit and limit; not a number stays so."""
    low, high = w.const(-limit), w.const(limit)
    x = w.choose(w.compare("olt", x, low), low, x)
    return w.choose(w.compare("ogt", x, high), high, x)


def _cut(value: float) -> float:
    """A number's first 12 significant bits."""
    bits = np.float32(value).view(np.uint32) & np.uint32(0xFFFFF000)
    return float(bits.view(np.float32))


_HALF_PI = float(np.float32(math.pi / 2))
_HALF_PI_REST = math.pi / 2 - _HALF_PI

FORMULAS: dict[str, Formula] = {
    "tanh": tanh, "expm1": expm1, "softplus": softplus, "sinh": sinh, "cosh": cosh, "tan": tan,
    "asin": asin, "acos": acos, "atan": atan, "asinh": asinh, "acosh": acosh, "atanh": atanh,
    "silu": silu, "swish": swish, "mish": mish, "gelu_tanh": gelu_tanh, "gelu_erf": gelu,
}  # fmt: skip
