"""Formulas of element functions as statements of the C family.

In: a function's name, the type of its argument. Out: the body of a C function of `a` (and `b`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from autotune.codegen.arithmetic import FusedWriter
from autotune.codegen.c.dialect import float_constant, split_type
from autotune.codegen.formulas import FORMULAS
from autotune.codegen.formulas_double import DOUBLE

if TYPE_CHECKING:
    from autotune.codegen.c.helpers import Helpers

_OPERATORS = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/"}
_COMPARISONS = {"olt": "<", "ogt": ">"}
_ROUNDER = 12582912.0
"""1.5 * 2**23: adding it rounds to an integer, which then stands in the lowest bits."""


class CMath:
    """Writes arithmetic on values of one type; see `FormulaWriter`."""

    def __init__(self, helpers: Helpers, kind: str) -> None:
        self._helpers, self._kind = helpers, kind
        self._short, self._lanes = split_type(kind)
        self._lines: list[str] = []

    def body(self, fn: str, arguments: tuple[str, ...]) -> str:
        """The statements of a function."""
        formula = (FORMULAS if self._short == "f32" else DOUBLE)[fn]
        result = formula(self, *arguments)
        return " ".join([*self._lines, f"return {result};"])

    def const(self, value: float) -> str:
        dtype = "float32" if self._short == "f32" else "float64"
        text = f"({float_constant(value, dtype)})"
        return text if self._lanes == 1 else self._helpers.splat(self._kind, text)

    def op(self, name: str, a: str, b: str) -> str:
        return self._new(f"{a} {_OPERATORS[name]} {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self._new(f"{a} * {b} + {c}")

    def fused(self) -> FusedWriter | None:
        return None

    def call(self, name: str, *args: str) -> str:
        return self._new(self._helpers.call(name, self._kind, *args))

    def function(self, name: str, x: str) -> str:
        return self.call(name, x)

    def compare(self, kind: str, a: str, b: str) -> str:
        return f"({a} {_COMPARISONS[kind]} {b})"

    def choose(self, flag: str, a: str, b: str) -> str:
        return self._new(self._helpers.choose(self._kind, flag, a, b))

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        text = self.const(coefficients[0])
        for c in coefficients[1:]:
            text = self.fma(text, x, self.const(c))
        return text

    def upper(self, x: str) -> str:
        return self._from_bits(f"({self._bits(x)} & 0xFFFFF000u)")

    def reduced(self, x: str, rest: str) -> tuple[str, str]:
        total = self.op("fadd", x, rest) if rest else x
        shifted = self.fma(total, self.const(math.log2(math.e)), self.const(_ROUNDER))
        n = self.op("fsub", shifted, self.const(_ROUNDER))
        r = self.fma(n, self.const(-0.693359375), x)
        r = self.fma(n, self.const(2.12194440054690583e-4), r)
        return shifted, self.op("fadd", r, rest) if rest else r

    def times_power(self, p: str, shifted: str, more: int) -> str:
        count = f"({self._bits(shifted)} {'-' if more < 0 else '+'} {abs(more)}u)"
        return self._from_bits(f"({self._bits(p)} + ({count} << 23))")

    def binade(self, u: str) -> tuple[str, str]:
        whole = self._helpers.type("int32", self._lanes)
        bits = self._helpers.reinterpreted(whole, u)
        exponent = self._new(f"({bits} - 0x3F3504F3) >> 23", whole)
        n = self._new(self._helpers.converted(whole, self._kind, exponent))
        unsigned = self._helpers.type("uint32", self._lanes)
        count = self._helpers.converted(whole, unsigned, exponent)
        return n, self._from_bits(f"(0x3F800000u - ({count} << 23))")

    def _bits(self, x: str) -> str:
        return self._helpers.reinterpreted(self._helpers.type("uint32", self._lanes), x)

    def _from_bits(self, text: str) -> str:
        return self._new(self._helpers.reinterpreted(self._kind, text))

    def _new(self, text: str, kind: str = "") -> str:
        name = f"v{len(self._lines)}"
        self._lines.append(f"{kind or self._kind} {name} = {text};")
        return name
