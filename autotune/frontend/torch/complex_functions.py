"""ATen importers: functions, products and reductions of complex tensors, by their parts."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from autotune.frontend.fourier import ComplexValue, times
from autotune.frontend.torch.complex_parts import inverse, log_of, polar_value
from autotune.frontend.torch.context import COMPLEX, AtenCall, AtenImporter, aten, importer_of
from autotune.frontend.torch.functions import angle_of, distance
from autotune.frontend.views import select_ranges

MOST_TANH = 40.0
"""The hyperbolic tangent's real part is 1 from far less on; squares of sinh(x) are numbers."""
MOST_FACTORS = 8
"""Whole powers are so many products at most."""


def _parts(n: AtenCall, name: str = "self") -> tuple[str, str]:
    z = n.complex_value(name)
    return z.real, z.imaginary


def _scaled(n: AtenCall, z: ComplexValue, factor: complex) -> ComplexValue:
    if isinstance(factor, complex):
        parts = (n.like(v, z.real) for v in (factor.real, factor.imag))
        return times(n, z, ComplexValue(*parts))
    return ComplexValue(*(n.op("mul", v, n.like(factor, v)) for v in (z.real, z.imaginary)))


def _sum(n: AtenCall, a: ComplexValue, b: ComplexValue) -> ComplexValue:
    return ComplexValue(n.op("add", a.real, b.real), n.op("add", a.imaginary, b.imaginary))


def _difference(n: AtenCall, a: ComplexValue, b: ComplexValue) -> ComplexValue:
    return ComplexValue(n.op("sub", a.real, b.real), n.op("sub", a.imaginary, b.imaginary))


# -------------------------------------------------------------------------------------- functions


@aten("complex.sqrt")
def root(n: AtenCall) -> ComplexValue:
    return _root(n, n.complex_value("self"))


def _root(n: AtenCall, z: ComplexValue) -> ComplexValue:
    """The root of |z| / 2 + |x| / 2 is the larger part, and what it leaves of y the other."""
    half, zero = n.like(0.5, z.real), n.like(0, z.real)
    size = distance(n, z.real, z.imaginary)
    long = n.op("sqrt", n.op("add", *(n.op("mul", v, half) for v in (size, n.op("abs", z.real)))))
    short = n.op("mul", n.op("div", n.op("abs", z.imaginary), long), half)
    short = n.op("where", n.op("eq", long, zero), zero, short)
    left = n.op("lt", z.real, zero)
    real, turned = n.op("where", left, short, long), n.op("where", left, long, short)
    down = n.op("lt", z.imaginary, zero)
    return ComplexValue(real, n.op("where", down, n.op("neg", turned), turned))


@aten("complex.rsqrt")
def inverse_root(n: AtenCall) -> ComplexValue:
    return inverse(n, _root(n, n.complex_value("self")))


def _crossed(first: tuple[str, str], second: tuple[str, str], turn: bool = False) -> AtenImporter:
    """A function whose parts are products of one of x and one of y."""

    def run(n: AtenCall) -> ComplexValue:
        x, y = _parts(n)
        real, turned = (n.op("mul", n.op(f, x), n.op(g, y)) for f, g in (first, second))
        return ComplexValue(real, n.op("neg", turned) if turn else turned)

    return run


aten("complex.sinh")(_crossed(("sinh", "cos"), ("cosh", "sin")))
aten("complex.cosh")(_crossed(("cosh", "cos"), ("sinh", "sin")))
aten("complex.sin")(_crossed(("sin", "cosh"), ("cos", "sinh")))
aten("complex.cos")(_crossed(("cos", "cosh"), ("sin", "sinh"), turn=True))


@aten("complex.tanh")
def hyperbolic_tangent(n: AtenCall) -> ComplexValue:
    return _tanh(n, *_parts(n))


@aten("complex.tan")
def tangent(n: AtenCall) -> ComplexValue:
    """tan(z) = -i tanh(i z)."""
    x, y = _parts(n)
    turned = _tanh(n, n.op("neg", y), x)
    return ComplexValue(turned.imaginary, n.op("neg", turned.real))


def _tanh(n: AtenCall, x: str, y: str) -> ComplexValue:
    """(sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y): nothing cancels."""
    x = n.op("clip", x, min=-MOST_TANH, max=MOST_TANH)
    high, wave = n.op("sinh", x), n.op("cos", y)
    below = n.op("add", n.op("mul", high, high), n.op("mul", wave, wave))
    above = n.op("mul", high, n.op("cosh", x)), n.op("mul", wave, n.op("sin", y))
    return ComplexValue(*(n.op("div", v, below) for v in above))


def _log_to(base: float) -> AtenImporter:
    def run(n: AtenCall) -> ComplexValue:
        z = n.complex_value("self")
        return _scaled(n, log_of(n, z), 1 / math.log(base))

    return run


aten("complex.log2")(_log_to(2))
aten("complex.log10")(_log_to(10))


@aten("complex.pow")
def power(n: AtenCall) -> ComplexValue:
    z, exponent = n.complex_value("self"), n.given("exponent")
    if not isinstance(exponent, bool | int | float):
        return _power(n, z, n.complex_value("exponent"))
    if exponent == int(exponent) and 0 < abs(exponent) <= MOST_FACTORS:
        factors = range(int(abs(exponent)) - 1)
        found = functools.reduce(lambda a, _: times(n, a, z), factors, z)
        return found if exponent > 0 else inverse(n, found)
    if exponent == 0.5:
        return _root(n, z)
    if exponent < 0:
        n.refuse(f"a power of {exponent}")  # of 0
    size = n.op("pow", distance(n, z.real, z.imaginary), n.like(exponent, z.real))
    angle = n.op("mul", angle_of(n, z.imaginary, z.real), n.like(exponent, z.real))
    return polar_value(n, size, angle)


def _power(n: AtenCall, z: ComplexValue, exponent: ComplexValue) -> ComplexValue:
    """e**(exponent log(z)); of zero, nothing."""
    long, zero = distance(n, z.real, z.imaginary), n.like(0, z.real)
    none = n.op("eq", long, zero)
    total = times(n, exponent, log_of(n, z))
    found = polar_value(n, n.op("exp", total.real), total.imaginary)
    return ComplexValue(*(n.op("where", none, zero, v) for v in (found.real, found.imaginary)))


def _of_either(name: str) -> AtenImporter:
    """Whether something holds of one of the parts."""

    def run(n: AtenCall) -> str:
        importer = importer_of(n.target)
        assert importer is not None
        return n.op("or", *(str(importer(n.part(imaginary))) for imaginary in (False, True)))

    run.__name__ = name
    return run


for _name in ("isnan", "isinf"):
    aten(COMPLEX + _name)(_of_either(_name))


@aten("complex.scalar_tensor")
def number(n: AtenCall) -> ComplexValue:
    value = complex(n.given("s"))
    return ComplexValue(*(n.constant(v, n.made_dtype) for v in (value.real, value.imag)))


# -------------------------------------------------------------------------- sums, products, sizes


@aten("complex.addmm", "complex.baddbmm")
def product_and_sum(n: AtenCall) -> ComplexValue:
    """beta * self + alpha * (mat1 @ mat2)."""
    names = ("mat1", "mat2") if n.has("mat1") else ("batch1", "batch2")
    a, b = (n.complex_value(name) for name in names)
    if 0 in (*n.shape(a.real), *n.shape(b.real)):
        n.refuse("products of nothing")
    found = times(n, a, b, "matmul")
    alpha, beta = n.given("alpha"), n.given("beta")
    found = found if alpha in (None, 1) else _scaled(n, found, alpha)
    added = n.complex_value("self")
    return _sum(n, added if beta in (None, 1) else _scaled(n, added, beta), found)


@aten("complex.addcmul")
def sum_of_products(n: AtenCall) -> ComplexValue:
    found = times(n, n.complex_value("tensor1"), n.complex_value("tensor2"))
    return _sum(n, n.complex_value("self"), _scaled(n, found, n.given("value")))


@aten("complex.lerp.Scalar")
def between(n: AtenCall) -> ComplexValue:
    start, end = n.complex_value("self"), n.complex_value("end")
    return _sum(n, start, _scaled(n, _difference(n, end, start), n.given("weight")))


@aten("complex.linalg_vector_norm")
def vector_norm(n: AtenCall) -> str:
    """That of the numbers' sizes."""
    importer = importer_of(n.target)
    assert importer is not None
    return str(importer(n.with_argument("self", distance(n, *_parts(n)))))


@aten("complex.var.correction")
def variance(n: AtenCall) -> str:
    return n.op("add", *_of_parts(n))


@aten("complex.std.correction")
def deviation(n: AtenCall) -> str:
    return distance(n, *_of_parts(n))


def _of_parts(n: AtenCall) -> tuple[str, str]:
    importer = importer_of(n.target)
    assert importer is not None
    return str(importer(n.part(False))), str(importer(n.part(True)))


@aten("complex.prod")
def total_product(n: AtenCall) -> ComplexValue:
    """By halves: as many products one after the other as the length has bits."""
    z = n.complex_value("self")
    if not n.has("dim"):
        z = _reshaped(n, z, (math.prod(n.shape(z.real)),))
    axis = int(n.arg("dim")) % n.rank(z.real) if n.has("dim") else 0
    if 0 in n.shape(z.real):
        n.refuse("a product of nothing")
    while (count := n.shape(z.real)[axis]) > 1:
        half = count // 2
        first, second = _cut(n, z, axis, range(half)), _cut(n, z, axis, range(half, 2 * half))
        found = times(n, first, second)
        if count % 2:
            found = _joined(n, found, _cut(n, z, axis, range(count - 1, count)), axis)
        z = found
    return _reshaped(n, z, n.made_shape)


@aten("complex.cumprod")
def products_so_far(n: AtenCall) -> ComplexValue:
    """Each number times the one before it, then the one two before it, four, ... (Hillis and
    Steele 1986)."""
    z = n.complex_value("self")
    if n.rank(z.real) == 0 or 0 in n.shape(z.real):
        return z
    axis = int(n.arg("dim")) % n.rank(z.real)
    count, step = n.shape(z.real)[axis], 1
    while step < count:
        rest, before = _cut(n, z, axis, range(step, count)), _cut(n, z, axis, range(count - step))
        z = _joined(n, _cut(n, z, axis, range(step)), times(n, rest, before), axis)
        step *= 2
    return z


def _reshaped(n: AtenCall, z: ComplexValue, shape: Sequence[int]) -> ComplexValue:
    return ComplexValue(n.reshape(z.real, shape), n.reshape(z.imaginary, shape))


def _cut(n: AtenCall, z: ComplexValue, axis: int, places: range) -> ComplexValue:
    return ComplexValue(*(select_ranges(n, v, {axis: places}) for v in (z.real, z.imaginary)))


def _joined(n: AtenCall, a: ComplexValue, b: ComplexValue, axis: int) -> ComplexValue:
    return ComplexValue(
        n.op("concat", a.real, b.real, axis=axis),
        n.op("concat", a.imaginary, b.imaginary, axis=axis),
    )
