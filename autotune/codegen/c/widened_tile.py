"""A tile of sums of products of bytes, up to four rows by two columns, whose rows were widened
before. In: a tile inside a loop over blocks of columns, whose bytes lie in turn. Out: lines of C
that widen rows before the loop, and those of the tile: a call of one routine of Arm's instructions
for each number of rows, whatever the shapes are.

Words of rows lie behind each other as halves of words, even bytes of each row, then odd ones; a
word of columns has the even bytes of both, the next one the odd:

    load w, x0, x1          a word of bytes, two of halves
    e = even bytes of w; w = odd bytes, which are the other column's
    s00 += x0 * e; s01 += x0 * w; s10 += x1 * e; ...
    load x0, x1             the other rows'
    s20 += x0 * e; ...

That are 17 cycles of 16 products, where `dot_tile.py` takes 22: rows are widened once for all
columns, and what is loaded is loaded in a row. A call has registers of its own, not C's.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from autotune.codegen.c.dot_tile import WIDEN, DotTile

COLUMNS, MOST_ROWS = 2, 4
"""What registers hold sums of: eight, two pointers, a word of columns and its other half, and two
of rows."""
_UNROLLED = 4
_WORD = 4
_COLUMN_STEP = _WORD * COLUMNS
_SUMS = ("r0", "r1", "r2", "r3", "r4", "r5", "r8", "r9")
_ROWS, _COLUMNS, _END = "r6", "r7", "r12"
"""Pointers, and where rows end: it is kept on the stack."""
_FIRST, _SECOND = "r10", "r11"
"""Both columns' halves."""
_LOADED = ("r12", "lr", "r9")
"""Words of rows; the last one is a sum where there are four."""
_NAME = "dot_{rows}x2"


def _half(rows: int, pairs_loads: bool) -> list[str]:
    """Instructions of a word of columns. Loads come in a row, or each before what it begins
    with."""
    held = _LOADED[: min(rows, 3 if rows < MOST_ROWS else 2)]
    column, *loads = [f"ldr {_FIRST}, [{_COLUMNS}], #4", *(_load(name) for name in held)]
    halves = [f"sxtb16 {_SECOND}, {_FIRST}, ror #8", f"sxtb16 {_FIRST}, {_FIRST}"]
    flat = itertools.chain.from_iterable
    products = [_products(row, held[row % len(held)]) for row in range(rows)]
    behind = [_load(name) for name in held[: rows - len(held)]]
    if not pairs_loads:
        later = [f"ldm {_ROWS}!, {{{', '.join(held)}}}"] if behind else []
        first, last = products[: len(held)], products[len(held) :]
        return [column, *loads, *halves, *flat(first), *later, *flat(last)]
    out = [column, loads[0], halves[0], *loads[1:2], halves[1], *loads[2:]]
    for row, both in enumerate(products):
        out += both
        out += behind[row : row + 1]
    return out


def _load(name: str) -> str:
    return f"ldr {name}, [{_ROWS}], #4"


def _products(row: int, word: str) -> list[str]:
    sums = _SUMS[COLUMNS * row : COLUMNS * (row + 1)]
    return [f"smlad {s}, {word}, {h}, {s}" for s, h in zip(sums, (_FIRST, _SECOND), strict=True)]


def routine(rows: int, pairs_loads: bool) -> str:
    """C of the routine: four words at a time, begun at any of them."""
    name, lines = _NAME.format(rows=rows), []
    for rest in range(1, _UNROLLED):
        lines += [*_entry(name, rest), f"b {_UNROLLED - rest}f"]
    lines += [*_entry(name, 0), "0:"]
    for number in range(_UNROLLED):
        if number:
            lines.append(f"{number}:")
        lines += _half(rows, pairs_loads) * 2
    lines += ["ldr lr, [sp]", f"cmp {_ROWS}, lr", "bne 0b", f"pop {{{_END}, pc}}"]
    text = "\n".join(f'        "{line}\\n"' for line in lines)
    return f"__attribute__((naked, used)) static void {name}(void) {{\n    __asm__(\n{text});\n}}"


def _entry(name: str, rest: int) -> list[str]:
    """Where calls of so many words, and of any number of fours more, begin."""
    return [".thumb_func", f"{name}_{rest}:", f"push {{{_END}, lr}}"]


def widening(rows: int, kind: str, dtype: str) -> str:
    """C of the function that widens rows."""
    widen, names = WIDEN[dtype], "xyzw"[:rows]
    loads = "\n".join(
        f"        memcpy(&{x}, p{f' + {n} * row' if n > 1 else ' + row' if n else ''}, 4);"
        for n, x in enumerate(names)
    )
    even = "\n".join(f"        out[{n}] = (u32)__{widen}({x});" for n, x in enumerate(names))
    odd = "\n".join(
        f'        __asm__("{widen} %0, %1, ror #8" : "=r"(out[{rows + n}]) : "r"({x}));'
        for n, x in enumerate(names)
    )
    return f"""__attribute__((noinline)) static void widened_{rows}_{kind}(
    const {kind} *p, ix row, u32 *out, ix words, ix step) {{
    for (; words > 0; words--) {{
        u32 {", ".join(names)};
{loads}
{even}
{odd}
        out += {2 * rows};
        p += step;
    }}
}}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenedRows:
    """The rows of a tile, widened into memory of their own."""

    tile: DotTile
    place: str
    """C variable of that memory."""

    @property
    def rows(self) -> int:
        return len(self.tile.rows.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return 2 * _WORD * self.rows * self.tile.words * self.tile.runs

    def lines(self) -> list[str]:
        """C that widens them, run by run."""
        side, words, runs = self.tile.rows, self.tile.words, self.tile.runs
        apart = side.offsets[1] if self.rows > 1 else 0
        name = f"widened_{self.rows}_{side.kind}"
        if runs == 1:
            return [f"{name}({side.pointer}, {apart}, {self.place}, {words}, {side.step});"]
        at, out = f"{side.pointer} + n * {side.run_step}", 2 * self.rows * words
        return [
            f"for (ix n = 0; n < {runs}; n++) {{",
            f"    {name}({at}, {apart}, {self.place} + n * {out}, {words}, {side.step});",
            "}",
        ]

    def tile_lines(self) -> list[str]:
        """C that adds all products of the tile."""
        tile, columns, used = self.tile, self.tile.columns, COLUMNS * self.rows
        words = tile.words * tile.runs
        names = [name for row in tile.sums for name in row]
        sums = _SUMS[:used]
        others = sorted({_FIRST, _SECOND, *_LOADED} - {*sums, _END})
        changed = ", ".join(
            [f'"+r"(q{n})' for n in range(used)] + ['"+r"(qf), "+r"(qh), "+r"(qe)']
        )
        end = f"{self.place} + {words * 2 * self.rows}"
        return [
            "{",
            *(f'    register i32 q{n} __asm__("{r}") = {name};'
              for n, (r, name) in enumerate(zip(sums, names, strict=True))),
            f'    register const u32 *qf __asm__("{_ROWS}") = {self.place};',
            f'    register const {columns.kind} *qh __asm__("{_COLUMNS}") = {columns.pointer};',
            f'    register const u32 *qe __asm__("{_END}") = {end};',
            f'    __asm__ volatile("bl {_NAME.format(rows=self.rows)}_{words % _UNROLLED}"',
            f"        : {changed}",
            f'        : : {", ".join(f"""{chr(34)}{r}{chr(34)}""" for r in others)}, '
            '"cc", "memory");',
            *(f"    {name} = q{n};" for n, name in enumerate(names)),
            "}",
        ]  # fmt: skip


def is_widened(tile: DotTile) -> bool:
    """Whether a tile is such: rows in a line, two columns in one piece whose bytes lie in turn."""
    rows, offsets, columns = tile.rows, tile.rows.offsets, tile.columns
    even = 1 <= len(offsets) <= MOST_ROWS and all(
        o == n * offsets[1] for n, o in enumerate(offsets) if n
    )
    plain = rows.in_turn == 1 and rows.dtype in WIDEN
    whole = tile.runs == 1 or columns.run_step == tile.words * columns.step
    whole = whole and columns.step == _COLUMN_STEP
    in_turn = columns.in_turn == COLUMNS and columns.offsets == tuple(range(COLUMNS))
    return even and plain and whole and in_turn and columns.dtype == "int8"
