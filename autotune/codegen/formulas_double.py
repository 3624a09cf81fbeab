"""Element functions of float64: by the C library's, where that has none.

In: whatever writes arithmetic, and an argument of it. Out: the result, as exact as the library.
"""

from __future__ import annotations

import math

from autotune.codegen.arithmetic import FormulaWriter
from autotune.codegen.formulas import Formula
from autotune.codegen.formulas_scaled import GELU_TANH


def _softplus(w: FormulaWriter, x: str) -> str:
    zero = w.const(0.0)
    t = w.function("exp", w.op("fsub", zero, w.call("fabs", x)))
    above = w.choose(w.compare("ogt", x, zero), x, zero)
    return w.op("fadd", above, w.function("log1p", t))


def _swish(w: FormulaWriter, x: str, slope: str) -> str:
    z = w.op("fsub", w.const(0.0), w.op("fmul", x, slope))
    return w.op("fdiv", x, w.op("fadd", w.function("exp", z), w.const(1.0)))


def _gelu(w: FormulaWriter, x: str) -> str:
    below = w.function("erfc", w.op("fmul", x, w.const(-math.sqrt(0.5))))
    return w.op("fmul", w.op("fmul", x, w.const(0.5)), below)


def _gelu_tanh(w: FormulaWriter, x: str) -> str:
    linear, cubic = GELU_TANH
    slope = w.fma(w.op("fmul", x, x), w.const(cubic), w.const(linear))
    return _swish(w, x, slope)


DOUBLE: dict[str, Formula] = {
    "softplus": _softplus,
    "silu": lambda w, x: _swish(w, x, w.const(1.0)),
    "swish": _swish,
    "mish": lambda w, x: w.op("fmul", x, w.function("tanh", _softplus(w, x))),
    "gelu_erf": _gelu,
    "gelu_tanh": _gelu_tanh,
}
"""Functions of float64 that the C library does not have, by those that it has."""
LIBRARY = frozenset((
    "erf", "erfc", "expm1", "log1p", "sinh", "cosh", "tan", "asin", "acos", "atan", "asinh",
    "acosh", "atanh",
))  # fmt: skip
"""Functions of float64 that are the C library's."""
