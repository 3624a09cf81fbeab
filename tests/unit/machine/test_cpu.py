"""Parts of a predicted time on CPUs, as layouts, passes and rooflines ask for them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.machine import Machine
from autotune.machine.cpu import (
    core_seconds,
    l3_seconds,
    outer_product_cycles,
    sets_met,
    strip_cycles,
    strip_start_cycles,
    strip_stream_cycles,
    tail_latency,
)
from autotune.machine.profile import CacheLevel
from autotune.machine.roofline import level_of
from autotune.target import load_target

TARGET = load_target("x86-64-v4")
MACHINE = Machine.of(TARGET)
SPEEDS = MACHINE.cpu


def test_a_core_takes_what_the_longer_of_arithmetic_and_bytes_takes() -> None:
    second = MACHINE.profile.peak_flops
    assert core_seconds(MACHINE, second, 0.0) == 1.0
    assert core_seconds(MACHINE, 1.0, 1e9) == l3_seconds(MACHINE, 1e9)
    assert l3_seconds(MACHINE, SPEEDS.clock_hz * SPEEDS.l3_stream_bytes_per_cycle) == 1.0


def test_points_a_power_of_two_apart_meet_in_few_sets() -> None:
    way = TARGET.l1_bytes // TARGET.l1_ways
    assert sets_met(TARGET, way) == sets_met(TARGET, 4 * way) == 1
    assert sets_met(TARGET, way // 4) == 4
    assert sets_met(TARGET, way + TARGET.line_bytes) == way // TARGET.line_bytes


def test_a_cache_of_one_way_of_less_than_a_line_has_lines_still() -> None:
    tiny = dataclasses.replace(TARGET, l1_bytes=TARGET.line_bytes)
    assert sets_met(tiny, TARGET.line_bytes) == 1


def test_results_between_layers_come_from_memory_where_the_shared_cache_is_small() -> None:
    own = 1 << 20
    within, beyond = (int(SPEEDS.own_caches_in_l3 * own) + n for n in (0, 1))
    assert strip_stream_cycles(SPEEDS, within, own) == within / SPEEDS.l3_strip_bytes_per_cycle
    assert strip_stream_cycles(SPEEDS, beyond, own) == beyond / SPEEDS.memory_strip_bytes_per_cycle


def test_another_strip_costs_its_kernels_and_its_weights() -> None:
    one, two = (strip_start_cycles(SPEEDS, kernels, 0) for kernels in (1, 2))
    assert (one, two) == (SPEEDS.kernel_start_cycles, 2 * SPEEDS.kernel_start_cycles)
    assert strip_start_cycles(SPEEDS, 1, 800) == pytest.approx(
        one + 800 / SPEEDS.l3_strip_bytes_per_cycle
    )
    assert strip_cycles(SPEEDS, SPEEDS.strip_flops_per_cycle) == 1.0


def test_caches_of_a_core_count_once_per_thread_and_the_shared_one_once() -> None:
    levels = tuple(
        CacheLevel(name=name, size_bytes=size, load_bytes_per_s=1e9)
        for name, size in (("L1", 1), ("L2", 10), ("L3", 100), ("memory", 1 << 40))
    )
    profile = dataclasses.replace(MACHINE.profile, levels=levels, target=TARGET.with_threads(2))
    machine = dataclasses.replace(MACHINE, profile=profile, target=TARGET.with_threads(2))
    found = [level_of(machine, nbytes).name for nbytes in (2, 3, 20, 21, 100, 101)]
    assert found == ["L1", "L2", "L2", "L3", "L3", "memory"]


def test_tiles_with_hardly_enough_sums_wait_for_some() -> None:
    """By the tables, 8 multiply-adds are under way at a time."""
    points = np.array([4.0, 6.0, 12.0])
    late = outer_product_cycles(MACHINE, points, np.full(3, 2.0), 1.0) / (2 * points) - 1
    assert 0.1 < late[0] < 0.15
    assert late[0] > 4 * late[1] > 16 * late[2] > 0


def test_a_tail_waits_where_its_sums_do_not_hide_the_latency() -> None:
    """Of 9 points in twos and vectors of four, the last has 4 sums where 8 hide the latency."""
    points, vectors = np.array([2.0, 2.0, 3.0, 5.0]), np.array([4.0, 8.0, 1.0, 2.0])
    late = tail_latency(MACHINE, np.full(4, 9.0), points, vectors)
    assert late.tolist() == pytest.approx([1 + 1 / 9, 1.0, 1.0, 1.0])
