"""ATen importers: functions of numbers that are composed of others."""

from __future__ import annotations

import math

from autotune.frontend.torch.context import AtenCall, AtenImporter, aten

_FAR = 10.0
"""erfc of it is less than every normal float32."""


@aten("atan2", "arctan2")
def angle(n: AtenCall) -> str:
    return angle_of(n, n.as_made("self"), n.as_made("other"))


def angle_of(n: AtenCall, y: str, x: str) -> str:
    """The angle of the point (x, y): signs of zeros count."""
    zero, infinity = n.like(0, x), n.like(math.inf, x)
    far = n.op("and", *(n.op("eq", n.op("abs", v), infinity) for v in (x, y)))
    near = n.op("and", *(n.op("eq", v, zero) for v in (x, y)))
    ratio = n.op("where", far, n.op("mul", n.op("sign", x), n.op("sign", y)), n.op("div", y, x))
    ratio = n.op("where", near, zero, ratio)
    half = n.op("where", _below(n, y), n.like(-math.pi, x), n.like(math.pi, x))
    turned = n.op("where", _below(n, x), half, zero)
    return n.op("add", n.op("atan", ratio), turned)


def _below(n: AtenCall, x: str) -> str:
    """Whether a number has the sign of negative ones; a zero may have it."""
    zero = n.like(0, x)
    return n.op("or", n.op("lt", x, zero), n.op("lt", n.op("reciprocal", x), zero))


@aten("erfc", "special_erfc")
def erfc(n: AtenCall) -> str:
    """1 - erf(x), by the share of the normal distribution below -x sqrt(2)."""
    x = n.as_made("self")
    scaled = n.op("mul", n.op("clip", x, min=-_FAR, max=_FAR), n.like(-math.sqrt(2), x))
    none = n.op("eq", scaled, n.like(0, x))
    share = n.op("div", n.op("gelu", scaled, approximate="none"), scaled)
    y = n.op("where", none, n.like(1, x), n.op("add", share, share))
    return n.op("where", n.op("ne", x, x), x, y)


@aten("logaddexp")
def log_of_sum(n: AtenCall) -> str:
    """log(e**x + e**y); of equal infinities, these."""
    x, y = n.as_made("self"), n.as_made("other")
    top = n.op("max", x, y)
    gap = n.op("neg", n.op("abs", n.op("sub", x, y)))
    same = n.op("and", n.op("eq", x, y), n.op("eq", n.op("abs", x), n.like(math.inf, x)))
    return n.op("where", same, x, n.op("add", top, n.op("softplus", gap)))


@aten("hypot")
def hypotenuse(n: AtenCall) -> str:
    return distance(n, n.as_made("self"), n.as_made("other"))


def distance(n: AtenCall, x: str, y: str) -> str:
    """sqrt(x**2 + y**2), which does not overflow; infinite beside a NaN, too."""
    x, y = n.op("abs", x), n.op("abs", y)
    long, short, one = n.op("max", x, y), n.op("min", x, y), n.like(1, x)
    infinity = n.like(math.inf, x)
    far = n.op("or", *(n.op("eq", v, infinity) for v in (x, y)))
    share = n.op("div", short, long)
    grown = n.op("mul", long, n.op("sqrt", n.op("add", n.op("mul", share, share), one)))
    grown = n.op("where", n.op("eq", long, n.like(0, x)), long, grown)
    return n.op("where", far, infinity, grown)


@aten("copysign")
def with_sign(n: AtenCall) -> str:
    """The size of the first with the sign of the second."""
    size = n.op("abs", n.as_made("self"))
    return n.op("where", _below(n, n.as_made("other")), n.op("neg", size), size)


def _known_extreme(op: str) -> AtenImporter:
    """The larger or the smaller number, and the one that is a number where the other is none."""

    def run(n: AtenCall) -> str:
        x, y = n.as_made("self"), n.as_made("other")
        both = n.op(op, x, y)
        if n.made_dtype != "float32":
            return both
        found = n.op("where", n.op("ne", y, y), x, both)
        return n.op("where", n.op("ne", x, x), y, found)

    return run


aten("fmax")(_known_extreme("max"))
aten("fmin")(_known_extreme("min"))


@aten("_cdist_forward")
def distances(n: AtenCall) -> str:
    """[..., P, R]: how far each of P points is from each of R, by the norm of order p."""
    x, y, order = n.value("x1"), n.value("x2"), n.number("p")
    if order not in (1, 2, math.inf) or 0 in (*n.shape(x), *n.shape(y)):
        n.refuse(f"distances of order {order:g} between {n.shape(x)} and {n.shape(y)}")
    one = n.reshape(x, (*n.shape(x)[:-1], 1, n.shape(x)[-1]))
    other = n.reshape(y, (*n.shape(y)[:-2], 1, *n.shape(y)[-2:]))
    apart = n.op("sub", one, other)
    axes = (n.rank(apart) - 1,)
    if order == 2:
        squares = n.op("mul", apart, apart)
        return n.op("sqrt", n.op("reduce_sum", squares, axes=axes, keepdims=False))
    op = "reduce_sum" if order == 1 else "reduce_max"
    return n.op(op, n.op("abs", apart), axes=axes, keepdims=False)
