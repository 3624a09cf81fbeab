"""Element functions as LLVM IR text, for any number of lanes.

exp, log, erf, tanh and sigmoid are polynomials, so that they vectorize and inline; rsqrt starts
from the machine's estimate, where it has one. The errors in the docstrings are against float64
over the whole float32 range (see the tests). What has no code here goes to LLVM's intrinsics,
which call the C library per lane.
"""

from __future__ import annotations

import math
import struct
from typing import ClassVar

from autotune.codegen.llvm_text import FunctionText, suffix_text, type_text
from autotune.errors import BuildError

INTRINSICS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "abs": "fabs",
    "sin": "sin", "cos": "cos", "exp": "exp", "log": "log", "tanh": "tanh",
}  # fmt: skip
ODD_FOR_ROOTS = 1 << 9 | 1 << 7 | 1 << 6 | 1 << 5
"""LLVM's classes: positive infinity and denormals, zeros."""

SMALLEST_NORMAL = 2.0**-126


def float_text(value: float, dtype: str = "float32") -> str:
    """A literal that LLVM reads back exactly: hexadecimal double."""
    if dtype == "float32":
        value = struct.unpack("f", struct.pack("f", value))[0] if math.isfinite(value) else value
    return "0x" + struct.pack(">d", value).hex().upper()


class MathWriter:
    """Writes arithmetic on float32 values of `lanes` lanes into a function."""

    own: ClassVar[tuple[str, ...]] = ("exp", "log", "tanh", "sigmoid", "erf", "rsqrt")
    """Functions of one float32 value that are methods here."""
    intrinsics: ClassVar[dict[str, str]] = INTRINSICS
    """Those that LLVM has code for: by name, LLVM's name."""

    def __init__(self, text: FunctionText, lanes: int, dtype: str = "float32") -> None:
        self.text, self.lanes, self.dtype = text, lanes, dtype
        self.type = type_text(dtype, lanes)
        self.int_type = type_text("int32", lanes)

    def const(self, value: float) -> str:
        literal = float_text(value, self.dtype)
        if self.lanes == 1:
            return literal
        return f"splat ({type_text(self.dtype, 1)} {literal})"

    def int_const(self, value: int) -> str:
        return str(value) if self.lanes == 1 else f"splat (i32 {value})"

    def op(self, name: str, a: str, b: str) -> str:
        flags = "" if name == "fdiv" else "nsz contract "
        return self.text.emit(f"{name} {flags}{self.type} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.call("fmuladd", a, b, c, flags="nsz contract ")

    def call(self, name: str, *args: str, flags: str = "") -> str:
        symbol = f"llvm.{name}.{suffix_text(self.dtype, self.lanes)}"
        types = ", ".join([self.type] * len(args))
        self.text.declare(symbol, f"declare {self.type} @{symbol}({types})")
        given = ", ".join(f"{self.type} {a}" for a in args)
        return self.text.emit(f"call {flags}{self.type} @{symbol}({given})")

    def select_max(self, a: str, b: str) -> str:
        """max(a, b) that gives `a` where either is not a number."""
        return self.choose(self.compare("olt", a, b), b, a)

    def select_min(self, a: str, b: str) -> str:
        """min(a, b) that gives `a` where either is not a number."""
        return self.choose(self.compare("ogt", a, b), b, a)

    def choose(self, flag: str, a: str, b: str) -> str:
        mask = "i1" if self.lanes == 1 else f"<{self.lanes} x i1>"
        return self.text.emit(f"select {mask} {flag}, {self.type} {a}, {self.type} {b}")

    def compare(self, kind: str, a: str, b: str) -> str:
        return self.text.emit(f"fcmp {kind} {self.type} {a}, {b}")

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        """Horner, highest power first."""
        value = self.const(coefficients[0])
        for c in coefficients[1:]:
            value = self.fma(value, x, self.const(c))
        return value

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
        bits = self._bits(shifted)
        scale = self.text.emit(f"shl {self.int_type} {bits}, {self.int_const(23)}")
        scaled = self.text.emit(f"add {self.int_type} {self._bits(p)}, {scale}")
        return self._from_bits(scaled)

    def exp_parts(self, x: str) -> tuple[str, str, str]:
        """(a number with n in its lowest bits, n, p): e**x is p times two to the power of n."""
        # Adding 1.5 * 2**23 rounds to an integer, which then stands in the lowest bits.
        shifted = self.fma(x, self.const(math.log2(math.e)), self.const(12582912.0))
        n = self.op("fsub", shifted, self.const(12582912.0))
        r = self.fma(n, self.const(-0.693359375), x)
        r = self.fma(n, self.const(2.12194440054690583e-4), r)
        return shifted, n, self.polynomial(r, EXP)

    def _bits(self, x: str) -> str:
        return self.text.emit(f"bitcast {self.type} {x} to {self.int_type}")

    def _from_bits(self, x: str) -> str:
        return self.text.emit(f"bitcast {self.int_type} {x} to {self.type}")

    def log(self, x: str) -> str:
        """Natural logarithm, within 1 ulp, denormals included; -inf at 0, nan below."""
        tiny = self.compare("olt", x, self.const(2.0**-126))
        scaled = self.choose(tiny, self.op("fmul", x, self.const(2.0**23)), x)
        bias = self.choose(tiny, self.const(-23.0), self.const(0.0))
        bits = self._bits(scaled)
        # The exponent of the power of two that brings x into sqrt(1/2) .. sqrt(2).
        shifted = self.text.emit(f"sub {self.int_type} {bits}, {self.int_const(0x3F3504F3)}")
        e = self.text.emit(f"ashr {self.int_type} {shifted}, {self.int_const(23)}")
        back = self.text.emit(f"shl {self.int_type} {e}, {self.int_const(23)}")
        mantissa = self.text.emit(f"sub {self.int_type} {bits}, {back}")
        r = self.op("fsub", self._from_bits(mantissa), self.const(1.0))
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

    def tanh(self, x: str) -> str:
        """Hyperbolic tangent, within 5 ulp: a rational function on |x| < 9."""
        limited = self.select_max(x, self.const(-9.0))
        limited = self.select_min(limited, self.const(9.0))
        square = self.op("fmul", limited, limited)
        top = self.op("fmul", limited, self.polynomial(square, TANH_TOP))
        return self.op("fdiv", top, self.polynomial(square, TANH_BOTTOM))

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
        """1 / sqrt(x), within 5 ulp; infinity at 0, where denormals count as 0."""
        if self.lanes == 1:
            return self.op("fdiv", self.const(1.0), self.call("sqrt", x))
        near = self._near_rsqrt(x)
        # Infinity for 0, and 0 for infinity.
        turned = self.text.emit(f"xor {self.int_type} {self._bits(x)}, {self.int_const(-1)}")
        other = self.text.emit(f"and {self.int_type} {turned}, {self.int_const(0x7F800000)}")
        return self.choose(self._is_class(x, ODD_FOR_ROOTS), self._from_bits(other), near)

    def rsqrt_of_normal(self, x: str) -> str:
        """1 / sqrt(x), within 5 ulp, of what is known to be a normal number or larger, or none."""
        if self.lanes == 1:
            return self.rsqrt(x)
        near = self._near_rsqrt(x)
        infinite = self.compare("oeq", x, self.const(math.inf))
        out = self.choose(infinite, self.const(0.0), near)
        # Frozen, or LLVM has roots of it chosen once more.
        return self.text.emit(f"freeze {self.type} {out}")

    def _near_rsqrt(self, x: str) -> str:
        """1 / sqrt(x) of normal numbers: permission to estimate. LLVM takes it where that is
        faster, and refines it; of 0, of infinity and of some machines' denormals that makes no
        number."""
        root = self.call("sqrt", x, flags="arcp contract ")
        one = self.const(1.0)
        return self.text.emit(f"fdiv arcp contract {self.type} {one}, {root}")

    def _is_class(self, x: str, classes: int) -> str:
        """Whether x is of one of the classes of numbers, as LLVM's bits."""
        symbol = f"llvm.is.fpclass.{suffix_text(self.dtype, self.lanes)}"
        mask = type_text("bool", self.lanes)
        self.text.declare(symbol, f"declare {mask} @{symbol}({self.type}, i32 immarg)")
        return self.text.emit(f"call {mask} @{symbol}({self.type} {x}, i32 {classes})")

    def power(self, x: str, y: str, known: float) -> str:
        """x ** y where y is known: multiples of a quarter up to 4 by products and square roots."""
        if known * 4 != int(known * 4) or not 0 < abs(known) <= 4:
            return self.call("pow", x, y)
        quarters = int(abs(known) * 4)
        factors = [x] * (quarters // 4)
        root = self.call("sqrt", x) if quarters % 4 else ""
        factors += [root] * (quarters % 4 // 2)
        factors += [self.call("sqrt", root)] if quarters % 2 else []
        out = factors[0]
        for factor in factors[1:]:
            out = self.op("fmul", out, factor)
        return out if known > 0 else self.op("fdiv", self.const(1.0), out)


# Coefficients, highest power first. Those of exp (on |r| < ln(2)/2, ending in 1 + r), of erf(x)/x
# in x*x (|x| < 0.93) and of log(1 - erf(x)) (0.9 < x < 4) are least-maximum fits against float64.
EXP = (8.312514835e-3, 4.189021057e-2, 1.666711487e-1, 4.999923113e-1, 1.0, 1.0)
ERF_NEAR = (
    -5.953779222e-4, 4.985949719e-3, -2.676172794e-2, 1.128168285e-1, -3.761248115e-1,
    1.128379148,
)  # fmt: skip
ERF_FAR = (
    1.982198671e-4, -3.065492302e-3, 2.231522072e-2, -1.041136940e-1, -6.369760666e-1,
    -1.127797252, -1.664454175e-4,
)  # fmt: skip
TANH_TOP = (
    -5.6416762410e-14, 4.0874172074e-11, -1.7583789182e-8, 1.0467499188e-5, 3.0360983153e-3,
    1.3022553368e-1, 9.9999987195e-1,
)  # fmt: skip
TANH_BOTTOM = (
    2.4486609330e-4, 2.4222763998e-2, 4.6355838510e-1, 1.0000000000,
)  # fmt: skip
LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


def unary(writer: MathWriter, fn: str, x: str) -> str:
    """A function of one float value."""
    text, dtype = writer.text, writer.dtype
    if dtype == "float32" and fn in writer.own:
        return str(getattr(writer, fn)(x))
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
