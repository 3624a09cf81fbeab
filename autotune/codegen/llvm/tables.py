"""Element functions by tables in registers and by scaling, for x86 processors that pick 16 lanes
of 16 floats at once and multiply by powers of two (AVX-512), or 8 lanes of 8 floats (AVX2).

In: a MathWriter's arguments. Out: the same functions, where a table needs fewer instructions than
one polynomial for all arguments: a short polynomial for each of 16 or 8 intervals, whose
coefficients one instruction each picks; and with AVX-512 exp, whose last instruction scales, down
to 0 and up to infinity. Fewer lanes are computed as part of a whole register, so that they give
the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from autotune.codegen.formulas_scaled import ROUNDER
from autotune.codegen.llvm.arithmetic import float_text
from autotune.codegen.llvm.fused import FusedMath
from autotune.codegen.llvm.math import MathWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class ErfTable:
    """erf by intervals, the first of which is centred at 0."""

    entries: int
    """Lanes of float32 of a register."""
    degree: int
    """The highest power of an interval's polynomial."""
    width: float
    """How much an interval covers; multiples of it are exact."""
    limit: float
    """Just inside the last interval: from here on erf counts as 1."""


WIDE = ErfTable(entries=16, degree=5, width=0.25, limit=3.8749)
NARROW = ErfTable(entries=8, degree=7, width=0.53125, limit=3.94)


class NarrowTableMath(FusedMath):
    """Writer of erf by permutes of registers of eight floats (AVX2)."""

    table: ClassVar[ErfTable] = NARROW
    permute: ClassVar[str] = "llvm.x86.avx2.permps"

    def erf(self, x: str) -> str:
        """Error function, within 3 ulp, 1 from the limit on: a polynomial around the nearest
        multiple of an interval's width."""
        entries = self.table.entries
        if self.lanes == 2 * entries:
            return self._by_halves(x)
        if self.lanes > entries:
            return super().erf(x)
        if self.lanes < entries:
            wide = type(self)(self.text, entries, self.dtype)
            return self._narrowed(wide.erf(self._widened(x)))
        limited = self.select_min(self.call("fabs", x), self.const(self.table.limit))
        shifted = self.fma(limited, self.const(1 / self.table.width), self.const(ROUNDER))
        n = self.op("fsub", shifted, self.const(ROUNDER))
        offset = self.fma(n, self.const(-self.table.width), limited)
        which = self.bits(shifted)
        first, *rest = (self._pick(table, which) for table in erf_tables(self.table))
        for coefficients in rest:
            first = self.fma(first, offset, coefficients)
        return self.call("copysign", first, x)

    def _by_halves(self, x: str) -> str:
        """erf of two registers' lanes, one after the other."""
        count, parts = self.table.entries, list[str]()
        half = type(self)(self.text, count, self.dtype)
        for first in (0, count):
            lanes = ", ".join(f"i32 {first + i}" for i in range(count))
            part = f"shufflevector {self.type} {x}, {self.type} poison, <{count} x i32> <{lanes}>"
            parts.append(half.erf(self.text.emit(part)))
        lanes = ", ".join(f"i32 {i}" for i in range(2 * count))
        both = ", ".join(f"{half.type} {part}" for part in parts)
        return self.text.emit(f"shufflevector {both}, <{2 * count} x i32> <{lanes}>")

    def _pick(self, table: tuple[float, ...], which: str) -> str:
        """Each lane's entry of a table, by the lowest bits of its number."""
        self.text.declare(
            self.permute, f"declare {self.type} @{self.permute}({self.type}, {self.int_type})"
        )
        entries = ", ".join(f"float {float_text(v)}" for v in table)
        given = f"{self.type} <{entries}>, {self.int_type} {which}"
        return self.text.emit(f"call {self.type} @{self.permute}({given})")

    def _widened(self, x: str) -> str:
        """x as the first lanes of a register."""
        if self.lanes == 1:
            return self.text.emit(
                f"insertelement <{self.table.entries} x float> poison, float {x}, i64 0"
            )
        count = self.table.entries
        lanes = ", ".join(f"i32 {i}" if i < self.lanes else "i32 poison" for i in range(count))
        given = f"{self.type} {x}, {self.type} poison, <{count} x i32> <{lanes}>"
        return self.text.emit(f"shufflevector {given}")

    def _narrowed(self, x: str) -> str:
        """The first lanes of a register."""
        kind = f"<{self.table.entries} x float>"
        if self.lanes == 1:
            return self.text.emit(f"extractelement {kind} {x}, i64 0")
        lanes = ", ".join(f"i32 {i}" for i in range(self.lanes))
        given = f"{kind} {x}, {kind} poison, <{self.lanes} x i32> <{lanes}>"
        return self.text.emit(f"shufflevector {given}")


class TableMath(NarrowTableMath):
    """Writer of element functions by permutes of table registers and by scaling (AVX-512)."""

    table: ClassVar[ErfTable] = WIDE
    permute: ClassVar[str] = "llvm.x86.avx512.permvar.sf.512"

    def exp(self, x: str) -> str:
        """e**x, within 2.5 ulp of normal results; 0 below -104 and infinity above 88.7228."""
        if self.lanes < self.table.entries:
            wide = type(self)(self.text, self.table.entries, self.dtype)
            return self._narrowed(wide.exp(self._widened(x)))
        limited = self.select_min(self.select_max(x, self.const(-104.0)), self.const(89.0))
        _, n, p = self.exp_parts(limited)
        symbol = "llvm.x86.avx512.mask.scalef.ps.512"
        kinds = f"{self.type}, {self.type}, {self.type}, i16, i32 immarg"
        self.text.declare(symbol, f"declare {self.type} @{symbol}({kinds})")
        given = f"{self.type} {p}, {self.type} {n}, {self.type} zeroinitializer, i16 -1, i32 4"
        return self.text.emit(f"call {self.type} @{symbol}({given})")


class ExactRootMath(MathWriter):
    """Element functions that round alike in vectors of any width: none is by an estimate or a
    table that only some processors have."""

    def rsqrt_of_normal(self, x: str) -> str:
        return self.rsqrt(x)


def math_of(features: Set[str], *, reproducible: bool = False) -> type[MathWriter]:
    """Element functions for a target's features. `reproducible`: of which all have the same."""
    if reproducible:
        return ExactRootMath
    if "+avx512f" in features:
        return TableMath
    if "+avx2" in features:
        return NarrowTableMath
    return FusedMath if "+neon" in features else MathWriter


@functools.cache
def erf_tables(table: ErfTable) -> tuple[tuple[float, ...], ...]:
    """Coefficients by interval, of the highest power first: interpolation at Chebyshev's nodes."""
    count = table.degree + 1
    nodes = [table.width / 2 * math.cos(math.pi * (k + 0.5) / count) for k in range(count)]
    rows = []
    for number in range(table.entries):
        # What is left to 1 at the limit, less than half a unit of the last place, is made up for.
        scale = 1 / math.erf(table.limit) if number == table.entries - 1 else 1.0
        values = [scale * math.erf(table.width * number + x) for x in nodes]
        rows.append(_interpolated(nodes, values))
    # An odd function: nothing is added at 0.
    rows[0][0] = 0.0
    return tuple(tuple(row[power] for row in rows) for power in reversed(range(count)))


def _interpolated(nodes: list[float], values: list[float]) -> list[float]:
    """Coefficients, of the lowest power first, of the polynomial through points (Newton's)."""
    divided = list(values)
    for order in range(1, len(nodes)):
        for i in range(len(nodes) - 1, order - 1, -1):
            divided[i] = (divided[i] - divided[i - 1]) / (nodes[i] - nodes[i - order])
    powers = [divided[-1]]
    for node, value in zip(reversed(nodes[:-1]), reversed(divided[:-1]), strict=True):
        shifted = [value, *powers]
        for i, power in enumerate(powers):
            shifted[i] -= node * power
        powers = shifted
    return powers
