"""Sizes that only a run knows, as expressions of C. In: amounts. Out: texts, of variables that
hold the symbols' values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from autotune.codegen.llvm.amounts import ALIGNED, Row, StackedBlock
from autotune.sizes import Quotient, SizeSymbol, ceil_div, is_size

AMOUNTS = "amounts"
"""The function that works out all rows of a model."""


def size_name(symbol: str) -> str:
    """The variable of a symbol: no two have one."""
    plain = (c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in symbol)
    return f"size_{''.join(plain)}"


def amount_text(amount: int) -> str:
    """A number, or an expression of the symbols' variables."""
    if not is_size(amount):
        return str(amount)
    parts = []
    for product, c in amount.terms:
        words = [_factor(factor) for factor in product]
        parts.append(" * ".join([str(c)] * (c != 1 or not words) + words))
    return f"({' + '.join(parts)})"


def _factor(factor: SizeSymbol | Quotient) -> str:
    if isinstance(factor, Quotient):
        return f"({amount_text(cast(int, factor.size))} / {factor.divisor})"
    return size_name(factor.name)


def size_lines(symbols: Sequence[str], kind: str, sizes: str) -> list[str]:
    """Variables of all symbols. `sizes`: an expression that points to their values, in order."""
    return [
        f"const {kind} {size_name(name)} = ({kind}){sizes}[{number}];"
        for number, name in enumerate(symbols)
    ]


def amounts_lines(
    symbols: Sequence[str], blocks: Sequence[StackedBlock], rows: Sequence[Row]
) -> list[str]:
    """The function; see `autotune.codegen.llvm.amounts.amounts_text`, which this is in C."""
    body: list[str] = []
    ends: list[str] = []
    for number, block in enumerate(blocks):
        start = _largest([ends[below] for below in block.below])
        size = _largest([amount_text(ceil_div(n, ALIGNED) * ALIGNED) for n in block.nbytes])
        body.append(f"const int64_t start{number} = {start};")
        body.append(f"const int64_t end{number} = start{number} + {size};")
        ends.append(f"end{number}")
    for number, row in enumerate(rows):
        inside = "" if row.block is None else f"start{row.block} + "
        body.append(f"out[{number}] = {inside}{amount_text(row.amount)};")
    body.append(f"out[{len(rows)}] = {_largest(ends)};")
    text = "\n".join(body)
    known = [line for line in size_lines(symbols, "int64_t", "sizes") if _named(line) in text]
    return [
        "static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }",
        f"static void {AMOUNTS}(const int64_t *sizes, int64_t *out)",
        "{",
        *(f"    {line}" for line in known),
        *(f"    {line}" for line in body),
        "    (void)sizes;",
        "}",
    ]


def _named(line: str) -> str:
    return line.split()[2]


def _largest(values: Sequence[str]) -> str:
    """The largest of values that are not negative."""
    found = ""
    for value in dict.fromkeys(values):
        found = f"larger({found}, {value})" if found else value
    return found or "0"
