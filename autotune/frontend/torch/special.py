"""ATen importers: special functions of float32, by polynomials."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.frontend.torch.context import AtenCall, aten

BESSEL_NEAR = (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0)
BESSEL_FAR = (
    0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319,
    0.01328592, 0.39894228,
)  # fmt: skip
BESSEL_SPLIT = 3.75
"""I0(x) in (x / 3.75)**2 up to here, and sqrt(x) e**-x I0(x) in 3.75 / x from here on, within 2e-7
(Abramowitz and Stegun 1964, 9.8.1 and 9.8.2)."""
ERFINV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
ERFINV_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
ERFINV_SPLIT = 5.0
"""erfinv(x) / x with w = -log(1 - x**2): in w - 2.5 up to here, in sqrt(w) - 3 from here on
(Giles 2010)."""


def _single(n: AtenCall) -> str:
    if n.made_dtype == "float64":
        n.refuse("float64")
    return n.as_made("self")


def _polynomial(n: AtenCall, x: str, coefficients: Sequence[float]) -> str:
    """Horner's rule, highest power first."""
    value = n.like(coefficients[0], x)
    for c in coefficients[1:]:
        value = n.op("add", n.op("mul", value, x), n.like(c, x))
    return value


@aten("i0", "special_i0")
def bessel(n: AtenCall) -> str:
    x = n.op("abs", _single(n))
    split = n.like(BESSEL_SPLIT, x)
    share = n.op("div", n.op("min", x, split), split)
    near = _polynomial(n, n.op("mul", share, share), BESSEL_NEAR)
    long = n.op("max", x, split)
    far = _polynomial(n, n.op("div", split, long), BESSEL_FAR)
    # e**x overflows before the quotient does.
    half = n.op("exp", n.op("mul", long, n.like(0.5, x)))
    far = n.op("mul", n.op("mul", n.op("div", far, n.op("sqrt", long)), half), half)
    found = n.op("where", n.op("lt", x, split), near, far)
    endless = n.op("eq", x, n.like(math.inf, x))
    return n.op("where", endless, x, found)


@aten("erfinv", "special_erfinv")
def inverse_error_function(n: AtenCall) -> str:
    x = _single(n)
    one, split = n.like(1, x), n.like(ERFINV_SPLIT, x)
    left = n.op("mul", n.op("sub", one, x), n.op("add", one, x))
    w = n.op("neg", n.op("log", left))
    near = _polynomial(n, n.op("sub", w, n.like(2.5, x)), ERFINV_NEAR)
    far = n.op("sub", n.op("sqrt", n.op("max", w, split)), n.like(3, x))
    found = n.op("where", n.op("lt", w, split), near, _polynomial(n, far, ERFINV_FAR))
    found = n.op("mul", found, x)
    end = n.op("eq", n.op("abs", x), one)
    return n.op("where", end, n.op("mul", x, n.like(math.inf, x)), found)
