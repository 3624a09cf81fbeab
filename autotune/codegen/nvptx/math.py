"""Element functions for NVIDIA GPUs: the special function unit where it is accurate enough.

Errors in the docstrings follow from what the PTX manual promises: ex2.approx within 2 ulp,
div.full within 2 ulp, rsqrt.approx within a relative 2**-22.9, sin.approx and cos.approx within
2**-20.5 on -pi .. pi. The formulas are tested in numpy with errors of that size put in.
"""

from __future__ import annotations

import math
from typing import ClassVar

from autotune.codegen.llvm.math import MathWriter, is_product
from autotune.errors import BuildError

LOG2E = 1.4426950216293335
LOG2E_REST = 1.925963033500463e-08
"""log2(e) is LOG2E + LOG2E_REST, both float32 values."""
TURN = (6.28125, 0.0019350051879882812, 3.019916067913857e-07)
"""2 pi in three parts; the first two have few bits, so that whole multiples are exact."""
_ROUND = 12582912.0
"""1.5 * 2**23: added and taken away again, it rounds a float32 to a whole number."""
_EXACT = ("sqrt", "floor", "ceil", "round", "abs")


class NvptxMath(MathWriter):
    """Writes arithmetic with NVPTX's instructions."""

    own = (*MathWriter.own, "sin", "cos")
    intrinsics: ClassVar[dict[str, str]] = {name: MathWriter.intrinsics[name] for name in _EXACT}

    def op(self, name: str, a: str, b: str) -> str:
        """Divisions of float32 are within 2 ulp."""
        if name == "fdiv" and self.dtype == "float32":
            return self.each("llvm.nvvm.div.full", a, b)
        return super().op(name, a, b)

    def each(self, symbol: str, *args: str) -> str:
        """A function of single float32 values, lane by lane."""
        types = ", ".join(["float"] * len(args))
        self.text.declare(symbol, f"declare float @{symbol}({types})")
        if self.lanes == 1:
            return self._single(symbol, args)
        out = "poison"
        for lane in range(self.lanes):
            picked = [self._lane(a, lane) for a in args]
            one = self._single(symbol, picked)
            out = self.text.emit(f"insertelement {self.type} {out}, float {one}, i64 {lane}")
        return out

    def _single(self, symbol: str, args: list[str] | tuple[str, ...]) -> str:
        given = ", ".join(f"float {a}" for a in args)
        return self.text.emit(f"call float @{symbol}({given})")

    def _lane(self, vector: str, lane: int) -> str:
        return self.text.emit(f"extractelement {self.type} {vector}, i64 {lane}")

    def _exp_inside(self, x: str) -> str:
        """e**x for -87.336 < x < 88.7228, within 4 ulp: 2 to the fraction of x * log2(e) by
        ex2.approx, its whole part added to the exponent."""
        shifted = self.fma(x, self.const(LOG2E), self.const(_ROUND))
        whole = self.op("fsub", shifted, self.const(_ROUND))
        rest = self.fma(x, self.const(LOG2E), self.text.emit(f"fneg {self.type} {whole}"))
        rest = self.fma(x, self.const(LOG2E_REST), rest)
        power = self.bits(self.each("llvm.nvvm.ex2.approx.ftz.f", rest))
        scale = self.text.emit(f"shl {self.int_type} {self.bits(shifted)}, {self.int_const(23)}")
        return self.from_bits(self.text.emit(f"add {self.int_type} {power}, {scale}"))

    def rsqrt(self, x: str) -> str:
        """1 / sqrt(x), within a relative 2**-22.9."""
        return self.each("llvm.nvvm.rsqrt.approx.f", x)

    def sin(self, x: str) -> str:
        """Sine, within 2e-6 absolute for |x| below 10000."""
        return self.each("llvm.nvvm.sin.approx.f", self._in_a_turn(x))

    def cos(self, x: str) -> str:
        """Cosine, within 2e-6 absolute for |x| below 10000."""
        return self.each("llvm.nvvm.cos.approx.f", self._in_a_turn(x))

    def _in_a_turn(self, x: str) -> str:
        """x less a multiple of 2 pi, in -pi .. pi."""
        turns = self.call("roundeven", self.op("fmul", x, self.const(0.5 / math.pi)))
        for part in TURN:
            x = self.fma(turns, self.const(-part), x)
        return x

    def power(self, x: str, y: str, known: float) -> str:
        """x ** y where y is known."""
        return self.power_by_products(x, known) if is_product(known) else self.pow(x, y)

    def pow(self, x: str, y: str) -> str:
        """x ** y by e ** (y log |x|), within a relative 2**-22 * (2 + |y log |x||)."""
        if self.dtype != "float32":
            raise BuildError(f"no {self.dtype} code for pow on NVIDIA GPUs")
        size = self.exp(self.op("fmul", y, self.log(self.call("fabs", x))))
        half = self.op("fmul", y, self.const(0.5))
        odd = self.compare("une", self.call("floor", half), half)
        signed = self.choose(odd, self.text.emit(f"fneg {self.type} {size}"), size)
        whole = self.compare("oeq", self.call("floor", y), y)
        # Of numbers that are not whole only the power of -inf is a number, and that of inf.
        endless = self.compare("oeq", x, self.const(-math.inf))
        other = self.choose(endless, size, self.const(math.nan))
        below = self.choose(whole, signed, other)
        out = self.choose(self.compare("olt", x, self.const(0.0)), below, size)
        return self.choose(self.compare("oeq", y, self.const(0.0)), self.const(1.0), out)

    def remainder(self, x: str, y: str) -> str:
        """By LLVM's instruction, which becomes a division."""
        return self.text.emit(f"frem {self.type} {x}, {y}")
