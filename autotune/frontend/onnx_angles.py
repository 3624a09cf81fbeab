"""ONNX importers: functions of angles and hyperbolas, and their inverses, by simpler functions."""

from __future__ import annotations

import math

from autotune.frontend.onnx_context import NodeContext, importer

_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
"""(atan(x) - x) / x**3 as a polynomial of x**2, highest power first, for |x| <= tan(pi / 8): 2e-8
from it (the coefficients of the Cephes library)."""


@importer("Tan")
def tangent(n: NodeContext) -> str:
    return n.op("div", n.op("sin", n.input(0)), n.op("cos", n.input(0)))


@importer("Cosh")
def hyperbolic_cosine(n: NodeContext) -> str:
    return _cosh(n, n.input(0))


@importer("Sinh")
def hyperbolic_sine(n: NodeContext) -> str:
    """By the tangent, which keeps what is small."""
    return n.op("mul", n.op("tanh", n.input(0)), _cosh(n, n.input(0)))


@importer("Atan")
def arc_tangent(n: NodeContext) -> str:
    return _atan(n, n.input(0))


@importer("Asin")
def arc_sine(n: NodeContext) -> str:
    return _asin(n, n.input(0))


@importer("Acos")
def arc_cosine(n: NodeContext) -> str:
    angle = _asin(n, n.input(0))
    return n.op("sub", n.like(math.pi / 2, angle), angle)


@importer("Asinh")
def inverse_hyperbolic_sine(n: NodeContext) -> str:
    x, size = n.input(0), n.op("abs", n.input(0))
    root = n.op("sqrt", _plus(n, n.op("mul", x, x), 1))
    return n.op("mul", n.op("sign", x), n.op("log", n.op("add", size, root)))


@importer("Acosh")
def inverse_hyperbolic_cosine(n: NodeContext) -> str:
    x = n.input(0)
    root = n.op("sqrt", n.op("mul", _plus(n, x, -1), _plus(n, x, 1)))
    return n.op("log", n.op("add", x, root))


@importer("Atanh")
def inverse_hyperbolic_tangent(n: NodeContext) -> str:
    x = n.input(0)
    ratio = n.op("div", _plus(n, x, 1), _plus(n, n.op("neg", x), 1))
    return n.op("mul", n.op("log", ratio), n.like(0.5, x))


def _cosh(n: NodeContext, x: str) -> str:
    both = n.op("add", n.op("exp", x), n.op("exp", n.op("neg", x)))
    return n.op("mul", both, n.like(0.5, both))


def _asin(n: NodeContext, x: str) -> str:
    cosine = n.op("sqrt", n.op("mul", _plus(n, n.op("neg", x), 1), _plus(n, x, 1)))
    return _atan(n, n.op("div", x, cosine))


def _atan(n: NodeContext, x: str) -> str:
    """Moved by 0, pi / 4 or pi / 2 to where a polynomial holds."""
    size = n.op("abs", x)
    steep = n.op("gt", size, n.like(math.tan(3 * math.pi / 8), size))
    middle = n.op("gt", size, n.like(math.tan(math.pi / 8), size))
    turned = n.op("div", _plus(n, size, -1), _plus(n, size, 1))
    small = n.op("where", middle, turned, size)
    small = n.op("where", steep, n.op("neg", n.op("reciprocal", size)), small)
    base = n.op("where", middle, n.like(math.pi / 4, x), n.like(0, x))
    base = n.op("where", steep, n.like(math.pi / 2, x), base)
    square = n.op("mul", small, small)
    series = n.like(_ATAN[0], x)
    for coefficient in _ATAN[1:]:
        series = _plus(n, n.op("mul", series, square), coefficient)
    rest = n.op("add", n.op("mul", n.op("mul", series, square), small), small)
    return n.op("mul", n.op("sign", x), n.op("add", base, rest))


def _plus(n: NodeContext, x: str, number: float) -> str:
    return n.op("add", x, n.like(number, x))
