"""Memory of runs of any sizes."""

from __future__ import annotations

import pytest

from autotune.memory import Bytes
from autotune.runtime import open_model
from autotune.runtime.open_model import Arenas


def test_a_larger_run_keeps_the_memory_of_those_before_it() -> None:
    """It waits for the pages alone that it has more than they."""
    arenas = Arenas(1 << 24)
    block = arenas.take(1 << 20)
    block[:4] = 7
    arenas.give(block)
    larger = arenas.take(1 << 23)
    assert larger.ctypes.data == block.ctypes.data
    assert larger[:4].tolist() == [7] * 4
    assert larger.nbytes >= 1 << 23


def test_runs_side_by_side_have_blocks_of_their_own() -> None:
    arenas = Arenas(1 << 20)
    assert arenas.take(64).ctypes.data != arenas.take(64).ctypes.data


def test_without_room_for_the_largest_sizes_a_run_has_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where addresses are counted as memory is, reserving may be refused."""
    found = open_model.zeroed_block

    def limited(nbytes: int) -> Bytes:
        if nbytes > 1 << 20:
            raise OSError("no memory")
        return found(nbytes)

    monkeypatch.setattr(open_model, "zeroed_block", limited)
    assert Arenas(1 << 30).take(4096).nbytes == 4096
