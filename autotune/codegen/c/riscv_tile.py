"""A tile of sums of products of bytes by RISC-V's vectors (V, or Zve32x of small cores), of
whatever length a core has. In: a DotTile. Out: lines of C with extended assembler, which compilers
take that have no intrinsics for vectors, too.

Bytes are widened to halves of words, those of the side with fewer rows once; an instruction adds
the products of a vector to as many sums of their own, which are added up at the end:

    h0, h1 = bytes of rows 0 and 1, widened
    g = bytes of row 0, widened; s00 += g * h0; s01 += g * h1
    g = bytes of row 1, ...

Words of two rows that lie in turn are loaded as segments, each row's into a register of its own.

Sizes are operands, so kernels that differ by these alone have one text (shared_kernels.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.c.dot_tile import DotTile, Side

VECTORS = "#if defined(__riscv_zve32x) && defined(__GNUC__)"
MOST_SUMS, MOST_HELD = 6, 2
"""Registers: four for each sum of words, two for each row of halves that is held (specified, of
32)."""
CHANGED = f"""{VECTORS}
#if defined(__clang__) || __GNUC__ > 12
#define VECTOR_REGISTERS "memory", "vl", "vtype", {", ".join(f'"v{n}"' for n in range(32))}
#else
#define VECTOR_REGISTERS "memory"
#endif
#endif"""
"""What the assembler changes, for compilers that use vectors themselves."""
EXTEND = {"uint8": "vzext.vf2", "int8": "vsext.vf2"}
_ROW, _BYTES, _FIRST_SUM = 4, 6, 8
"""Vector registers: a row of halves that is used at once, bytes of two rows, the first sum."""
_WORD_BYTES = 4


def vector_lines(tile: DotTile) -> list[str] | None:
    """C that adds all products; None where registers do not do, or words lie as no load has
    them."""
    held, taken, sums = tile.columns, tile.rows, tile.sums
    if len(held.offsets) > len(taken.offsets):
        held, taken, sums = taken, held, tuple(zip(*sums, strict=True))
    count = len(held.offsets) * len(taken.offsets)
    if len(held.offsets) > MOST_HELD or count > MOST_SUMS:
        return None
    if not (_loads(held) and _loads(taken)) or (_in_turn(held) and _in_turn(taken)):
        return None
    return _Lines(tile, held, taken, sums).written()


def _loads(side: Side) -> bool:
    known = side.dtype in EXTEND and side.in_turn == 1
    return known and (side.step == _WORD_BYTES or _in_turn(side))


def _in_turn(side: Side) -> bool:
    """Whether words of its two rows lie in turn, where a load of words may begin."""
    return side.offsets == (0, _WORD_BYTES) and side.step == 2 * _WORD_BYTES and side.aligned


class Numbers:
    """Operands of the numbers that instructions take from registers."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def named(self, number: int) -> str:
        """The operand of a number, of equal ones the same."""
        return f"%[{self._names.setdefault(number, f'o{len(self._names)}')}]"

    def added(self, name: str, base: str, number: int) -> list[str]:
        """A register set to another moved by a number."""
        if number == 0 and name == base:
            return []
        return [f"add %[{name}], %[{base}], {self.named(number)}"]

    @property
    def given(self) -> str:
        """C of all."""
        return ", ".join(f'[{name}] "r"({number})' for number, name in self._names.items())


class _Lines:
    """Writes one tile."""

    def __init__(
        self, tile: DotTile, held: Side, taken: Side, sums: Sequence[Sequence[str]]
    ) -> None:
        self.tile, self.held, self.taken = tile, held, taken
        self.sums = [name for row in sums for name in row]
        self.segments = _in_turn(held) or _in_turn(taken)
        self.numbers = Numbers()

    def written(self) -> list[str]:
        body = self._text()
        outs = [f'[s{n}] "+r"({name})' for n, name in enumerate(self.sums)]
        outs += ['[ph] "+r"(ph)', '[pg] "+r"(pg)']
        temps = ["n", "a", "left", *(["runs"] if self.tile.runs > 1 else [])]
        outs += [f'[{name}] "=&r"({name})' for name in temps]
        return [
            "{",
            f"    const {self.held.kind} *ph = {self.held.pointer};",
            f"    const {self.taken.kind} *pg = {self.taken.pointer};",
            f"    u32 {', '.join(temps)};",
            "    __asm__ volatile(",
            *(f'        "{line}\\n"' for line in body),
            f"        : {', '.join(outs)}",
            f"        : {self.numbers.given}",
            "        : VECTOR_REGISTERS);",
            "}",
        ]

    def _text(self) -> list[str]:
        runs, words = self.tile.runs, self.tile.words
        whole = "vsetvli %[n], zero, e32, m4, ta, ma"
        sums = range(len(self.sums))
        length = self.numbers.named(words if self.segments else words * _WORD_BYTES)
        run = [f"mv %[left], {length}", "2:"]
        run += [*self._vector(), "bnez %[left], 2b"]
        if runs > 1:
            for name, side in (("ph", self.held), ("pg", self.taken)):
                run += self.numbers.added(name, name, side.run_step - words * side.step)
            run = [f"li %[runs], {runs}", "1:", *run, "addi %[runs], %[runs], -1"]
            run.append("bnez %[runs], 1b")
        end = [
            line
            for n in sums
            for line in (
                f"vmv.s.x v0, %[s{n}]",
                f"vredsum.vs v0, v{_sum(n)}, v0",
                f"vmv.x.s %[s{n}], v0",
            )
        ]
        return [whole, *(f"vmv.v.i v{_sum(n)}, 0" for n in sums), *run, whole, *end]

    def _vector(self) -> list[str]:
        """Products of one vector of each row; as many elements of sums stay as they are as it has
        none."""
        segments: list[str] = []
        halves, moved = "vsetvli %[n], %[left], e16, m2, tu, ma", "n"
        if self.segments:
            pointer = "ph" if _in_turn(self.held) else "pg"
            segments = [
                "vsetvli %[n], %[left], e32, m1, ta, ma",
                f"vlseg2e32.v v{_BYTES}, (%[{pointer}])",
                "slli %[a], %[n], 2",
            ]
            halves, moved = "vsetvli zero, %[a], e16, m2, tu, ma", "a"
        out = [*segments, halves]
        for n in range(len(self.held.offsets)):
            out += self._widened("ph", self.held, n, 2 * n)
        for n in range(len(self.taken.offsets)):
            out += self._widened("pg", self.taken, n, _ROW)
            for m in range(len(self.held.offsets)):
                total = _sum(n * len(self.held.offsets) + m)
                out.append(f"vwmacc.vv v{total}, v{_ROW}, v{2 * m}")
        out.append("sub %[left], %[left], %[n]")
        if self.segments:
            out.append("slli %[a], %[n], 2")
        for name, side in (("ph", self.held), ("pg", self.taken)):
            out += [f"add %[{name}], %[{name}], %[{moved}]"] * (side.step // _WORD_BYTES)
        return out

    def _widened(self, pointer: str, side: Side, number: int, into: int) -> list[str]:
        """A row's next bytes as halves of words."""
        extend = EXTEND[side.dtype]
        if _in_turn(side):
            return [f"{extend} v{into}, v{_BYTES + number}"]
        lines, place = [], pointer
        if number:
            # From the row before: where these are the rows and columns of a tile, they are few.
            before, at = side.offsets[number - 1 : number + 1]
            lines, place = (
                self.numbers.added("a", "a" if number > 1 else pointer, at - before),
                "a",
            )
        # A source may be the upper half of what it is widened into.
        return [*lines, f"vle8.v v{into + 1}, (%[{place}])", f"{extend} v{into}, v{into + 1}"]


def _sum(number: int) -> int:
    """The register of a sum."""
    return _FIRST_SUM + 4 * number
