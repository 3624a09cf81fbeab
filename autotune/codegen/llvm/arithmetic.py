"""Arithmetic on floats of any number of lanes as LLVM IR text: what element functions are made of.

In: operands by name. Out: the results' names, written into a function.
"""

from __future__ import annotations

import math
import struct

from autotune.codegen.arithmetic import FusedWriter
from autotune.codegen.llvm.text import FunctionText, suffix_text, type_text


def float_text(value: float, dtype: str = "float32") -> str:
    """A literal that LLVM reads back exactly: hexadecimal double."""
    if dtype == "float32":
        value = struct.unpack("f", struct.pack("f", value))[0] if math.isfinite(value) else value
    return "0x" + struct.pack(">d", value).hex().upper()


class ArithmeticWriter:
    """Writes arithmetic on values of `lanes` lanes into a function."""

    def __init__(self, text: FunctionText, lanes: int, dtype: str = "float32") -> None:
        self.text, self.lanes, self.dtype = text, lanes, dtype
        self.type = type_text(dtype, lanes)
        self.int_type = type_text("int32" if dtype == "float32" else "int64", lanes)

    def const(self, value: float) -> str:
        literal = float_text(value, self.dtype)
        if self.lanes == 1:
            return literal
        return f"splat ({type_text(self.dtype, 1)} {literal})"

    def int_const(self, value: int) -> str:
        kind = "i32" if self.dtype == "float32" else "i64"
        return str(value) if self.lanes == 1 else f"splat ({kind} {value})"

    def op(self, name: str, a: str, b: str) -> str:
        flags = "" if name == "fdiv" else "nsz contract "
        return self.text.emit(f"{name} {flags}{self.type} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.call("fmuladd", a, b, c, flags="nsz contract ")

    def fused(self) -> FusedWriter | None:
        return None

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

    def extreme(self, fn: str, a: str, b: str) -> str:
        """max(a, b) or min(a, b), not a number if either is none; on x86 three instructions, of
        which only one waits for `b`."""
        name = "minimum" if fn == "min" else "maximum"
        return self.call(name, a, b, flags="nsz ")

    def choose(self, flag: str, a: str, b: str) -> str:
        mask = type_text("bool", self.lanes)
        return self.text.emit(f"select {mask} {flag}, {self.type} {a}, {self.type} {b}")

    def compare(self, kind: str, a: str, b: str) -> str:
        return self.text.emit(f"fcmp {kind} {self.type} {a}, {b}")

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        """Horner, highest power first."""
        value = self.const(coefficients[0])
        for c in coefficients[1:]:
            value = self.fma(value, x, self.const(c))
        return value

    def bits(self, x: str) -> str:
        return self.text.emit(f"bitcast {self.type} {x} to {self.int_type}")

    def from_bits(self, x: str) -> str:
        return self.text.emit(f"bitcast {self.int_type} {x} to {self.type}")

    def both(self, a: str, b: str) -> str:
        """Where two conditions hold."""
        return self._joined("and", a, b)

    def either(self, a: str, b: str) -> str:
        """Where one of two conditions holds."""
        return self._joined("or", a, b)

    def _joined(self, name: str, a: str, b: str) -> str:
        return self.text.emit(f"{name} {type_text('bool', self.lanes)} {a}, {b}")
