"""What stands in the caches before a timed call."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from autotune.codegen.llvm.backend import compile_text
from autotune.codegen.loader import code_in_memory, load
from autotune.measure.cache_footprint import Piece
from autotune.measure.cache_state import CacheState
from autotune.measure.execute import build
from autotune.measure.kernels import flush_text
from autotune.measure.storage import aligned_bytes
from autotune.measure.team import Team, team_code
from autotune.measure.types import MeasureRequest, Timing
from autotune.target import host_target
from autotune.types import Array
from tests.patience import PATIENCE_S
from tests.unit.measure import tasks

TARGET = host_target()


def piece(block: Array, age_bytes: int, sparse: Array | None = None) -> Piece:
    return Piece(block=block, age_bytes=age_bytes, age_s=0.0005, sparse=sparse)


OLD = 64 << 20


@pytest.mark.parametrize("apart_s", [0.0, 0.001])
def test_nothing_that_is_moved_changes(apart_s: float) -> None:
    near, far = aligned_bytes(5000, 3), aligned_bytes(5000, 3)[1:]
    pieces = (piece(far, OLD), piece(far[:0], OLD), piece(near, 0, near[::8]), piece(near, 0))
    timing = Timing(foreign_bytes=1 << 20, apart_s=apart_s)
    cache_state = CacheState(TARGET)
    cache_state.between_calls(pieces, timing, cache_state._own)
    assert (near == 3).all()
    assert (far == 3).all()


def test_what_others_take_away_is_a_share() -> None:
    cache_state = CacheState(TARGET)
    old, timing = piece(aligned_bytes(64, 0), OLD), Timing(foreign_bytes=1 << 20, apart_s=0.001)
    share = cache_state.lost(old, timing)
    assert 0.0 <= share <= 1.0
    assert cache_state.lost(old, timing) == share


def test_without_a_model_around_it_nothing_is_taken_away() -> None:
    old = piece(aligned_bytes(64, 0), OLD)
    assert CacheState(TARGET).lost(old, Timing(foreign_bytes=1 << 20)) == 0.0


def test_what_fits_the_cores_own_caches_is_not_taken_away() -> None:
    young = piece(aligned_bytes(64, 0), TARGET.l2_bytes)
    assert CacheState(TARGET).lost(young, Timing(foreign_bytes=1 << 20, apart_s=0.001)) == 0.0


def test_the_code_of_a_function_is_found_where_it_lies() -> None:
    code = compile_text(flush_text(), TARGET)
    library = load([code], TARGET)
    found = code_in_memory(library, code, "flush")
    start = library.address("flush") - found.ctypes.data
    assert 0 <= start < found.nbytes
    assert np.any(found)


def test_what_is_lost_is_lost_in_every_page() -> None:
    cache_state = CacheState(TARGET)
    flushed: list[tuple[int, int, int]] = []
    cache_state._flush = lambda *call: flushed.append(call)
    block = aligned_bytes(3 * 4096 + 2048, 0)
    cache_state._out(block, 0.25)
    start = block.ctypes.data
    assert flushed == [(start, 3, 16), (start + 3 * 4096, 1, 8)]
    flushed.clear()
    cache_state._out(block[:64], 0.25)
    assert not flushed


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_lines_that_are_taken_out_keep_what_they_held(share: float) -> None:
    block = aligned_bytes(5 * 4096 + 100, 7)
    CacheState(TARGET)._out(block, share)
    assert (block == 7).all()


def test_a_kernel_s_own_threads_move_the_data_and_are_awake_when_it_is_called() -> None:
    target = host_target(2)
    built = build(MeasureRequest(task=tasks.matmul(), schedule=(), target=target))
    team = Team(load([built.code, team_code(target)], target), target)
    until_s = time.monotonic() + PATIENCE_S
    while not team.arrived():  # a busy machine may give the thread no core in time
        assert time.monotonic() < until_s
        team.gather()
    before = set(os.listdir("/proc/self/task"))
    team.through(aligned_bytes(1 << 20, 1))
    assert set(os.listdir("/proc/self/task")) <= before


def test_one_thread_needs_nobody_awake() -> None:
    team = Team(load([team_code(TARGET)], TARGET), TARGET)
    team.gather()
    assert team.arrived() == 0
    assert team.empty_call_s() > 0
