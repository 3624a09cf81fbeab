"""Blocks of memory lie where the system gives huge pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.memory import HUGE_PAGE_BYTES, zeroed_block


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
