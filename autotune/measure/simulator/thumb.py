"""Cycles of Thumb-2 code on cores of the M profile. In: bytes of a basic block, a core's table.
Out: instructions and cycles.

The Cortex-M4's table is Arm's (Cortex-M4 Technical Reference Manual, 3.3.1), with memory that
answers at once: loads and stores in a row overlap, a taken branch refills the pipeline. Arm
publishes none for the others: what is assumed for them is said beside each.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.measure.simulator.costs import BlockCost


@dataclass(frozen=True, slots=True, kw_only=True)
class ThumbTable:
    """Cycles of a core's instructions; all others take one."""

    load: int = 2
    """First of a row of loads and stores; what follows it in the row takes one."""
    refill: int = 2
    """What a taken branch takes more."""
    divide: int = 7
    float_divide: int = 14
    """A division or a square root of floats."""
    pairs: bool = False
    """Whether two instructions begin at once, where at most one of them is for memory and one
    multiplies."""
    vector: int = 2
    """An instruction on vectors (Helium): a half of the vector in each cycle. One for memory and
    one that computes overlap by a half."""


CORTEX_M4 = ThumbTable()
"""Specified; a taken branch takes 1 to 3 cycles more, a division 2 to 12: the middle of both."""
CORTEX_M33 = ThumbTable()
"""Assumed: as Cortex-M4, whose pipeline has three stages as well."""
CORTEX_M7 = ThumbTable(load=1, refill=1, pairs=True)
"""Assumed: two instructions at once whatever registers they use, branches foreseen."""
CORTEX_M55 = ThumbTable(load=1, refill=1)
"""Assumed but for its vectors, which take two beats a cycle (Arm Helium technology)."""

_STORE = 1


@dataclass(frozen=True, slots=True)
class _Instruction:
    """`unit`: memory, multiply, vector, loop (a branch that ends a loop without refilling) or
    nothing of these."""

    cycles: int
    unit: str = ""


def block_cost(code: bytes, table: ThumbTable = CORTEX_M4) -> BlockCost:
    """The cost of instructions that run one after the other."""
    at = instructions = cycles = 0
    before = _Instruction(0)
    paired = True
    while at + 1 < len(code):
        first = int.from_bytes(code[at : at + 2], "little")
        wide = first >> 11 in (0b11101, 0b11110, 0b11111)
        second = int.from_bytes(code[at + 2 : at + 4], "little") if wide else 0
        now = _wide(first, second, table) if wide else _narrow(first, table)
        paired = table.pairs and not paired and _together(before, now)
        cycles += 0 if paired else _behind(before, now, table)
        before = now
        instructions += 1
        at += 4 if wide else 2
    return BlockCost(instructions, cycles, 0 if before.unit == "loop" else table.refill)


def _together(before: _Instruction, now: _Instruction) -> bool:
    """Whether an instruction begins in the same cycle as the one before it."""
    return before.cycles == now.cycles == 1 and (not now.unit or now.unit != before.unit)


def _behind(before: _Instruction, now: _Instruction, table: ThumbTable) -> int:
    """Cycles of an instruction behind another one."""
    if now.unit == before.unit == "memory" and now.cycles <= table.load:
        return 1
    vectors = before.unit.startswith("vector") and now.unit.startswith("vector")
    return now.cycles - (vectors and now.unit != before.unit)


def _narrow(word: int, table: ThumbTable) -> _Instruction:
    """An instruction of 16 bits."""
    top = word >> 12
    if word >> 11 == 0b01001 or (top in (6, 7, 8, 9) and word & 0x800):
        return _Instruction(table.load, "memory")
    if top == 5:
        return _Instruction(table.load if word >> 9 & 7 >= 3 else _STORE, "memory")
    if top in (6, 7, 8, 9):
        return _Instruction(_STORE, "memory")
    if word & 0xF600 == 0xB400:  # push, pop
        return _Instruction(1 + (word & 0x1FF).bit_count(), "memory")
    if top == 12:  # ldm, stm
        return _Instruction(1 + (word & 0xFF).bit_count(), "memory")
    return _Instruction(1, "multiply" if word & 0xFFC0 == 0x4340 else "")


def _wide(first: int, second: int, table: ThumbTable) -> _Instruction:
    """An instruction of 32 bits."""
    if first & 0xFE40 == 0xE800:  # ldm, stm
        return _Instruction(1 + second.bit_count(), "memory")
    if first & 0xFE40 == 0xE840:  # pairs, and jumps by a table
        return _Instruction(1 + table.load, "memory")
    if first & 0xFE00 == 0xF800:
        return _Instruction(table.load if first & 0x10 else _STORE, "memory")
    if first & 0xFF80 == 0xFB80 and first >> 4 & 5 == 1:  # sdiv, udiv
        return _Instruction(table.divide)
    if first & 0xFF00 == 0xFB00:  # products
        return _Instruction(1, "multiply")
    if first & 0xFF8F == 0xF00F and second & 0xF001 == 0xC001:  # le
        return _Instruction(1, "loop")
    if first & 0xEC00 == 0xEC00 and second >> 8 & 0xF not in (0xA, 0xB):
        return _Instruction(table.vector, "vector memory" if first & 0x0200 == 0 else "vector")
    if first & 0xEE00 == 0xEC00:  # floats from and to memory
        count = second & 0xFF if first & 0x0120 != 0x0100 else 1
        return _Instruction(1 + max(count, 1), "memory")
    if first & 0xEFB0 in (0xEE80, 0xEEB0) and _is_float_division(first, second):
        return _Instruction(table.float_divide)
    return _Instruction(1)


def _is_float_division(first: int, second: int) -> bool:
    root = first & 0xEFBF == 0xEEB1 and second & 0x0FC0 == 0x0AC0
    return root or (first & 0xEFB0 == 0xEE80 and second & 0x0F50 == 0x0A00)
