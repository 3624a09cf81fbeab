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

from autotune.codegen.arithmetic import FormulaWriter
from autotune.codegen.formulas_scaled import EXPM1, gelu, gelu_tanh, mish, silu, swish

Formula = Callable[..., str]

EXP = (8.312514835e-3, 4.189021057e-2, 1.666711487e-1, 4.999923113e-1, 1.0, 1.0)
"""e**r, |r| <= ln(2) / 2, within 2^-23.5."""
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


def _odd(w: FormulaWriter, x: str, square: str, coefficients: tuple[float, ...]) -> str:
    """x + x**3 times a polynomial of x**2."""
    return w.fma(w.op("fmul", x, square), w.polynomial(square, coefficients), x)


def _limited(w: FormulaWriter, x: str, limit: float) -> str:
    """x between -limit and limit; not a number stays so."""
    low, high = w.const(-limit), w.const(limit)
    x = w.choose(w.compare("olt", x, low), low, x)
    return w.choose(w.compare("ogt", x, high), high, x)


_HALF_PI = float(np.float32(math.pi / 2))
_HALF_PI_REST = math.pi / 2 - _HALF_PI

FORMULAS: dict[str, Formula] = {
    "tanh": tanh, "expm1": expm1, "softplus": softplus, "sinh": sinh, "cosh": cosh, "tan": tan,
    "asin": asin, "acos": acos, "atan": atan, "asinh": asinh, "acosh": acosh, "atanh": atanh,
    "silu": silu, "swish": swish, "mish": mish, "gelu_tanh": gelu_tanh, "gelu_erf": gelu,
}  # fmt: skip
