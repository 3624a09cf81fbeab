"""Sizes worked out natively, as LLVM text. In: amounts of symbols, and blocks of memory that lie
on each other. Out: a function that fills an array with their values.

NAME(ptr sizes, ptr out): `sizes` points to the symbols' values, i64 each, in order; every row of
`out` gets a row's value. What rows share is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from autotune.sizes import Quotient, SizeSymbol, ceil_div, is_size

ALIGNED = 64
"""Blocks begin and end at multiples of so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBlock:
    """Bytes of memory above other blocks."""

    nbytes: tuple[int, ...]
    """Amounts the largest of which it must hold."""
    below: tuple[int, ...]
    """Numbers of blocks, before this one, that end where it begins or earlier."""


@dataclass(frozen=True, slots=True)
class Row:
    """An amount, from where a block begins if one is named."""

    amount: int
    block: int | None = None


def amounts_text(
    symbol: str, symbols: Sequence[str], blocks: Sequence[StackedBlock], rows: Sequence[Row]
) -> str:
    """The function. The last row that it fills, after `rows`, is where the highest block ends."""
    writer = _Amounts(symbols)
    starts: list[str] = []
    ends: list[str] = []
    for block in blocks:
        start = writer.largest([ends[n] for n in block.below])
        sizes = [writer.amount(ceil_div(n, ALIGNED) * ALIGNED) for n in block.nbytes]
        starts.append(start)
        ends.append(writer.emit(f"add i64 {start}, {writer.largest(sizes)}"))
    for number, row in enumerate(rows):
        value = writer.amount(row.amount)
        if row.block is not None:
            value = writer.emit(f"add i64 {starts[row.block]}, {value}")
        writer.store(number, value)
    writer.store(len(rows), writer.largest(ends))
    head = [
        "declare i64 @llvm.smax.i64(i64, i64)",
        f"define void @{symbol}(ptr noalias readonly %sizes, ptr noalias %out) nounwind {{",
    ]
    return "\n".join([*head, *writer.lines, "  ret void", "}", ""])


class _Amounts:
    """Lines of the function, each instruction once."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = tuple(symbols)
        self._names: dict[str, str] = {}
        self.lines: list[str] = []

    def emit(self, text: str) -> str:
        if text not in self._names:
            self._names[text] = f"%v{len(self._names)}"
            self.lines.append(f"  {self._names[text]} = {text}")
        return self._names[text]

    def store(self, place: int, value: str) -> None:
        pointer = self.emit(f"getelementptr i64, ptr %out, i64 {place}")
        self.lines.append(f"  store i64 {value}, ptr {pointer}")

    def largest(self, values: Sequence[str]) -> str:
        """The largest of values that are not negative."""
        found = "0"
        for value in dict.fromkeys(values):
            least = found == "0"
            found = value if least else self.emit(
                f"call i64 @llvm.smax.i64(i64 {found}, i64 {value})"
            )  # fmt: skip
        return found

    def amount(self, value: int) -> str:
        return amount_text(value, self.emit, self._symbols)


def amount_text(value: int, emit: Callable[[str], str], symbols: Sequence[str]) -> str:
    """A number, or the name of what an expression of `symbols` is, whose values `%sizes` points
    to. `emit`: gives the name of an instruction's result."""
    if not is_size(value):
        return str(value)
    total = ""
    for product, c in value.terms:
        part = str(c)
        for place, factor in enumerate(product):
            name = _factor(factor, emit, symbols)
            part = name if not place and c == 1 else emit(f"mul i64 {part}, {name}")
        total = emit(f"add i64 {total}, {part}") if total else part
    return total


def _factor(
    factor: SizeSymbol | Quotient, emit: Callable[[str], str], symbols: Sequence[str]
) -> str:
    if isinstance(factor, Quotient):
        size = amount_text(cast(int, factor.size), emit, symbols)
        return emit(f"udiv i64 {size}, {factor.divisor}")
    place = symbols.index(factor.name)
    pointer = emit(f"getelementptr i64, ptr %sizes, i64 {place}")
    return emit(f"load i64, ptr {pointer}, align 8")


def number_of(amount: int) -> int:
    """What is the same of an amount for all values of its symbols."""
    if not is_size(amount):
        return amount
    product, number = amount.terms[0]
    return 0 if product else int(number)
