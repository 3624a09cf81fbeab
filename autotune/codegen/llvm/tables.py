"""Element functions by tables in registers and by scaling, for x86 processors that pick 16 lanes
of 16 floats at once and multiply by powers of two (AVX-512).

In: a MathWriter's arguments. Out: the same functions, where a table needs fewer instructions than
one polynomial for all arguments: a short polynomial for each of 16 intervals, whose coefficients
one instruction each picks; and exp, whose last instruction scales, down to 0 and up to infinity.
Fewer lanes are computed as part of 16, so that they give the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Set

from autotune.codegen.llvm.math import MathWriter, float_text

ENTRIES = 16
"""Entries of a table: lanes of float32 of an AVX-512 register."""
DEGREE = 5
"""Degree of an interval's polynomial."""
WIDTH = 0.25
"""Width of an interval of arguments of erf; the first is centred at 0."""
LIMIT = 3.8749
"""Just inside the last interval: from here on erf counts as 1."""
_ROUNDER = 1.5 * 2.0**23 * WIDTH
"""Adding it rounds to a multiple of WIDTH, whose number then stands in the lowest bits."""


class TableMath(MathWriter):
    """Writer of element functions by permutes of table registers and by scaling (AVX-512)."""

    def erf(self, x: str) -> str:
        """Error function, within 3 ulp, 1 from LIMIT on: a polynomial around the nearest multiple
        of WIDTH."""
        if self.lanes < ENTRIES:
            wide = type(self)(self.text, ENTRIES, self.dtype)
            return self._narrowed(wide.erf(self._widened(x)))
        limited = self.select_min(self.call("fabs", x), self.const(LIMIT))
        shifted = self.op("fadd", limited, self.const(_ROUNDER))
        offset = self.op("fsub", limited, self.op("fsub", shifted, self.const(_ROUNDER)))
        which = self._bits(shifted)
        first, *rest = (self._pick(table, which) for table in erf_tables())
        for coefficients in rest:
            first = self.fma(first, offset, coefficients)
        return self.call("copysign", first, x)

    def exp(self, x: str) -> str:
        """e**x, within 2.5 ulp of normal results; 0 below -104 and infinity above 88.7228."""
        if self.lanes < ENTRIES:
            wide = type(self)(self.text, ENTRIES, self.dtype)
            return self._narrowed(wide.exp(self._widened(x)))
        limited = self.select_min(self.select_max(x, self.const(-104.0)), self.const(89.0))
        _, n, p = self.exp_parts(limited)
        symbol = "llvm.x86.avx512.mask.scalef.ps.512"
        kinds = f"{self.type}, {self.type}, {self.type}, i16, i32 immarg"
        self.text.declare(symbol, f"declare {self.type} @{symbol}({kinds})")
        given = f"{self.type} {p}, {self.type} {n}, {self.type} zeroinitializer, i16 -1, i32 4"
        return self.text.emit(f"call {self.type} @{symbol}({given})")

    def _pick(self, table: tuple[float, ...], which: str) -> str:
        """Each lane's entry of a table, by the lowest four bits of its number."""
        symbol = "llvm.x86.avx512.permvar.sf.512"
        self.text.declare(symbol, f"declare {self.type} @{symbol}({self.type}, {self.int_type})")
        entries = ", ".join(f"float {float_text(v)}" for v in table)
        given = f"{self.type} <{entries}>, {self.int_type} {which}"
        return self.text.emit(f"call {self.type} @{symbol}({given})")

    def _widened(self, x: str) -> str:
        """x as the first of 16 lanes."""
        if self.lanes == 1:
            return self.text.emit(f"insertelement <{ENTRIES} x float> poison, float {x}, i64 0")
        lanes = [f"i32 {i}" if i < self.lanes else "i32 poison" for i in range(ENTRIES)]
        given = f"{self.type} {x}, {self.type} poison, <{ENTRIES} x i32> <{', '.join(lanes)}>"
        return self.text.emit(f"shufflevector {given}")

    def _narrowed(self, x: str) -> str:
        """The first lanes of 16."""
        kind = f"<{ENTRIES} x float>"
        if self.lanes == 1:
            return self.text.emit(f"extractelement {kind} {x}, i64 0")
        lanes = ", ".join(f"i32 {i}" for i in range(self.lanes))
        given = f"{kind} {x}, {kind} poison, <{self.lanes} x i32> <{lanes}>"
        return self.text.emit(f"shufflevector {given}")


class ExactRootMath(MathWriter):
    """Element functions that round alike in vectors of any width: none is by an estimate or a
    table that only some processors have."""

    def rsqrt_of_normal(self, x: str) -> str:
        return self.rsqrt(x)


def math_of(features: Set[str], *, reproducible: bool = False) -> type[MathWriter]:
    """Element functions for a target's features. `reproducible`: of which all have the same."""
    if reproducible:
        return ExactRootMath
    return TableMath if "+avx512f" in features else MathWriter


@functools.cache
def erf_tables() -> tuple[tuple[float, ...], ...]:
    """Coefficients by interval, of the highest power first: interpolation at Chebyshev's nodes."""
    nodes = [WIDTH / 2 * math.cos(math.pi * (k + 0.5) / (DEGREE + 1)) for k in range(DEGREE + 1)]
    rows = []
    for number in range(ENTRIES):
        # What is left to 1 at the limit, less than half a unit of the last place, is made up for.
        scale = 1 / math.erf(LIMIT) if number == ENTRIES - 1 else 1.0
        values = [scale * math.erf(WIDTH * number + x) for x in nodes]
        rows.append(_interpolated(nodes, values))
    # An odd function: nothing is added at 0.
    rows[0][0] = 0.0
    return tuple(tuple(row[power] for row in rows) for power in reversed(range(DEGREE + 1)))


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
