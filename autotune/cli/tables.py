"""Text for people. In: rows and numbers. Out: aligned columns, times with their units."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.printable import printable

Row = Sequence[str]


def table(header: Row, rows: Sequence[Row], right: Sequence[int] = ()) -> str:
    """Columns padded to their widest cell; those numbered in `right` are aligned to the right.
    Cells may hold names of strangers: nothing in them is obeyed by a terminal."""
    lines = [header, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def seconds(value: float | None) -> str:
    """A time with three digits: '1.23 ms'; '-' for none."""
    if value is None or value == float("inf"):
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{_three(value / scale)} {unit}"
    return f"{_three(value / 1e-9)} ns"


def duration(value: float) -> str:
    """Minutes and seconds: '2:05'."""
    minutes, rest = divmod(round(value), 60)
    return f"{minutes}:{rest:02} min"


def count(value: float) -> str:
    """A number with three digits and its magnitude: '231 M'."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{_three(value / scale)} {unit}"
    return f"{value:g}"


def counted(number: int, thing: str) -> str:
    """Things and how many: '1 record', '2 records'."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def gflops(flops: float, time_s: float | None) -> str:
    """The rate in GFLOP/s; '-' where there is none."""
    if not time_s or time_s == float("inf") or not flops:
        return "-"
    return _three(flops / time_s / 1e9)


def percent(part: float, whole: float | None) -> str:
    return f"{100 * part / whole:.0f} %" if whole and part else "-"


def ranking(correlation: float, recall: float, regret: float) -> tuple[str, str, str]:
    """How well candidates were ranked; dashes where nothing is known (NaN). An infinite
    regret: what was predicted to be fastest failed."""
    if math.isnan(correlation):
        return "-", "-", "-"
    late = f"{regret:.1%}" if math.isfinite(regret) else "failed"
    return f"{correlation:.3f}", f"{recall:.0%}", late


def shape(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents)) or "1"


def _three(value: float) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"
