"""A tile of sums of products of bytes, three rows by two columns, whose rows were widened before.
In: a tile inside a loop over blocks of columns. Out: lines of C that widen rows before the loop,
and those of the tile: a call of one routine of Arm's instructions, whatever the shapes are.

Words of rows lie behind each other as halves of words, even bytes of each row, then odd ones:

    load h0, h1, e0, e1, e2         two words of bytes, three of halves
    t = even bytes of h0; s00 += t * e0; s10 += t * e1; s20 += t * e2; h0 = odd bytes; ...
    load e0, e1, e2                 the odd ones
    s00 += h0 * e0; ...

That are 26 cycles of 24 products, where `dot_tile.py` takes 33: rows are widened once for all
columns, and what is loaded is loaded in a row. A call has registers of its own, not C's.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.codegen.c.dot_tile import WIDEN, DotTile, Side

ROWS, COLUMNS = 3, 2
"""What registers hold sums of: six, two pointers, two words of columns, three of rows, and one."""
WORD_CYCLES, OTHER_WORD_CYCLES = 28.5, 33.0
"""Cycles of a word of all rows and columns, here and in `dot_tile.py`, read off both."""
CALL_CYCLES = 11.0
"""Cycles of a call, there and back."""
WIDENING_CYCLES, BEGIN_CYCLES = 23.0, 20.0
"""Cycles of widening a word of all rows, and of a call for them."""
LONGEST_SHARE = 1.2
"""Share of that time that a call may take: it is 150 bytes or more shorter, chosen."""
LARGEST_SHARE = 0.125
"""Share of a kernel's data and results that widened rows are less than, chosen: they are
memory beside these, which has to be there in the fullest call only."""
FEW_BYTES = 256
"""Bytes that they may be anyway, chosen."""
_UNROLLED = 2
_WORD = 4
_COLUMN_STEP = _WORD * COLUMNS
_SUMS = ("r0", "r1", "r2", "r3", "r4", "r5")
_NAME = "dot_3x2"


def _word(pairs_loads: bool) -> list[str]:
    """Instructions of one word of each row and column, but for the products of their odd bytes.
    Loads come in a row, or each before what it begins with."""
    rows = ("r10", "r11", "r12")
    columns = ["ldr r8, [r7], #8", "ldr r9, [r7, #-4]"]
    loads = [f"ldr {r}, [r6], #4" for r in rows]
    first, second = (
        [f"smlad {s}, {r}, lr, {s}" for s, r in zip(_SUMS[column::2], rows, strict=True)]
        for column in range(COLUMNS)
    )
    odd = [f"sxtb16 {word}, {word}, ror #8" for word in ("r8", "r9")]
    if not pairs_loads:
        begin = [*columns, *loads, "sxtb16 lr, r8", *first, odd[0]]
        return [*begin, "sxtb16 lr, r9", *second, odd[1], *loads]
    begun = [loads[0], "sxtb16 lr, r8", loads[1], first[0], loads[2], *first[1:], odd[0]]
    ended = [second[0], loads[0], second[1], loads[1], second[2], loads[2], odd[1]]
    return [*columns, *begun, "sxtb16 lr, r9", *ended]


def _products() -> list[str]:
    rows = ("r10", "r11", "r12")
    return [
        f"smlad {s}, {r}, {word}, {s}"
        for column, word in enumerate(("r8", "r9"))
        for s, r in zip(_SUMS[column::2], rows, strict=True)
    ]


def _entry(words: int) -> list[str]:
    """Where calls of so many words, and of any number of twos more, begin."""
    return [".thumb_func", f"{_NAME}_{words}:", "push {r8, lr}"]


def routine(pairs_loads: bool) -> str:
    """C of the routine: two words at a time, begun at either. r6: widened rows, r7: columns,
    r8: the end of the rows."""
    lines = []
    for first in range(1, _UNROLLED):
        lines += [*_entry(_UNROLLED - first), f"b {first}f"]
    lines += [*_entry(0), "0:"]
    for number in range(_UNROLLED):
        if number:
            lines.append(f"{number}:")
        lines += _word(pairs_loads)
        if number == _UNROLLED - 1:
            lines.append("ldr lr, [sp]")
        lines += _products()
    lines += ["cmp r6, lr", "bne 0b", "pop {r8, pc}"]
    text = "\n".join(f'        "{line}\\n"' for line in lines)
    return f"__attribute__((naked, used)) static void {_NAME}(void) {{\n    __asm__(\n{text});\n}}"


def widening(kind: str, dtype: str) -> str:
    """C of the function that widens three rows."""
    widen = WIDEN[dtype]
    odd = "\n".join(
        f'        __asm__("{widen} %0, %1, ror #8" : "=r"(out[{ROWS + n}]) : "r"({x}));'
        for n, x in enumerate("xyz")
    )
    return f"""__attribute__((noinline)) static void widened_{kind}(
    const {kind} *p, ix row, u32 *out, ix words) {{
    for (; words > 0; words--) {{
        u32 x, y, z;
        memcpy(&x, p, 4);
        memcpy(&y, p + row, 4);
        memcpy(&z, p + 2 * row, 4);
        out[0] = (u32)__{widen}(x);
        out[1] = (u32)__{widen}(y);
        out[2] = (u32)__{widen}(z);
{odd}
        out += {2 * ROWS};
        p += {_WORD};
    }}
}}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenedRows:
    """Three rows of a tile, widened into memory of their own."""

    rows: Side
    words: int
    place: str
    """C variable of that memory."""

    def lines(self) -> list[str]:
        """C that widens them."""
        apart = self.rows.offsets[1]
        given = f"{self.rows.pointer}, {apart}, {self.place}, {self.words}"
        return [f"widened_{self.rows.kind}({given});"]

    def tile_lines(self, tile: DotTile) -> list[str] | None:
        """C that adds all products of a tile of these rows; None where it is none."""
        columns = tile.columns
        words = tile.words
        plain = columns.offsets == (0, _WORD) and columns.step == _COLUMN_STEP
        if tile.rows != self.rows or not plain or columns.dtype != "int8":
            return None
        names = [name for row in tile.sums for name in row]
        return [
            "{",
            *(f'    register i32 q{n} __asm__("{r}") = {name};'
              for n, (r, name) in enumerate(zip(_SUMS, names, strict=True))),
            f'    register const u32 *qf __asm__("r6") = {self.place};',
            f'    register const {columns.kind} *qh __asm__("r7") = {columns.pointer};',
            f'    register const u32 *qe __asm__("r8") = {self.place} + {words * 2 * ROWS};',
            f'    __asm__ volatile("bl {_NAME}_{words % _UNROLLED}"',
            f'        : {", ".join(f"""{chr(34)}+r{chr(34)}(q{n})""" for n in range(6))}, '
            '"+r"(qf), "+r"(qh), "+r"(qe)',
            '        : : "r9", "r10", "r11", "r12", "lr", "cc", "memory");',
            *(f"    {name} = q{n};" for n, name in enumerate(names)),
            "}",
        ]  # fmt: skip


def bytes_of(tile: DotTile) -> int:
    """Bytes that widened rows take."""
    return 2 * _WORD * ROWS * tile.words


def fits(tile: DotTile, blocks: int, moved_bytes: int) -> bool:
    """Whether a tile's rows are such, and widening them pays for so many blocks of columns of a
    kernel whose data and results are so many bytes."""
    rows, offsets, words = tile.rows, tile.rows.offsets, tile.words
    even = len(offsets) == ROWS and offsets[2] == 2 * offsets[1]
    known = rows.step == _WORD and rows.dtype in WIDEN and tile.runs == 1
    widened = WIDENING_CYCLES * words + BEGIN_CYCLES
    cycles = widened + blocks * (WORD_CYCLES * words + CALL_CYCLES)
    fast = cycles < LONGEST_SHARE * OTHER_WORD_CYCLES * words * blocks
    return even and known and fast and bytes_of(tile) < max(LARGEST_SHARE * moved_bytes, FEW_BYTES)
