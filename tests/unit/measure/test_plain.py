"""The state of caches by numpy, for boards without a compiler."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.measure.cache_footprint import Piece
from autotune.measure.plain import PlainCacheState, PlainCalibration, PlainTeam, plain_profile
from autotune.measure.types import Timing
from autotune.target import host_target, load_target


@pytest.mark.parametrize(("name", "threads", "levels"), [
    ("cortex-a72", 1, ["L1", "L2", "memory"]),
    ("x86-64-v3", 2, ["L1", "L2", "L3", "memory"]),
])  # fmt: skip
def test_a_profile_has_a_figure_for_everything(name: str, threads: int, levels: list[str]) -> None:
    target = load_target(name, threads)
    profile = plain_profile(target, "board")
    assert (profile.device, profile.target) == ("board", target)
    assert profile.peak_flops > 1e6
    assert [level.name for level in profile.levels] == levels
    for level in profile.levels:
        rates = (level.load_bytes_per_s, level.store_bytes_per_s, level.copy_bytes_per_s)
        assert min(rates) > 1e5
    assert (profile.parallel_region_s > 0) == (threads > 1)
    assert profile.width_peaks == ((target.vector_bytes, profile.peak_flops),)


def test_a_calibration_keeps_its_best_reading() -> None:
    ticks = itertools.accumulate([0.0, 5.0, 0.0, 3.0, 0.0, 4.0, 0.0, 9.0])
    calibration = PlainCalibration(clock=lambda: next(ticks))
    assert calibration.best_s == 3.0
    assert calibration.read() == 4.0
    assert calibration.best_s == 3.0


def test_blocks_are_read_and_not_changed() -> None:
    near = np.arange(4096, dtype=np.uint8)
    before = near.copy()
    cache_state = PlainCacheState(host_target())
    pieces = (Piece(block=near, age_bytes=512, age_s=0.0, sparse=near[::4]),)
    cache_state.between_calls(pieces, Timing(foreign_bytes=1 << 20), PlainTeam())
    assert cache_state.overhead_s > 0
    np.testing.assert_array_equal(near, before)
