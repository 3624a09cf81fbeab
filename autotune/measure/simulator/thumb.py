"""Cycles of Thumb-2 code on a Cortex-M4. In: bytes of a basic block. Out: instructions and cycles.

By Arm's table for the core (Cortex-M4 Technical Reference Manual, 3.3.1), with memory that answers
at once: loads and stores in a row overlap, a taken branch refills the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

REFILL_CYCLES = 2
"""What a taken branch takes more, specified as 1 to 3: the middle."""
DIVIDE_CYCLES = 7
"""What a division takes, specified as 2 to 12: the middle."""
FLOAT_DIVIDE_CYCLES = 14
"""What a division or a square root of floats takes, specified."""
_LOAD, _STORE = 2, 1
"""First of a row, specified; what follows it in the row takes one."""


@dataclass(frozen=True, slots=True)
class BlockCost:
    """What running a block once takes, without the refill where it is left by a taken branch."""

    instructions: int
    cycles: int


def block_cost(code: bytes) -> BlockCost:
    """The cost of instructions that run one after the other."""
    at = instructions = cycles = 0
    in_row = False
    while at + 1 < len(code):
        first = int.from_bytes(code[at : at + 2], "little")
        wide = first >> 11 in (0b11101, 0b11110, 0b11111)
        second = int.from_bytes(code[at + 2 : at + 4], "little") if wide else 0
        taken, memory = _wide(first, second) if wide else _narrow(first)
        cycles += 1 if memory and in_row and taken <= _LOAD else taken
        in_row = memory
        instructions += 1
        at += 4 if wide else 2
    return BlockCost(instructions, cycles)


def _narrow(word: int) -> tuple[int, bool]:
    """(cycles, whether it is a load or a store) of an instruction of 16 bits."""
    top = word >> 12
    if word >> 11 == 0b01001 or (top in (6, 7, 8, 9) and word & 0x800):
        return _LOAD, True
    if top == 5:
        return (_LOAD if word >> 9 & 7 >= 3 else _STORE), True
    if top in (6, 7, 8, 9):
        return _STORE, True
    if word & 0xF600 == 0xB400:  # push, pop
        return 1 + (word & 0x1FF).bit_count(), True
    if top == 12:  # ldm, stm
        return 1 + (word & 0xFF).bit_count(), True
    return 1, False


def _wide(first: int, second: int) -> tuple[int, bool]:
    """The same of an instruction of 32 bits."""
    if first & 0xFE40 == 0xE800:  # ldm, stm
        return 1 + second.bit_count(), True
    if first & 0xFE40 == 0xE840:  # pairs, and jumps by a table
        return 1 + _LOAD, True
    if first & 0xFE00 == 0xF800:
        return (_LOAD if first & 0x10 else _STORE), True
    if first & 0xFF80 == 0xFB80 and first >> 4 & 5 == 1:  # sdiv, udiv
        return DIVIDE_CYCLES, False
    if first & 0xEE00 == 0xEC00:  # floats from and to memory
        count = second & 0xFF if first & 0x0120 != 0x0100 else 1
        return 1 + max(count, 1), True
    if first & 0xEFB0 in (0xEE80, 0xEEB0) and _is_float_division(first, second):
        return FLOAT_DIVIDE_CYCLES, False
    return 1, False


def _is_float_division(first: int, second: int) -> bool:
    root = first & 0xEFBF == 0xEEB1 and second & 0x0FC0 == 0x0AC0
    return root or (first & 0xEFB0 == 0xEE80 and second & 0x0F50 == 0x0A00)
