"""Sums of four products of bytes by ACLE's functions. In: where bytes lie. Out: C of the function
that adds them, and of a call: for compilers that do not take tiles of assembler."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.codegen.c.helpers import Helpers

BYTES = 4
"""Products of a `dot` loop of bytes: a word of each operand."""
EXTENDED = {"uint8": "__uxtb16", "int8": "__sxtb16"}
"""ACLE's functions that widen bytes 0 and 2 of a word."""
ACLE = """#if defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>
#endif"""
_UNUSED = """#if defined(__GNUC__)
#define MAYBE_UNUSED __attribute__((unused))
#else
#define MAYBE_UNUSED
#endif"""
"""For functions that only the C beside assembler calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FourBytes:
    """An operand of a `dot`."""

    place: str
    """C expression of its first byte; where bytes of rows lie in turn, of the first row's."""
    dtype: str
    rows: int
    """How many rows lie in turn."""
    row: int
    """Which of them it is."""


def dot_call(helpers: Helpers, sides: tuple[FourBytes, FourBytes], old: str) -> str:
    """C that adds four products to a sum; at most one operand's bytes lie in turn."""
    first, second = sorted(sides, key=lambda side: side.rows)
    kinds = [helpers.type(side.dtype) for side in (first, second)]
    helpers.type("uint32")
    in_turn = second.rows > 1
    name = f"dot_{kinds[0]}_{kinds[1]}" + "_in_turn" * in_turn
    for text in (ACLE, _UNUSED):
        helpers.written(text, text)
    low, high = EXTENDED[first.dtype], EXTENDED[second.dtype]
    given = f"const {kinds[0]} *a, const {kinds[1]} *b, " + "int row, " * in_turn + "i32 sum"
    lines = _in_turn(low, high) if in_turn else _side_by_side(low, high)
    body = "\n".join(lines)
    helpers.written(name, f"static inline MAYBE_UNUSED i32 {name}(\n    {given}) {{\n{body}\n}}")
    row = f"{second.row}, " * in_turn
    return f"{name}({first.place}, {second.place}, {row}{old})"


def _side_by_side(low: str, high: str) -> list[str]:
    plain = " + ".join(f"a[{n}] * b[{n}]" for n in range(BYTES))
    return [
        "#if defined(__ARM_FEATURE_DSP)",
        "    u32 x, y;",
        "    memcpy(&x, a, 4);",
        "    memcpy(&y, b, 4);",
        f"    sum = __smlad((int16x2_t){low}(x), (int16x2_t){high}(y), sum);",
        f"    return __smlad((int16x2_t){low}(x >> 8), (int16x2_t){high}(y >> 8), sum);",
        "#else",
        f"    return sum + {plain};",
        "#endif",
    ]


def _in_turn(low: str, high: str) -> list[str]:
    """Even bytes of two rows are in a word, odd ones in the next."""
    plain = " + ".join(f"a[{n}] * b[{n % 2 * 4 + n // 2 * 2} + row]" for n in range(BYTES))
    return [
        "#if defined(__ARM_FEATURE_DSP)",
        "    u32 x, y, z;",
        "    memcpy(&x, a, 4);",
        "    memcpy(&y, b, 4);",
        "    memcpy(&z, b + 4, 4);",
        f"    sum = __smlad((int16x2_t){low}(x), (int16x2_t){high}(y >> (8 * row)), sum);",
        f"    return __smlad((int16x2_t){low}(x >> 8), (int16x2_t){high}(z >> (8 * row)), sum);",
        "#else",
        f"    return sum + {plain};",
        "#endif",
    ]
