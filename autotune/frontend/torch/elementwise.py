"""ATen importers: arithmetic, comparisons, functions of one element, casts."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from autotune.errors import UnsupportedOpError
from autotune.frontend.torch.context import AtenCall, AtenImporter, Number, aten
from autotune.frontend.torch.dtypes import graph_dtype, torch_dtype

REAL = {
    "sqrt": "sqrt", "rsqrt": "rsqrt", "exp": "exp", "log": "log", "erf": "erf", "tanh": "tanh",
    "sigmoid": "sigmoid", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin",
    "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh",
    "acosh": "acosh", "atanh": "atanh", "expm1": "expm1", "reciprocal": "reciprocal",
}  # fmt: skip
"""Functions of real numbers, which integers are cast for."""
WHOLE = {"floor": "floor", "ceil": "ceil"}
"""Functions that leave integers as they are."""
ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "maximum": "max", "minimum": "min"}
COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "ne"}
BITS = {
    "bitwise_and": ("and", "bit_and"), "bitwise_or": ("or", "bit_or"),
    "bitwise_xor": ("ne", "bit_xor"),
}  # fmt: skip
"""Ops for bools, and for integers."""
_MOST_FACTORS = 8
"""Powers of integers are so many products at most."""


def _real(op: str) -> AtenImporter:
    return lambda n: n.op(op, n.as_made("self"))


def _whole(op: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x = n.value("self")
        return n.op(op, x) if n.dtype(x).startswith("float") else x

    return run


def _logic(op: str) -> AtenImporter:
    return lambda n: n.op(op, n.in_type("self", "bool"), n.in_type("other", "bool"))


def _bits(logic: str, bits: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        op = logic if n.made_dtype == "bool" else bits
        return n.op(op, n.as_made("self"), n.as_made("other"))

    return run


def _shift(op: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x, count = n.as_made("self"), n.as_made("other")
        return n.op(op, x, count)

    return run


def _arithmetic(op: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x, y = n.as_made("self"), n.as_made("other")
        if n.has("alpha") and (alpha := n.arg("alpha", 1)) != 1:
            y = _computed(n, "mul", y, n.like(alpha, y))
        return _computed(n, op, x, y)

    return run


def _computed(n: AtenCall, op: str, x: str, y: str) -> str:
    """Arithmetic of two values of one type; of bools it is logic."""
    if n.dtype(x) != "bool":
        return n.op(op, x, y)
    logic = {"add": "or", "mul": "and", "max": "or", "min": "and"}
    if op not in logic:
        raise UnsupportedOpError(f"{op} of bools is not supported")
    return n.op(logic[op], x, y)


def _comparison(op: str) -> AtenImporter:
    def run(n: AtenCall) -> str:
        dtype = _common_type(n)
        if dtype == "bool" and op not in ("eq", "ne"):
            dtype = "uint8"
        return n.op(op, n.in_type("self", dtype), n.in_type("other", dtype))

    return run


def _common_type(n: AtenCall) -> str:
    """The type that two operands are compared in."""
    given: list[Number | torch.Tensor] = []
    for name in ("self", "other"):
        number = n.given(name)
        if isinstance(number, Number):
            given.append(number)
        else:
            value = n.value(name)
            given.append(
                torch.empty(n.shape(value), dtype=torch_dtype(n.dtype(value)), device="meta")
            )
    computed, _ = elementwise_dtypes(
        *given, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    )
    return graph_dtype(computed)


for _operator, _op in REAL.items():
    aten(_operator)(_real(_op))
for _operator, _op in WHOLE.items():
    aten(_operator)(_whole(_op))
for _operator, _op in ARITHMETIC.items():
    aten(_operator)(_arithmetic(_op))
for _operator, _op in COMPARISONS.items():
    aten(_operator)(_comparison(_op))
for _operator, _op in LOGIC.items():
    aten(_operator)(_logic(_op))
for _direction in ("left", "right"):
    _shifted = _shift(f"shift_{_direction}")
    aten(f"__{_direction[0]}shift__", f"bitwise_{_direction}_shift")(_shifted)
for _operator, _ops in BITS.items():
    aten(_operator)(_bits(*_ops))


@aten("rsub")
def rsub(n: AtenCall) -> str:
    x, y = n.as_made("self"), n.as_made("other")
    if (alpha := n.arg("alpha", 1)) != 1:
        x = n.op("mul", x, n.like(alpha, x))
    return n.op("sub", y, x)


@aten("round")
def round_(n: AtenCall) -> str:
    x, decimals = n.value("self"), n.arg("decimals", 0) if n.has("decimals") else 0
    if not n.dtype(x).startswith("float"):
        return x
    if not decimals:
        return n.op("round", x)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    unit = n.like(10.0 ** abs(decimals), x)
    return n.op(back, n.op("round", n.op(there, x, unit)), unit)


@aten("prims.fma")
def multiply_add(n: AtenCall) -> str:
    return n.op("add", n.op("mul", n.value("a"), n.value("b")), n.value("c"))


@aten("neg", "negative")
def neg(n: AtenCall) -> str:
    return n.op("neg", n.value("self"))


@aten("abs", "absolute")
def absolute(n: AtenCall) -> str:
    x = n.value("self")
    return x if n.dtype(x) in ("bool", "uint8") else n.op("abs", x)


@aten("sign", "sgn")
def sign(n: AtenCall) -> str:
    x = n.value("self")
    if n.dtype(x) == "bool":
        return x
    found = n.op("sign", x)
    if not n.dtype(x).startswith("float"):
        return found
    return n.op("where", n.op("ne", x, x), n.like(0, x), found)


@aten("square")
def square(n: AtenCall) -> str:
    x = n.as_made("self")
    return n.op("mul", x, x)


@aten("logical_not")
def logical_not(n: AtenCall) -> str:
    return n.op("not", n.in_type("self", "bool"))


@aten("bitwise_not")
def bitwise_not(n: AtenCall) -> str:
    x = n.value("self")
    return n.op("not" if n.dtype(x) == "bool" else "bit_not", x)


@aten("isnan")
def is_nan(n: AtenCall) -> str:
    x = n.value("self")
    return n.op("ne", x, x)


@aten("isinf")
def is_inf(n: AtenCall) -> str:
    x = n.value("self")
    if not n.dtype(x).startswith("float"):
        return n.expanded(n.constant(False), n.shape(x))
    return n.op("eq", n.op("abs", x), n.like(math.inf, x))


@aten("isfinite")
def is_finite(n: AtenCall) -> str:
    x = n.value("self")
    return n.op("lt", n.op("abs", x), n.like(math.inf, x))


@aten("exp2")
def exp2(n: AtenCall) -> str:
    x = n.as_made("self")
    return n.op("pow", n.like(2, x), x)


def _logarithm(base: float) -> AtenImporter:
    def run(n: AtenCall) -> str:
        x = n.as_made("self")
        return n.op("mul", n.op("log", x), n.like(1 / math.log(base), x))

    return run


aten("log2")(_logarithm(2.0))
aten("log10")(_logarithm(10.0))


@aten("log1p")
def log1p(n: AtenCall) -> str:
    """log(1 + x); of a small x, times x over what is left of it in the sum."""
    x = n.as_made("self")
    one = n.like(1, x)
    total = n.op("add", x, one)
    left = n.op("sub", total, one)
    same = n.op("or", n.op("eq", left, n.like(0, x)), n.op("eq", total, n.like(math.inf, x)))
    exact = n.op("mul", n.op("log", total), n.op("div", x, n.op("where", same, one, left)))
    nothing = n.op("eq", left, n.like(0, x))
    exact = n.op("where", nothing, x, exact)
    return n.op("where", n.op("eq", total, n.like(math.inf, x)), total, exact)


@aten("pow")
def power(n: AtenCall) -> str:
    exponent = n.given("exponent")
    x = n.as_made("self")
    if isinstance(exponent, Number):
        return _known_power(n, x, exponent)
    if not n.made_dtype.startswith("float"):
        return _whole_power(n, n.given("self"))
    return n.op("pow", x, n.as_made("exponent"))


def _whole_power(n: AtenCall, base: Any) -> str:
    """A power of two by whole exponents, as codes of bits are made: a one, shifted."""
    if not isinstance(base, int) or base < 2 or base.bit_count() != 1:
        raise UnsupportedOpError("integers by powers that a run knows are not supported")
    exponent, bits = n.as_made("exponent"), 8 * torch_dtype(n.made_dtype).itemsize
    none = n.op("lt", exponent, n.like(0, exponent))
    inside = n.op("min", n.op("max", exponent, n.like(0, exponent)), n.like(bits, exponent))
    count = n.op("mul", inside, n.like(base.bit_length() - 1, exponent))
    none = n.op("or", none, n.op("ge", count, n.like(bits, exponent)))
    shifted = n.op("shift_left", n.like(1, count), n.op("min", count, n.like(bits - 1, count)))
    return n.op("where", none, n.like(0, count), shifted)


def _known_power(n: AtenCall, x: str, exponent: Number) -> str:
    real = n.dtype(x).startswith("float")
    special = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if exponent in range(1, (4 if real else _MOST_FACTORS) + 1):
        return functools.reduce(lambda a, _: n.op("mul", a, x), range(int(exponent) - 1), x)
    if real and exponent in special:
        return n.op(special[float(exponent)], x)
    if not real:
        raise UnsupportedOpError(f"integers to the power of {exponent} are not supported")
    return n.op("pow", x, n.like(float(exponent), x))


@aten("clamp", "clip")
def clamp(n: AtenCall) -> str:
    x, low, high = n.as_made("self"), n.given("min"), n.given("max")
    real, fixed = (
        n.made_dtype.startswith("float"),
        not isinstance(low, str) and not isinstance(high, str),
    )
    if real and fixed:
        return n.op(
            "clip", x, min=-math.inf if low is None else float(low),
            max=math.inf if high is None else float(high),
        )  # fmt: skip
    for op, name in (("max", "min"), ("min", "max")):
        x = x if n.given(name) is None else _computed(n, op, x, n.as_made(name))
    return x


@aten("clamp_min")
def clamp_min(n: AtenCall) -> str:
    return _computed(n, "max", n.as_made("self"), n.as_made("min"))


@aten("clamp_max")
def clamp_max(n: AtenCall) -> str:
    return _computed(n, "min", n.as_made("self"), n.as_made("max"))


@aten("where")
def where(n: AtenCall) -> str:
    condition = n.in_type("condition", "bool")
    return n.op("where", condition, n.as_made("self"), n.as_made("other"))


@aten("masked_fill")
def masked_fill(n: AtenCall) -> str:
    x, mask = n.as_made("self"), n.value("mask")
    return n.op("where", mask, n.as_made("value"), x)


@aten("lerp")
def lerp(n: AtenCall) -> str:
    """From whichever end is nearer, so that a weight of one gives the end itself."""
    start, end, weight = n.as_made("self"), n.as_made("end"), n.as_made("weight")
    way = n.op("sub", end, start)
    one = n.like(1, weight)
    before = n.op("add", start, n.op("mul", weight, way))
    number = n.given("weight")
    if isinstance(number, int | float) and abs(number) < 0.5:
        return before
    behind = n.op("sub", end, n.op("mul", way, n.op("sub", one, weight)))
    if isinstance(number, int | float):
        return behind
    near = n.op("lt", n.op("abs", weight), n.like(0.5, weight))
    return n.op("where", near, before, behind)


@aten("addcmul", "addcdiv")
def add_combined(n: AtenCall) -> str:
    x, a, b = n.as_made("self"), n.as_made("tensor1"), n.as_made("tensor2")
    op = "mul" if "addcmul" in str(n.target) else "div"
    term = n.op(op, a, b)
    return n.op("add", x, n.op("mul", term, n.like(n.arg("value", 1), term)))


@aten("_to_copy", "to")
def to_copy(n: AtenCall) -> str:
    return n.as_made("self")


@aten("prims.convert_element_type")
def convert(n: AtenCall) -> str:
    return n.as_made("a")


@aten("copy")
def copy(n: AtenCall) -> str:
    """Another tensor's elements, in the shape and type of this one."""
    return n.expanded(n.as_made("src"), n.made_shape)


@aten("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous", "dropout")
def same(n: AtenCall) -> str:
    if n.has("train") and n.arg("train", False):
        raise UnsupportedOpError("it draws numbers")
    return n.value("self" if n.has("self") else "input")
