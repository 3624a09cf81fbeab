"""Blocks of memory: zeroed, aligned, and where the system gives huge pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.runtime.memory import HUGE_PAGE_BYTES, zeroed_block
from autotune.runtime.memory_plan import ALIGNMENT


@pytest.mark.parametrize("nbytes", [0, 100, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1])
def test_blocks_are_zeroed_and_aligned(nbytes: int) -> None:
    block = zeroed_block(nbytes)
    assert block.nbytes == nbytes
    assert not block.any()
    assert block.ctypes.data % ALIGNMENT == 0


def test_large_blocks_are_private_memory() -> None:
    """Most systems have no huge pages for memory that processes could share."""
    block = zeroed_block(4 * HUGE_PAGE_BYTES)
    address = block.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_ = line.split()
        first, end = (int(number, 16) for number in span.split("-"))
        if first <= address < end:
            assert rights == "rw-p"
            return
    pytest.fail("the block is in no mapping")
