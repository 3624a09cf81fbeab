"""Element functions as LLVM IR text, for any number of lanes.

exp, log, erf, tanh and sigmoid are polynomials, so that they vectorise and inline; the errors in
the docstrings are against float64 over the whole float32 range (see the tests). What has no
polynomial here goes to LLVM's intrinsics, which call the C library per lane.
"""

from __future__ import annotations

import math
import struct

from autotune.codegen.llvm_text import FunctionText, suffix_text, type_text
from autotune.errors import BuildError

INTRINSICS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "abs": "fabs",
    "sin": "sin", "cos": "cos", "exp": "exp", "log": "log", "tanh": "tanh",
}  # fmt: skip
Ops = list[tuple[str, str]]


def float_text(value: float, dtype: str = "float32") -> str:
    """A literal that LLVM reads back exactly: hexadecimal double."""
    if dtype == "float32":
        value = struct.unpack("f", struct.pack("f", value))[0] if math.isfinite(value) else value
    return "0x" + struct.pack(">d", value).hex().upper()


class MathWriter:
    """Writes arithmetic on float32 values of `lanes` lanes into a function."""

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
        """max(a, b) that gives `a` where it is not a number."""
        return self._pick("ugt", a, b)

    def select_min(self, a: str, b: str) -> str:
        return self._pick("ult", a, b)

    def _pick(self, compare: str, a: str, b: str) -> str:
        flag = self.text.emit(f"fcmp {compare} {self.type} {a}, {b}")
        return self.choose(flag, a, b)

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
        """e**x, within 2 ulp; 0 below -87.34, infinity above 88.72."""
        limited = self.select_max(x, self.const(-87.33655))
        limited = self.select_min(limited, self.const(88.72284))
        n = self.call("roundeven", self.op("fmul", limited, self.const(1.4426950408889634)))
        r = self.fma(n, self.const(-0.693359375), limited)
        r = self.fma(n, self.const(2.12194440054690583e-4), r)
        p = self.polynomial(
            r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                1.6666665459e-1, 5.0000001201e-1),
        )  # fmt: skip
        p = self.fma(self.op("fmul", r, r), p, self.op("fadd", r, self.const(1.0)))
        # 2**n in two halves, so that n = 128 does not overflow the exponent.
        half = self.call("floor", self.op("fmul", n, self.const(0.5)))
        p = self.op("fmul", p, self._power_of_two(half))
        p = self.op("fmul", p, self._power_of_two(self.op("fsub", n, half)))
        p = self.choose(self.compare("olt", x, self.const(-87.33655)), self.const(0.0), p)
        return self.choose(self.compare("ogt", x, self.const(88.72284)), self.const(math.inf), p)

    def _power_of_two(self, n: str) -> str:
        i = self.text.emit(f"fptosi {self.type} {n} to {self.int_type}")
        i = self.text.emit(f"add {self.int_type} {i}, {self.int_const(127)}")
        i = self.text.emit(f"shl {self.int_type} {i}, {self.int_const(23)}")
        return self.text.emit(f"bitcast {self.int_type} {i} to {self.type}")

    def log(self, x: str) -> str:
        """Natural logarithm, within 3 ulp of normal numbers; -inf at 0, nan below."""
        bits = self.text.emit(f"bitcast {self.type} {x} to {self.int_type}")
        shifted = self.text.emit(f"sub {self.int_type} {bits}, {self.int_const(0x3F3504F3)}")
        e = self.text.emit(f"ashr {self.int_type} {shifted}, {self.int_const(23)}")
        back = self.text.emit(f"shl {self.int_type} {e}, {self.int_const(23)}")
        mantissa = self.text.emit(f"sub {self.int_type} {bits}, {back}")
        m = self.text.emit(f"bitcast {self.int_type} {mantissa} to {self.type}")
        r = self.op("fsub", m, self.const(1.0))
        n = self.text.emit(f"sitofp {self.int_type} {e} to {self.type}")
        p = self.polynomial(
            r, (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                3.3333331174e-1),
        )  # fmt: skip
        square = self.op("fmul", r, r)
        p = self.op("fmul", self.op("fmul", p, r), square)
        p = self.fma(n, self.const(-2.12194440e-4), p)
        p = self.fma(square, self.const(-0.5), p)
        p = self.fma(n, self.const(0.693359375), self.op("fadd", r, p))
        p = self.choose(self.compare("oeq", x, self.const(0.0)), self.const(-math.inf), p)
        p = self.choose(self.compare("oeq", x, self.const(math.inf)), self.const(math.inf), p)
        return self.choose(self.compare("ult", x, self.const(0.0)), self.const(math.nan), p)

    def tanh(self, x: str) -> str:
        """Hyperbolic tangent, absolute error below 4e-7: a rational function on |x| < 9."""
        limited = self.select_max(x, self.const(-9.0))
        limited = self.select_min(limited, self.const(9.0))
        s = self.op("fmul", limited, limited)
        top = self.polynomial(
            s, (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11,
                5.12229709037114e-08, 1.48572235717979e-05, 6.37261928875436e-04,
                4.89352455891786e-03),
        )  # fmt: skip
        bottom = self.polynomial(
            s, (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03,
                4.89352518554385e-03),
        )  # fmt: skip
        return self.op("fdiv", self.op("fmul", limited, top), bottom)

    def sigmoid(self, x: str) -> str:
        """1 / (1 + e**-x), within 4 ulp."""
        e = self.exp(self.text.emit(f"fneg {self.type} {x}"))
        return self.op("fdiv", self.const(1.0), self.op("fadd", e, self.const(1.0)))

    def erf(self, x: str) -> str:
        """Error function, absolute error below 3e-7 (Abramowitz and Stegun 7.1.26 would be 1.5e-7
        in exact arithmetic, but poor near 0: a Taylor polynomial serves |x| < 0.5)."""
        a = self.call("fabs", x)
        s = self.op("fmul", x, x)
        near = self.op("fmul", x, self.polynomial(s, _ERF_NEAR))
        limited = self.select_min(a, self.const(4.2))
        t = self.op(
            "fdiv", self.const(1.0), self.fma(limited, self.const(0.3275911), self.const(1))
        )
        p = self.polynomial(t, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
        decay = self.exp(self.op("fmul", self.op("fmul", limited, limited), self.const(-1.0)))
        far = self.op("fsub", self.const(1.0), self.op("fmul", self.op("fmul", p, t), decay))
        far = self.call("copysign", far, x)
        return self.choose(self.compare("olt", a, self.const(0.5)), near, far)

    def power(self, x: str, y: str, known: float) -> str:
        """x ** y where y is known: multiples of a quarter up to 4 by products and square roots."""
        if known * 4 != int(known * 4) or not 0 < abs(known) <= 4:
            return self.call("pow", x, y)
        quarters = int(abs(known) * 4)
        factors = [x] * (quarters // 4)
        root = self.call("sqrt", x) if quarters % 4 else ""
        factors += [root] * (quarters % 4 // 2)
        factors += [self.call("sqrt", root)] * (quarters % 2)
        out = factors[0]
        for factor in factors[1:]:
            out = self.op("fmul", out, factor)
        return out if known > 0 else self.op("fdiv", self.const(1.0), out)


_ERF_NEAR = tuple(
    2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1))
    for n in range(6, -1, -1)
)


def unary(text: FunctionText, fn: str, x: str, dtype: str, lanes: int) -> str:
    """A function of one float value."""
    writer = MathWriter(text, lanes, dtype)
    if fn == "neg":
        return text.emit(f"fneg {writer.type} {x}")
    if fn == "rsqrt":
        return writer.op("fdiv", writer.const(1.0), writer.call("sqrt", x))
    if fn == "reciprocal":
        return writer.op("fdiv", writer.const(1.0), x)
    if fn == "sign":
        one = writer.call("copysign", writer.const(1.0), x)
        return writer.choose(writer.compare("oeq", x, writer.const(0.0)), x, one)
    if dtype == "float32" and fn in ("exp", "log", "tanh", "sigmoid", "erf"):
        return str(getattr(writer, fn)(x))
    if fn == "sigmoid":
        e = writer.call("exp", text.emit(f"fneg {writer.type} {x}"))
        return writer.op("fdiv", writer.const(1.0), writer.op("fadd", e, writer.const(1.0)))
    if fn in INTRINSICS:
        return writer.call(INTRINSICS[fn], x)
    raise BuildError(f"no {dtype} code for {fn}")
