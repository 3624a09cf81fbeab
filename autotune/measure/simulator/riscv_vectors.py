"""Cycles of RISC-V's vector instructions on a small core. In: instructions of a block, in turn.
Out: what each takes.

Assumed: vectors of 128 bits, half a vector in each cycle, as Arm's small cores have it. A group of
registers takes as many times that, a result of twice the width too; elements apart, or segments
of several, one element in each cycle. A block that sets no type is taken for one of whole vectors
of bytes.
"""

from __future__ import annotations

_VECTOR_BYTES, _BYTES_A_CYCLE = 16, 8
_OPCODE_LOAD, _OPCODE_STORE, _OPCODE_VECTOR = 0x07, 0x27, 0x57
_WIDTHS = {0: 1, 5: 2, 6: 4, 7: 8}
"""Bytes of an element in memory, by that field."""
_SETS_TYPE = 7
_INTEGERS_M = (2, 6)
"""The kinds of products, of sums of whole vectors, and of what widens."""
_FIRST_WIDENING = 0x30
_MOVES_ELEMENT = 0x10


def is_vector(word: int) -> bool:
    """Whether it is one of these instructions."""
    opcode, kind = word & 0x7F, word >> 12 & 7
    return opcode == _OPCODE_VECTOR or (
        opcode in (_OPCODE_LOAD, _OPCODE_STORE) and kind in _WIDTHS
    )


class VectorCosts:
    """Follows the type that elements have."""

    def __init__(self) -> None:
        self._bytes, self._group = 1, 1.0

    def cycles(self, word: int) -> int:
        """What an instruction takes."""
        opcode, kind = word & 0x7F, word >> 12 & 7
        if opcode != _OPCODE_VECTOR:
            return self._memory(word, _WIDTHS[kind])
        if kind == _SETS_TYPE:
            self._set(word)
            return 1
        function, group = word >> 26, self._group
        if kind in _INTEGERS_M:
            if function == _MOVES_ELEMENT:
                return 1
            group *= 2 if function >= _FIRST_WIDENING else 1
        return _of_bytes(group * _VECTOR_BYTES)

    def _memory(self, word: int, width: int) -> int:
        elements = self._group * _VECTOR_BYTES / self._bytes
        segments, together = (word >> 29 & 7) + 1, word >> 26 & 3 == 0
        if segments > 1 or not together:
            return 1 + int(elements * segments)
        return 1 + _of_bytes(elements * width)

    def _set(self, word: int) -> None:
        """By vsetvli and vsetivli; vsetvl has its type in a register."""
        if word >> 30 == 2:
            return
        group = word >> 20 & 7
        self._bytes, self._group = 1 << (word >> 23 & 7), 2.0 ** (group - 8 * (group > 3))


def _of_bytes(count: float) -> int:
    return max(int(count) // _BYTES_A_CYCLE, 1)
