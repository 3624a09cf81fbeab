"""Element functions for processors whose multiply-adds round once.

In: a MathWriter's arguments. Out: the same functions, where that takes fewer instructions; sin and
cos without the C library, but for numbers of many turns.
"""

from __future__ import annotations

import math
from typing import ClassVar

from autotune.codegen.arithmetic import FusedWriter
from autotune.codegen.formulas_scaled import ROUNDER
from autotune.codegen.llvm.math import MathWriter
from autotune.codegen.llvm.text import suffix_text

PI = (3.1415927410125732, -8.742277657347586e-8, -3.4302490200117637e-15)
"""In parts of float32: up to MOST_TURNED, what multiples of the first leave is exact."""
SIN = (2.605399590e-6, -1.980943983e-4, 8.333064163e-3, -1.666665948e-1)
"""(sin(r) / r - 1) / r**2 in r**2, |r| <= pi / 2 and a little, within 2^-26 of sin(r)."""
MOST_TURNED = 32768.0
"""Numbers from which on the C library takes turns away."""


class FusedMath(MathWriter):
    """Writer of element functions by fused multiply-adds."""

    own: ClassVar[tuple[str, ...]] = (*MathWriter.own, "sin", "cos")

    def fused(self) -> FusedWriter:
        return self

    def fma_once(self, a: str, b: str, c: str) -> str:
        return self.call("fma", a, b, c)

    def sin(self, x: str) -> str:
        """sin(x), within 3 ulp: half turns are taken away, odd ones change the sign."""
        shifted = self.fma_once(x, self.const(1 / math.pi), self.const(ROUNDER))
        turns = self.op("fsub", shifted, self.const(ROUNDER))
        return self._near("sin", x, self._sin_less(x, turns, shifted))

    def cos(self, x: str) -> str:
        """cos(x), within 3 ulp: the same from the nearest zero on."""
        turns = self.fma_once(x, self.const(1 / math.pi), self.const(-0.5))
        shifted = self.op("fadd", turns, self.const(ROUNDER + 1))
        turns = self.op("fsub", shifted, self.const(ROUNDER + 1))
        turns = self.op("fadd", turns, self.const(0.5))
        return self._near("cos", x, self._sin_less(x, turns, shifted))

    def _sin_less(self, x: str, turns: str, shifted: str) -> str:
        """The sine of what half turns leave of x, negated where the last bit of `shifted` is 1."""
        for part in PI:
            x = self.fma_once(turns, self.const(-part), x)
        square = self.op("fmul", x, x)
        out = self.fma(self.op("fmul", x, square), self.polynomial(square, SIN), x)
        sign = self.text.emit(f"shl {self.int_type} {self.bits(shifted)}, {self.int_const(31)}")
        return self.from_bits(self.text.emit(f"xor {self.int_type} {self.bits(out)}, {sign}"))

    def _near(self, name: str, x: str, near: str) -> str:
        """`near`; what the C library says in lanes of x that are beyond MOST_TURNED."""
        symbol = f"near_{name}_{suffix_text(self.dtype, self.lanes)}"
        self.text.declare(symbol, self._near_text(symbol, name))
        return self.text.emit(f"call {self.type} @{symbol}({self.type} {x}, {self.type} {near})")

    def _near_text(self, symbol: str, name: str) -> str:
        kind, lanes = suffix_text(self.dtype, self.lanes), self.lanes
        flags = "i1" if lanes == 1 else f"<{lanes} x i1>"
        for used in (f"llvm.fabs.{kind}", f"llvm.{name}.{kind}"):
            self.text.declare(used, f"declare {self.type} @{used}({self.type})")
        any_far = "and i1 %far, true"
        if lanes > 1:
            reduce = f"llvm.vector.reduce.or.v{lanes}i1"
            self.text.declare(reduce, f"declare i1 @{reduce}({flags})")
            any_far = f"call i1 @{reduce}({flags} %far)"
        return f"""define internal {self.type} @{symbol}({self.type} %x, {self.type} %near) \
alwaysinline nounwind {{
entry:
  %size = call {self.type} @llvm.fabs.{kind}({self.type} %x)
  %far = fcmp ogt {self.type} %size, {self.const(MOST_TURNED)}
  %any = {any_far}
  br i1 %any, label %beyond, label %out
beyond:
  %exact = call {self.type} @llvm.{name}.{kind}({self.type} %x)
  %each = select {flags} %far, {self.type} %exact, {self.type} %near
  br label %out
out:
  %found = phi {self.type} [ %near, %entry ], [ %each, %beyond ]
  ret {self.type} %found
}}"""
