"""Curves over footprints: values between points, and how much of a cache is really there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from autotune.machine.curves import Curve, effective_sizes, falling, rising, value_at, values_at

KIB, MIB = 1 << 10, 1 << 20
ZEN4: Curve = tuple(
    (size, speed * 1e9)
    for size, speed in (
        (8 * KIB, 223.0), (16 * KIB, 222.1), (24 * KIB, 222.0), (32 * KIB, 221.0),
        (48 * KIB, 122.0), (128 * KIB, 117.8), (512 * KIB, 117.4), (768 * KIB, 106.7),
        (1 * MIB, 98.7), (2 * MIB, 98.5), (4 * MIB, 91.8), (8 * MIB, 89.0), (12 * MIB, 82.2),
        (16 * MIB, 79.8), (24 * MIB, 67.0), (32 * MIB, 39.1), (48 * MIB, 33.7), (128 * MIB, 33.7),
    )
)  # fmt: skip
"""Bytes a second of loads on a core of a virtual machine: a last cache shared with strangers."""
ZEN4_LATENCY: Curve = tuple(
    (size, ns * 1e-9)
    for size, ns in (
        (16 * KIB, 1.1), (32 * KIB, 1.2), (64 * KIB, 3.8), (256 * KIB, 3.8), (384 * KIB, 4.4),
        (512 * KIB, 4.8), (768 * KIB, 6.3), (1 * MIB, 7.9), (2 * MIB, 11.4), (4 * MIB, 13.9),
        (8 * MIB, 15.1), (16 * MIB, 19.0), (32 * MIB, 30.8), (64 * MIB, 107.0), (128 * MIB, 150.0),
    )
)  # fmt: skip
ZEN4_BELIEVED = (32 * KIB, 1 * MIB, 32 * MIB)
SWEEP = Path(__file__).parent / "granite_rapids_sweep.txt"
GRANITE_BELIEVED = (48 * KIB, 2 * MIB, 480 * MIB)


def recorded(what: str) -> Curve:
    """A curve of the sweep that was recorded on a Granite Rapids: "best" in GB/s, "latency" in
    nanoseconds."""
    unit = 1e9 if what == "best" else 1e-9
    rows = re.findall(rf"(\d+) MB {what} ([\d.]+)", SWEEP.read_text(encoding="utf-8"))
    return tuple((int(size) * MIB, float(value) * unit) for size, value in rows)


def test_a_vms_last_cache_is_as_large_as_its_curve_says() -> None:
    l1, l2, l3 = effective_sizes(recorded("best"), GRANITE_BELIEVED, recorded("latency"))
    assert (l1, l2) == GRANITE_BELIEVED[:2]  # the sweep begins at 1 MB, and drops behind 2
    assert 96 * MIB <= l3 <= 160 * MIB


def test_caches_that_are_shared_with_strangers_are_smaller() -> None:
    l1, l2, l3 = effective_sizes(ZEN4, ZEN4_BELIEVED, ZEN4_LATENCY)
    assert l1 == 32 * KIB
    assert 384 * KIB < l2 < 768 * KIB  # bandwidth hardly tells it from the third, latency does
    assert 12 * MIB < l3 < 28 * MIB


def test_without_latencies_a_level_as_fast_as_the_next_is_believed() -> None:
    assert effective_sizes(ZEN4, ZEN4_BELIEVED)[1] == 1 * MIB


def test_a_quiet_machine_has_what_it_says() -> None:
    curve = ((16 * KIB, 9.0), (32 * KIB, 9.0), (64 * KIB, 5.0), (MIB, 5.0), (2 * MIB, 1.0))
    assert effective_sizes(curve, (32 * KIB, MIB, 0)) == (32 * KIB, MIB, 0)


def test_what_no_curve_reaches_is_believed() -> None:
    assert effective_sizes((), ZEN4_BELIEVED) == ZEN4_BELIEVED
    assert effective_sizes(ZEN4[:4], ZEN4_BELIEVED) == ZEN4_BELIEVED


def test_a_point_that_was_disturbed_makes_no_cache_smaller() -> None:
    place = next(n for n, (size, _) in enumerate(ZEN4) if size == 4 * MIB)
    spoilt = (*ZEN4[:place], (4 * MIB, 40e9), *ZEN4[place + 1 :])
    sizes = (effective_sizes(c, ZEN4_BELIEVED, ZEN4_LATENCY)[2] for c in (ZEN4, spoilt))
    assert abs(1 - next(sizes) / next(sizes)) < 0.1


def test_more_data_are_never_faster_nor_nearer() -> None:
    points = ((1, 3.0), (2, 1.0), (4, 2.0), (8, 0.5))
    assert falling(points) == ((1, 3.0), (2, 2.0), (4, 2.0), (8, 0.5))
    assert rising(points) == ((1, 0.5), (2, 0.5), (4, 0.5), (8, 0.5))


def test_values_between_points_lie_on_a_line_of_logarithms() -> None:
    points = ((4, 100.0), (16, 25.0))
    assert value_at(points, 8) == pytest.approx(50.0)
    assert values_at(points, np.array([1.0, 4.0, 16.0, 64.0])).tolist() == pytest.approx(
        [100.0, 100.0, 25.0, 25.0]
    )
    assert value_at(((4, 0.0), (16, 1.0)), 8) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="at least one point"):
        value_at((), 8)
