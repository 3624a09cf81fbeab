"""Element functions as LLVM IR text, for any number of lanes.

exp, log, erf and sigmoid are polynomials, so that they vectorize and inline, and so are those of
`formulas`; reciprocal roots of sums that cannot be denormal start from the machine's estimate,
where it has one. Errors in docstrings are against float64 over the whole float32 range (see the
tests). What has no code here goes to LLVM's intrinsics, which call the C library per lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from autotune.codegen.formulas import EXP, FORMULAS, LOG
from autotune.codegen.formulas_double import DOUBLE, LIBRARY
from autotune.codegen.llvm.arithmetic import ArithmeticWriter
from autotune.codegen.llvm.doubled import power_text, remainder_text
from autotune.codegen.llvm.text import suffix_text
from autotune.errors import BuildError

INTRINSICS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "abs": "fabs",
    "sin": "sin", "cos": "cos", "exp": "exp", "log": "log", "tanh": "tanh",
}  # fmt: skip

VectorFunction = Callable[[str, int, dict[str, str]], str]
"""(symbol, lanes, what is declared, where it adds to) -> a function of two vectors, as text."""
SMALLEST_NORMAL = 2.0**-126
"""The least normal float32."""
UNSCALED = 2.0**24
"""What brings products that are the reciprocals of finite numbers out of the denormal ones."""
MOST_FACTORS = 4
"""Multiplications that a power is made of at most: with one more it would be off by over 4 ulp."""


def is_product(exponent: float) -> bool:
    """Whether powers of this exponent are made of products and square roots."""
    return exponent * 4 == int(exponent * 4) and -2 <= exponent <= 4 and exponent != 0


def factors_of(exponent: float) -> int:
    """Numbers, their square roots and fourth roots that make up the power."""
    whole, quarters = divmod(int(abs(exponent) * 4), 4)
    return whole + quarters // 2 + quarters % 2


class MathWriter(ArithmeticWriter):
    """Writes arithmetic on float32 values of `lanes` lanes into a function."""

    own: ClassVar[tuple[str, ...]] = ("exp", "log", "sigmoid", "erf", "rsqrt")
    """Functions of one float32 value that are methods here."""
    intrinsics: ClassVar[dict[str, str]] = INTRINSICS
    """Functions that LLVM has code for: by name, LLVM's name."""

    # ---------------------------------------------------------------------------------- functions

    def exp(self, x: str) -> str:
        """e**x, within 2.5 ulp of normal results; 0 below -87.336 and infinity above 88.7228."""
        under = self.compare("olt", x, self.const(-87.33654))
        value = self.choose(under, self.const(0.0), self._exp_inside(x))
        over = self.op("fmul", x, self.const(math.inf))
        return self.choose(self.compare("ugt", x, self.const(88.72283172607422)), over, value)

    def _exp_inside(self, x: str) -> str:
        """e**x for -87.336 < x < 88.7228."""
        shifted, _, p = self.exp_parts(x)
        bits = self.bits(shifted)
        scale = self.text.emit(f"shl {self.int_type} {bits}, {self.int_const(23)}")
        scaled = self.text.emit(f"add {self.int_type} {self.bits(p)}, {scale}")
        return self.from_bits(scaled)

    def exp_parts(self, x: str) -> tuple[str, str, str]:
        """(a number with n in its lowest bits, n, p): e**x is p times two to the power of n."""
        shifted, n, r = self._reduced(x, x)
        return shifted, n, self.polynomial(r, EXP)

    def _reduced(self, x: str, total: str) -> tuple[str, str, str]:
        """(a number with n in its lowest bits, n, x - n ln 2): n is nearest to total / ln 2."""
        # Adding 1.5 * 2**23 rounds to an integer, which then stands in the lowest bits.
        shifted = self.fma(total, self.const(math.log2(math.e)), self.const(12582912.0))
        n = self.op("fsub", shifted, self.const(12582912.0))
        r = self.fma(n, self.const(-0.693359375), x)
        return shifted, n, self.fma(n, self.const(2.12194440054690583e-4), r)

    def reduced(self, x: str, rest: str) -> tuple[str, str]:
        """(a number with n in its lowest bits, x + rest - n ln 2)."""
        shifted, _, r = self._reduced(x, self.op("fadd", x, rest) if rest else x)
        return shifted, self.op("fadd", r, rest) if rest else r

    def times_power(self, p: str, shifted: str, more: int) -> str:
        """p times two to the power of n + more, n in the lowest bits of `shifted`."""
        bits = self.text.emit(f"add {self.int_type} {self.bits(shifted)}, {self.int_const(more)}")
        scale = self.text.emit(f"shl {self.int_type} {bits}, {self.int_const(23)}")
        scaled = self.text.emit(f"add {self.int_type} {self.bits(p)}, {scale}")
        return self.from_bits(scaled)

    def binade(self, u: str) -> tuple[str, str]:
        """(n, 2**-n), u * 2**-n between sqrt(1/2) and sqrt(2)."""
        shifted = self.text.emit(
            f"sub {self.int_type} {self.bits(u)}, {self.int_const(0x3F3504F3)}"
        )
        e = self.text.emit(f"ashr {self.int_type} {shifted}, {self.int_const(23)}")
        back = self.text.emit(f"shl {self.int_type} {e}, {self.int_const(23)}")
        power = self.text.emit(f"sub {self.int_type} {self.int_const(0x3F800000)}, {back}")
        n = self.text.emit(f"sitofp {self.int_type} {e} to {self.type}")
        return n, self.from_bits(power)

    def upper(self, x: str) -> str:
        """x cut to its first 12 significant bits."""
        return self._masked(x, -(1 << 12))

    def power_below(self, x: str) -> str:
        """The power of two at or below |x|."""
        return self._masked(x, 0x7F800000 if self.dtype == "float32" else 0x7FF << 52)

    def _masked(self, x: str, mask: int) -> str:
        kept = f"and {self.int_type} {self.bits(x)}, {self.int_const(mask)}"
        return self.from_bits(self.text.emit(kept))

    def library(self, name: str, x: str) -> str:
        """The C library's function of doubles, lane by lane."""
        self.text.declare(name, f"declare double @{name}(double)")
        if self.lanes == 1:
            return self.text.emit(f"call double @{name}(double {x})")
        out = "poison"
        for lane in range(self.lanes):
            one = self.text.emit(f"extractelement {self.type} {x}, i64 {lane}")
            one = self.text.emit(f"call double @{name}(double {one})")
            out = self.text.emit(f"insertelement {self.type} {out}, double {one}, i64 {lane}")
        return out

    def function(self, name: str, x: str) -> str:
        """Another element function of one value."""
        return unary(self, name, x)

    def log(self, x: str) -> str:
        """Natural logarithm, within 1 ulp, denormals included; -inf at 0, nan below."""
        tiny = self.compare("olt", x, self.const(2.0**-126))
        scaled = self.choose(tiny, self.op("fmul", x, self.const(2.0**23)), x)
        bias = self.choose(tiny, self.const(-23.0), self.const(0.0))
        bits = self.bits(scaled)
        # The exponent of the power of two that brings x into sqrt(1/2) .. sqrt(2).
        shifted = self.text.emit(f"sub {self.int_type} {bits}, {self.int_const(0x3F3504F3)}")
        e = self.text.emit(f"ashr {self.int_type} {shifted}, {self.int_const(23)}")
        back = self.text.emit(f"shl {self.int_type} {e}, {self.int_const(23)}")
        mantissa = self.text.emit(f"sub {self.int_type} {bits}, {back}")
        r = self.op("fsub", self.from_bits(mantissa), self.const(1.0))
        n = self.text.emit(f"sitofp {self.int_type} {e} to {self.type}")
        n = self.op("fadd", n, bias)
        square = self.op("fmul", r, r)
        p = self.op("fmul", self.op("fmul", self.polynomial(r, LOG), r), square)
        p = self.fma(n, self.const(-2.12194440e-4), p)
        p = self.fma(square, self.const(-0.5), p)
        p = self.fma(n, self.const(0.693359375), self.op("fadd", r, p))
        p = self.choose(self.compare("oeq", x, self.const(0.0)), self.const(-math.inf), p)
        p = self.choose(self.compare("oeq", x, self.const(math.inf)), self.const(math.inf), p)
        return self.choose(self.compare("ult", x, self.const(0.0)), self.const(math.nan), p)

    def sigmoid(self, x: str) -> str:
        """1 / (1 + e**-x), within 4 ulp."""
        e = self.exp(self.text.emit(f"fneg {self.type} {x}"))
        return self.op("fdiv", self.const(1.0), self.op("fadd", e, self.const(1.0)))

    def erf(self, x: str) -> str:
        """Error function, within 3 ulp: an odd polynomial near 0, else 1 - e**polynomial."""
        a = self.call("fabs", x)
        square = self.op("fmul", x, x)
        near = self.op("fmul", x, self.polynomial(square, ERF_NEAR))
        limited = self.select_min(a, self.const(4.0))
        decay = self._exp_inside(self.polynomial(limited, ERF_FAR))
        far = self.call("copysign", self.op("fsub", self.const(1.0), decay), x)
        return self.choose(self.compare("ult", a, self.const(0.92)), near, far)

    def rsqrt(self, x: str) -> str:
        """1 / sqrt(x), within 1.5 ulp, denormals included; infinity at 0."""
        return self.op("fdiv", self.const(1.0), self.call("sqrt", x))

    def rsqrt_of_normal(self, x: str) -> str:
        """1 / sqrt(x), within 5 ulp, of what is known to be a normal number or larger, or none:
        the roots of normalizations, whose sums are no more exact, have an epsilon in them."""
        if self.lanes == 1:
            return self.rsqrt(x)
        # Permission to estimate: LLVM takes it where that is faster, and refines the estimate; of
        # infinity that makes no number.
        root = self.call("sqrt", x, flags="arcp contract ")
        one = self.const(1.0)
        near = self.text.emit(f"fdiv arcp contract {self.type} {one}, {root}")
        infinite = self.compare("oeq", x, self.const(math.inf))
        out = self.choose(infinite, self.const(0.0), near)
        # Frozen, or LLVM has roots of it chosen once more.
        return self.text.emit(f"freeze {self.type} {out}")

    def power(self, x: str, y: str, known: float) -> str:
        """x ** y where y is known."""
        if not is_product(known) or factors_of(known) > MOST_FACTORS:
            return self.pow(x, y)
        return self.power_by_products(x, known)

    def pow(self, x: str, y: str) -> str:
        """x ** y; of vectors of float32 within 0.6 ulp."""
        if self.dtype != "float32" or self.lanes == 1:
            return self.call("pow", x, y)
        return self._of_two("power", power_text, x, y)

    def remainder(self, x: str, y: str) -> str:
        """What remains of x by y, exact, with the sign of x."""
        if self.dtype != "float32" or self.lanes == 1:
            return self.text.emit(f"frem {self.type} {x}, {y}")
        return self._of_two("remainder", remainder_text, x, y)

    def _of_two(self, name: str, code: VectorFunction, x: str, y: str) -> str:
        symbol = f"{name}_{suffix_text(self.dtype, self.lanes)}"
        if symbol not in self.text.declared:
            self.text.declare(symbol, code(symbol, self.lanes, self.text.declared))
        return self.text.emit(f"call {self.type} @{symbol}({self.type} {x}, {self.type} {y})")

    def _unscaled(self, x: str) -> str:
        small = self.compare("olt", self.call("fabs", x), self.const(1.0))
        return self.choose(small, self.const(UNSCALED), self.const(1.0))

    def power_by_products(self, x: str, known: float) -> str:
        """x ** known by products and square roots."""
        quarters = int(abs(known) * 4)
        factors, root = [x] * (quarters // 4), ""
        if quarters % 4:
            # Of minus infinity the power is infinite, though it has no root.
            end = self.compare("oeq", x, self.const(-math.inf))
            root = self.call("sqrt", self.choose(end, self.const(math.inf), x))
            factors = [self.call("fabs", x)] * (quarters // 4)
        factors += [root] * (quarters % 4 // 2)
        factors += [self.call("sqrt", root)] if quarters % 2 else []
        # A product below 2**-126 has lost digits that its reciprocal would show.
        scale = self._unscaled(x) if known < -1 else ""
        out = self.op("fmul", factors[0], scale) if scale else factors[0]
        for factor in factors[1:]:
            out = self.op("fmul", out, factor)
        if known > 0:
            return out
        # A root of -0 is -0.
        out = self.call("fabs", out) if quarters % 4 else out
        out = self.op("fdiv", self.const(1.0), out)
        return self.op("fmul", out, scale) if scale else out


# Coefficients, highest power first, of erf(x)/x in x*x (|x| < 0.93) and of log(1 - erf(x))
# (0.9 < x < 4): least-maximum fits against float64.
ERF_NEAR = (
    -5.953779222e-4, 4.985949719e-3, -2.676172794e-2, 1.128168285e-1, -3.761248115e-1,
    1.128379148,
)  # fmt: skip
ERF_FAR = (
    1.982198671e-4, -3.065492302e-3, 2.231522072e-2, -1.041136940e-1, -6.369760666e-1,
    -1.127797252, -1.664454175e-4,
)  # fmt: skip


def unary(writer: MathWriter, fn: str, x: str) -> str:
    """A function of one float value."""
    text, dtype = writer.text, writer.dtype
    if dtype == "float32" and fn in writer.own:
        return str(getattr(writer, fn)(x))
    known = FORMULAS if dtype == "float32" else DOUBLE
    if fn in known:
        return known[fn](writer, x)
    if dtype == "float64" and fn in LIBRARY:
        return writer.library(fn, x)
    if fn == "binade":
        return writer.power_below(x)
    if fn == "neg":
        return text.emit(f"fneg {writer.type} {x}")
    if fn == "rsqrt":
        return writer.op("fdiv", writer.const(1.0), writer.call("sqrt", x))
    if fn == "reciprocal":
        return writer.op("fdiv", writer.const(1.0), x)
    if fn == "sign":
        one = writer.call("copysign", writer.const(1.0), x)
        return writer.choose(writer.compare("ueq", x, writer.const(0.0)), x, one)
    if fn == "sigmoid" and "exp" in writer.intrinsics:
        e = writer.call("exp", text.emit(f"fneg {writer.type} {x}"))
        return writer.op("fdiv", writer.const(1.0), writer.op("fadd", e, writer.const(1.0)))
    if fn in writer.intrinsics:
        return writer.call(writer.intrinsics[fn], x)
    raise BuildError(f"no {dtype} code for {fn}")
