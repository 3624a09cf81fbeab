"""Powers and remainders of float32 vectors, by float64 arithmetic.

In: how many lanes. Out: the text of a function of two vectors, which LLVM inlines: of an exponent
or a divisor that is a constant, what depends on it alone is folded. A power is within 0.6 ulp and
has C's special cases; a remainder is exact.
"""

from __future__ import annotations

import math

from autotune.codegen.llvm.arithmetic import ArithmeticWriter
from autotune.codegen.llvm.text import FunctionText, type_text

LOG2 = (
    0.07736880923904049, -0.1428377289745769, 0.14474830872776273, -0.14315677716088246,
    0.15876987866932488, -0.18030058041867159, 0.20617535254274308, -0.24045316610398565,
    0.28853729370032943, -0.3606736748247965, 0.4808983613929159, -0.7213475208687441,
    1.4426950408687094,
)  # fmt: skip
"""log2(1 + r) / r, sqrt(1/2) < 1 + r < sqrt(2), within 2^-35.8 of itself."""
EXP2 = (
    1.534583265618889e-4, 1.3399931136418935e-3, 9.618488881739455e-3, 5.5503287773925755e-2,
    2.4022646891266947e-1, 6.931472057368893e-1, 1.000000000554097,
)  # fmt: skip
"""2**r, |r| <= 1/2, within 2^-29 of itself."""
MANTISSA_BITS = 52
EXPONENT_BITS = 0x7FF << MANTISSA_BITS
ONE = 1023 << MANTISSA_BITS
"""The bits of 1.0."""
ROOT_OF_HALF = 0x3FE6A09E667F3BCD
"""The bits of sqrt(1/2)."""
WHOLE = 2.0**52
"""An integer in this number's lowest bits makes it the number that is as much more."""
WHOLE_BITS = (1023 + 52) << MANTISSA_BITS
ROUNDER = 1.5 * 2.0**52
"""Adding it rounds to an integer, which then stands in the lowest bits."""
MOST_POWER = 300.0
"""Two to the power of this, or of minus this, is no float32 number."""
MOST_QUOTIENT = 2.0**28
"""Below, cutting the rounded quotient of two float32 numbers cuts the quotient itself: it is
2**-24 away from the next integer, or that integer. The integer times the divisor is exact."""


def power_text(symbol: str, lanes: int, declared: dict[str, str]) -> str:
    """x ** y: two to the power of y log2 |x|, with the sign of x where y is odd."""
    text, single, double = _begun(symbol, lanes)
    log2 = _log2(double, _widened(single, double, single.call("fabs", "%x")))
    power = _exp2(double, double.op("fmul", _widened(single, double, "%y"), log2))
    found = _signed(single, _narrowed(single, double, power))
    # Of 1 every power is 1, and of -1 those of infinity are: 0 times infinity is no number.
    size = single.call("fabs", "%y")
    endless = single.compare("ueq", size, single.const(math.inf))
    turned = single.compare("oeq", "%x", single.const(-1.0))
    turned = single.both(turned, single.compare("ord", size, size))
    unit = single.either(single.compare("oeq", "%x", single.const(1.0)), turned)
    unit = single.either(single.both(endless, unit), single.compare("oeq", size, single.const(0)))
    return _finished(text, single, single.choose(unit, single.const(1.0), found), declared)


def _log2(w: ArithmeticWriter, x: str) -> str:
    """log2(x), x >= 0, within 2^-35.8 of itself."""
    moved = _integer(w, "add", w.bits(x), ONE - ROOT_OF_HALF)
    power = _integer(w, "and", moved, EXPONENT_BITS)
    mantissa = w.text.emit(f"sub {w.int_type} {w.bits(x)}, {power}")
    mantissa = w.from_bits(_integer(w, "add", mantissa, ONE))
    whole = w.from_bits(_integer(w, "or", _integer(w, "lshr", moved, MANTISSA_BITS), WHOLE_BITS))
    whole = w.op("fsub", whole, w.const(WHOLE + 1023))
    r = w.op("fsub", mantissa, w.const(1.0))
    out = w.fma(r, w.polynomial(r, LOG2), whole)
    out = w.choose(w.compare("olt", x, w.const(math.inf)), out, x)
    return w.choose(w.compare("oeq", x, w.const(0.0)), w.const(-math.inf), out)


def _exp2(w: ArithmeticWriter, t: str) -> str:
    """2**t, within 2^-29 of itself, as far as float32 has such numbers."""
    t = w.select_min(w.select_max(t, w.const(-MOST_POWER)), w.const(MOST_POWER))
    shifted = w.op("fadd", t, w.const(ROUNDER))
    r = w.op("fsub", t, w.op("fsub", shifted, w.const(ROUNDER)))
    scale = _integer(w, "shl", w.bits(shifted), MANTISSA_BITS)
    return w.op("fmul", w.polynomial(r, EXP2), w.from_bits(_integer(w, "add", scale, ONE)))


def _signed(w: ArithmeticWriter, power: str) -> str:
    """|x| ** y as x ** y: negative of negative numbers where y is odd, and none where y is not
    whole, but of minus infinity."""
    zero, half = w.const(0.0), w.op("fmul", "%y", w.const(0.5))
    whole = w.compare("oeq", w.call("floor", "%y"), "%y")
    odd = w.both(whole, w.compare("one", w.call("floor", half), half))
    power = w.choose(odd, w.call("copysign", power, "%x"), power)
    finite = w.compare("ogt", "%x", w.const(-math.inf))
    below = w.both(w.compare("olt", "%x", zero), finite)
    rootless = w.both(below, w.compare("one", w.call("floor", "%y"), "%y"))
    return w.choose(rootless, w.const(math.nan), power)


def remainder_text(symbol: str, lanes: int, declared: dict[str, str]) -> str:
    """What remains of x by y, with the sign of x, as C's fmod; vectors in which a quotient is
    large, or none, are the C library's."""
    text, single, double = _begun(symbol, lanes)
    x, y = (_widened(single, double, v) for v in ("%x", "%y"))
    quotient = double.op("fdiv", x, y)
    size = double.call("fabs", quotient)
    far = double.compare("uge", size, double.const(MOST_QUOTIENT))
    whole = double.call("trunc", quotient)
    near = double.op("fsub", x, double.op("fmul", whole, y))
    near = single.call("copysign", _narrowed(single, double, near), "%x")
    near = single.choose(double.compare("olt", size, double.const(1.0)), "%x", near)
    beyond, done, before = text.label(), text.label(), text.block
    text.branch(f"i1 {_any(text, far, lanes)}, label %{beyond}, label %{done}")
    text.start(beyond)
    exact = text.emit(f"frem {single.type} %x, %y")
    text.branch(f"label %{done}")
    text.start(done)
    found = text.emit(f"phi {single.type} [ {near}, %{before} ], [ {exact}, %{beyond} ]")
    return _finished(text, single, found, declared)


def _any(text: FunctionText, flags: str, lanes: int) -> str:
    kind, name = type_text("bool", lanes), f"llvm.vector.reduce.or.v{lanes}i1"
    text.declare(name, f"declare i1 @{name}({kind})")
    return text.emit(f"call i1 @{name}({kind} {flags})")


def _begun(symbol: str, lanes: int) -> tuple[FunctionText, ArithmeticWriter, ArithmeticWriter]:
    """A function of two vectors, and what writes arithmetic of both precisions into it."""
    kind = type_text("float32", lanes)
    given = f"({kind} %x, {kind} %y) alwaysinline nounwind"
    text = FunctionText(f"define internal {kind} @{symbol}{given}")
    return text, ArithmeticWriter(text, lanes), ArithmeticWriter(text, lanes, "float64")


def _finished(
    text: FunctionText, w: ArithmeticWriter, found: str, declared: dict[str, str]
) -> str:
    text.line(f"ret {w.type} {found}")
    declared |= text.declared
    return text.text()


def _integer(w: ArithmeticWriter, name: str, x: str, constant: int) -> str:
    return w.text.emit(f"{name} {w.int_type} {x}, {w.int_const(constant)}")


def _widened(single: ArithmeticWriter, double: ArithmeticWriter, x: str) -> str:
    return single.text.emit(f"fpext {single.type} {x} to {double.type}")


def _narrowed(single: ArithmeticWriter, double: ArithmeticWriter, x: str) -> str:
    return single.text.emit(f"fptrunc {double.type} {x} to {single.type}")
