"""A tile of sums of products of bytes as one loop of Arm's instructions. In: where its operands
lie, the variables of its sums. Out: lines of C with extended assembler, as GCC takes it.

Compilers spill a tile's operands where they would just fit; here each has its register. Operands
of the side that has fewer are widened once, those of the other as they are used:

    load h0, h1, g                  four bytes of each
    h0e, h0 = even, odd bytes of h0; h1e, h1 = ...
    g': t = even bytes of g; s00 += t * h0e; s01 += t * h1e; g = odd bytes; s00 += g * h0; ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REGISTERS = 14
"""A core of the M profile has so many, but for the stack's and the program's own (specified)."""
_BODY_INSTRUCTIONS = 64
"""What a loop's body may have, chosen: 256 bytes."""
_RUN_INSTRUCTIONS = 96
"""What a whole run of words may have to be written out, chosen: it saves a loop in a loop."""
_OFFSETS = range(-255, 4096)
"""What a load may add to an address (specified)."""
_STEPS = range(-255, 256)
"""What a load may add to its address register (specified)."""
WIDEN = {"uint8": "uxtb16", "int8": "sxtb16"}
"""Instructions that widen bytes 0 and 2 of a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One operand of the products: the same bytes of several rows, words of them one after the
    other."""

    pointer: str
    """C expression of the first row's first byte."""
    kind: str
    """C type of an element."""
    dtype: str
    offsets: tuple[int, ...]
    """Bytes of each row from the first, ascending."""
    step: int
    """Bytes from a word to the next."""
    run_step: int = 0
    """Bytes from a run of words to the next."""
    aligned: bool = False
    """Whether every word is known to lie at a multiple of its bytes."""
    in_turn: int = 1
    """Rows whose bytes lie in turn: of two, in two words, the even bytes of both, then the odd."""

    @property
    def fits(self) -> bool:
        """Whether loads can name every row."""
        offsets = all(o - self.step in _OFFSETS for o in self.offsets)
        known = self.dtype in WIDEN and self.in_turn == 1
        return self.step in _STEPS and offsets and known


@dataclass(frozen=True, slots=True, kw_only=True)
class DotTile:
    """Sums of rows of one side by rows of the other, over `words` words of each; `runs` times
    that, one run after the other."""

    rows: Side
    columns: Side
    sums: tuple[tuple[str, ...], ...]
    """Variables of int32: by row, then by column."""
    words: int
    runs: int = 1

    def lines(self) -> list[str] | None:
        """C that adds all products; None where registers or offsets do not do."""
        held, taken, sums = self.columns, self.rows, self.sums
        if len(held.offsets) > len(taken.offsets):
            held, taken, sums = taken, held, tuple(zip(*sums, strict=True))
        left = REGISTERS - len(taken.offsets) * len(held.offsets) - 2 * len(held.offsets) - 3
        if left < 1 or not held.fits or not taken.fits:
            return None
        ahead = min(max(left - 1, 1), len(taken.offsets))
        body = _body(held, taken, ahead)
        loop = _loop(self, held, taken, body)
        return None if loop is None else _written(held, taken, sums, loop=loop, left=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """A body that is gone through `turns` times, of `copies` of the same text and what comes
    behind them."""

    body: list[str]
    copies: int
    behind: list[str]
    turns: int
    step: int
    """Bytes that the taken side moves on in a turn."""


def _loop(tile: DotTile, held: Side, taken: Side, body: list[str]) -> _Loop | None:
    """Over words, or over runs that are written out; None where neither does."""
    if tile.runs == 1:
        copies = _copies(tile.words, len(body))
        turns, step = tile.words // copies, copies * taken.step
        return _Loop(body=body, copies=copies, behind=[], turns=turns, step=step)
    skips = [side.run_step - tile.words * side.step for side in (held, taken)]
    behind = [
        f"add{'w' if skip > 0 else ''} %[p{name}], %[p{name}], #{skip}"
        for name, skip in zip("hg", skips, strict=True)
        if skip
    ]
    short = tile.words * len(body) <= _RUN_INSTRUCTIONS and all(s in range(4096) for s in skips)
    if not short or not taken.run_step:
        return None
    return _Loop(body=body, copies=tile.words, behind=behind, turns=tile.runs, step=taken.run_step)


def _copies(words: int, instructions: int) -> int:
    """How often the body is written out."""
    most = max(_BODY_INSTRUCTIONS // instructions, 1)
    return max(n for n in range(1, most + 1) if words % n == 0)


def _body(held: Side, taken: Side, ahead: int) -> list[str]:
    """Instructions of one word of each row; `ahead`: words that are loaded in a row."""
    out = [_load(f"h{n}", "h", held, n) for n in range(len(held.offsets))]
    for first in range(0, len(taken.offsets), ahead):
        group = range(first, min(first + ahead, len(taken.offsets)))
        out += [_load(f"g{n - first}", "g", taken, n) for n in group]
        if first == 0:
            for n in range(len(held.offsets)):
                out += widened(f"e{n}", f"h{n}", held.dtype)
        for n in group:
            even, odd = widened("t", f"g{n - first}", taken.dtype)
            out.append(even)
            out += [f"smlad %[s{n}_{m}], %[t], %[e{m}], %[s{n}_{m}]" for m in _each(held)]
            out.append(odd)
            out += [
                f"smlad %[s{n}_{m}], %[g{n - first}], %[h{m}], %[s{n}_{m}]" for m in _each(held)
            ]
    return out


def _each(side: Side) -> range:
    return range(len(side.offsets))


def _load(register: str, pointer: str, side: Side, number: int) -> str:
    """The first row's load moves the pointer on; the others know."""
    if number == 0:
        return f"ldr %[{register}], [%[p{pointer}]], #{side.step}"
    return f"ldr %[{register}], [%[p{pointer}], #{side.offsets[number] - side.step}]"


def widened(even: str, word: str, dtype: str) -> list[str]:
    """Bytes 0 and 2, and 1 and 3 where the word was."""
    name = WIDEN[dtype]
    return [f"{name} %[{even}], %[{word}]", f"{name} %[{word}], %[{word}], ror #8"]


def _written(
    held: Side, taken: Side, sums: Sequence[Sequence[str]], *, loop: _Loop, left: int
) -> list[str]:
    """The loop; its end is in memory where no register is left."""
    ahead = min(max(left - 1, 1), len(taken.offsets))
    near, body = left > ahead, loop.body
    text = [f".rept {loop.copies}", *body, ".endr"] if loop.copies > 1 else list(body)
    text += loop.behind
    loops = loop.turns > 1
    if loops:
        ends = ["cmp %[pg], %[end]"] if near else ["ldr %[t], %[end]", "cmp %[pg], %[t]"]
        text = ["1:", *text, *ends, "bne 1b"]
    outs = [f'[s{n}_{m}] "+r"({name})' for n, row in enumerate(sums) for m, name in enumerate(row)]
    outs += ['[ph] "+r"(ph)', '[pg] "+r"(pg)']
    temps = ["t", *(f"e{m}" for m in _each(held)), *(f"h{m}" for m in _each(held))]
    temps += [f"g{n}" for n in range(ahead)]
    outs += [f'[{name}] "=&r"({name})' for name in temps]
    given = f'[end] "{"r" if near else "m"}"(end)' if loops else ""
    end = f"    const {taken.kind} *const end = pg + {loop.turns * loop.step};"
    return [
        "{",
        f"    const {held.kind} *ph = {held.pointer};",
        f"    const {taken.kind} *pg = {taken.pointer};",
        *([end] if loops else []),
        f"    u32 {', '.join(temps)};",
        "    __asm__ volatile(",
        *(f'        "{line}\\n"' for line in text),
        f"        : {', '.join(outs)}",
        f"        : {given}",
        '        : "cc", "memory");',
        "}",
    ]
