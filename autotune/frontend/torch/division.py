"""Importers of division, toward zero and toward minus infinity, and of what remains of it."""

from __future__ import annotations

from autotune.frontend.torch.context import AtenCall, aten


@aten("div", "divide", "true_divide")
def divide(n: AtenCall) -> str:
    x, y = n.as_made("self"), n.as_made("other")
    mode = n.arg("rounding_mode") if n.has("rounding_mode") else None
    if mode is None:
        return n.op("div", x, y)
    if not n.made_dtype.startswith("float"):
        return n.op("div", x, y) if mode == "trunc" else _floor_divided(n, x, y)
    return _truncated(n, n.op("div", x, y)) if mode == "trunc" else _floor_of_quotient(n, x, y)


def _floor_of_quotient(n: AtenCall, x: str, y: str) -> str:
    """As PyTorch and Python have it: the quotient itself may be rounded up to a whole number that
    it does not reach. Divided by zero it is the quotient."""
    quotient, rest, zero = n.op("div", x, y), _rest(n, x, y), n.like(0, x)
    whole = n.op("round", n.op("div", n.op("sub", x, rest), y))
    apart = n.op("ne", n.op("lt", rest, zero), n.op("lt", y, zero))
    above = n.op("and", n.op("ne", rest, zero), apart)
    found = n.op("where", above, n.op("sub", whole, n.like(1, x)), whole)
    return n.op("where", n.op("eq", y, zero), quotient, found)


def _floor_divided(n: AtenCall, x: str, y: str) -> str:
    """Integers divided toward minus infinity: one less than toward zero where something remains
    and signs differ. (Dividing what remains nothing of would leave the type's range first.)"""
    quotient = n.op("div", x, y)
    rest = n.op("sub", x, n.op("mul", quotient, y))
    zero = n.like(0, x)
    apart = n.op("ne", n.op("lt", rest, zero), n.op("lt", y, zero))
    above = n.op("and", n.op("ne", rest, zero), apart)
    return n.op("sub", quotient, n.cast(above, n.dtype(x)))


def _truncated(n: AtenCall, x: str) -> str:
    below = n.op("lt", x, n.like(0, x))
    return n.op("where", below, n.op("ceil", x), n.op("floor", x))


@aten("trunc", "fix")
def trunc(n: AtenCall) -> str:
    x = n.value("self")
    return _truncated(n, x) if n.dtype(x).startswith("float") else x


@aten("frac")
def frac(n: AtenCall) -> str:
    x = n.value("self")
    return n.op("sub", x, _truncated(n, x))


@aten("remainder")
def remainder(n: AtenCall) -> str:
    return n.op("mod", n.as_made("self"), n.as_made("other"))


@aten("fmod")
def fmod(n: AtenCall) -> str:
    """The remainder that has the dividend's sign."""
    x, y = n.as_made("self"), n.as_made("other")
    if not n.made_dtype.startswith("float"):
        return n.op("sub", x, n.op("mul", n.op("div", x, y), y))
    return _rest(n, x, y)


def _rest(n: AtenCall, x: str, y: str) -> str:
    """What remains of floats divided toward zero."""
    rest = n.op("mod", n.op("abs", x), n.op("abs", y))
    return n.op("where", n.op("lt", x, n.like(0, x)), n.op("neg", rest), rest)
