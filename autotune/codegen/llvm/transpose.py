"""Tiles transposed in registers: rows of a square become its columns by shuffles of two at a time.

In: rows as names of LLVM vectors, and what writes a shuffle. Out: the columns. Within 128 bits
elements are interleaved, then blocks of 128 bits change places: every shuffle is one instruction
of SSE, AVX, AVX-512 and NEON alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Shuffle = Callable[[str, str, Sequence[int]], str]
"""Lanes of two vectors end to end, by number."""
BLOCK_BYTES = 16
"""Bytes of a block of lanes within which x86's unpacks move elements."""
ABSENT = "poison"
"""A row that nothing is taken from."""


def transposed(rows: Sequence[str], item_bytes: int, shuffle: Shuffle) -> list[str]:
    """The columns of a square of 2, 4, 8, ... rows, some of which may be absent."""
    size = len(rows)
    block = max(1, min(size, BLOCK_BYTES // item_bytes))
    inside: list[str] = []
    for first in range(0, size, block):
        inside += _interleaved(list(rows[first : first + block]), size, shuffle)
    out = [ABSENT] * size
    for element in range(block):
        out[element::block] = _exchanged(inside[element::block], block, shuffle)
    return out


def _interleaved(rows: list[str], size: int, shuffle: Shuffle) -> list[str]:
    """Rows, as many as a block has elements, transposed within each block."""
    block = len(rows)
    half = block // 2
    begins = [start + i for start in range(0, size, block) for i in range(half)]
    low = [lane for i in begins for lane in (i, size + i)]
    high = [lane + half for lane in low]
    for _ in range(block.bit_length() - 1):
        pairs = list(zip(rows[:half], rows[half:], strict=True))
        rows = [_both(a, b, order, shuffle) for a, b in pairs for order in (low, high)]
    return rows


def _exchanged(rows: list[str], block: int, shuffle: Shuffle) -> list[str]:
    """Rows of as many blocks, transposed as if blocks were elements."""
    if len(rows) == 1:
        return rows
    return _columns(rows, block, len(rows) * block, shuffle)


def _columns(rows: list[str], block: int, size: int, shuffle: Shuffle) -> list[str]:
    if len(rows) == 1:
        return rows
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    out = [ABSENT] * len(rows)
    for odd in (0, 1):
        order = [
            start + i for start in range(odd * block, 2 * size, 2 * block) for i in range(block)
        ]
        taken = [_both(a, b, order, shuffle) for a, b in pairs]
        out[odd::2] = _columns(taken, block, size, shuffle)
    return out


def _both(a: str, b: str, order: list[int], shuffle: Shuffle) -> str:
    return ABSENT if a == b == ABSENT else shuffle(a, b, order)
