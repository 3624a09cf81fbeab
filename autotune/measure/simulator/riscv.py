"""Cycles of RV32IMAC code on a small core. In: bytes of a basic block. Out: its cost.

By the table of Ibex (its documentation, "Pipeline Details"), with the multiplier of one cycle and
memory that answers at once; it has no atomic instructions, which take a load and a store here.
It has no vectors either: their cycles are assumed (`riscv_vectors.py`).
"""

from __future__ import annotations

from autotune.measure.simulator.costs import BlockCost
from autotune.measure.simulator.riscv_vectors import VectorCosts, is_vector

_MEMORY, _HIGH_PRODUCT, _DIVIDE, _ATOMIC = 2, 2, 37, 4
_JUMP, _BRANCH = 1, 2
"""What a jump and a taken branch take more."""
_OPCODE_LOAD, _OPCODE_STORE, _OPCODE_ATOMIC, _OPCODE_REGISTERS = 0x03, 0x23, 0x2F, 0x33
_OPCODE_BRANCH, _OPCODE_JUMPS = 0x63, (0x67, 0x6F)


def block_cost(code: bytes) -> BlockCost:
    """The cost of instructions that run one after the other."""
    at = instructions = cycles = refill = 0
    vectors = VectorCosts()
    while at + 1 < len(code):
        half = int.from_bytes(code[at : at + 2], "little")
        if half & 3 == 3:
            word = int.from_bytes(code[at : at + 4], "little")
            taken, refill = (vectors.cycles(word), 0) if is_vector(word) else _whole(word)
            at += 4
        else:
            taken, refill = _compressed(half)
            at += 2
        instructions += 1
        cycles += taken
    return BlockCost(instructions, cycles, refill)


def _whole(word: int) -> tuple[int, int]:
    """(cycles, what it takes more where it jumps) of an instruction of 32 bits."""
    opcode, kind = word & 0x7F, word >> 12 & 7
    if opcode in (_OPCODE_LOAD, _OPCODE_STORE):
        return _MEMORY, 0
    if opcode == _OPCODE_ATOMIC:
        return _ATOMIC, 0
    if opcode == _OPCODE_REGISTERS and word >> 25 == 1:
        return (_DIVIDE if kind >= 4 else _HIGH_PRODUCT if kind else 1), 0
    return 1, _BRANCH if opcode == _OPCODE_BRANCH else _JUMP * (opcode in _OPCODE_JUMPS)


def _compressed(half: int) -> tuple[int, int]:
    """The same of 16 bits."""
    quadrant, kind = half & 3, half >> 13
    if quadrant != 1 and kind in (2, 6):  # lw, sw, from and to the stack too
        return _MEMORY, 0
    if quadrant == 1 and kind in (6, 7):
        return 1, _BRANCH
    register_jump = quadrant == 2 and kind == 4 and not half >> 2 & 0x1F
    return 1, _JUMP * (register_jump or (quadrant == 1 and kind in (1, 5)))
