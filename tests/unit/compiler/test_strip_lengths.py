"""Lengths of strips: the least sizes have their own, and a strip's start is the machine's."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.compiler.strip_lengths import (
    FURTHER,
    MOST,
    least_values,
    strip_lengths,
    strips_at,
)
from autotune.machine import Machine
from autotune.sizes import symbol
from autotune.target import host_target
from autotune.types import Task
from tests.unit.codegen.kernels import node, task, value

N, H, W = symbol("N", 1, 4), symbol("H", 2, 200), symbol("W", 2, 200)
COUNT = 12


def product(*places: int) -> Task:
    """Of 64 channels."""
    return task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (*places, 64)),
        value("c0", (64, 64)),
        value("o0", (*places, 64)),
    )


def test_few_places_have_a_strip_of_their_number() -> None:
    """Lengths that are chosen for sizes up to 40,000 alone leave some of them without."""
    machine = Machine.of(host_target())
    lengths = strip_lengths(product(H * W), COUNT, machine)
    assert COUNT < len(lengths) <= COUNT + FURTHER
    for places in (4, 6, 9):
        best = min(-(-places // n) * n for (n,) in lengths if n <= places)
        assert best <= MOST * (places + 1)


def test_sizes_grow_by_themselves_and_two_together() -> None:
    found = least_values((H, W, N))
    assert {"N": 1, "H": 2, "W": 3} in found
    assert {"N": 1, "H": 5, "W": 5} in found
    assert {"N": 3, "H": 4, "W": 2} in found
    assert all(values["N"] <= 4 for values in found)
    assert {"N": 2, "H": 3, "W": 3} not in found


@pytest.mark.parametrize("clock", [0.5, 2.0])
def test_a_machine_of_another_clock_has_the_same_strips(clock: float) -> None:
    """What a strip begins with is so many cycles, as what it computes."""
    machine = Machine.of(host_target())
    profile = machine.profile
    levels = tuple(
        dataclasses.replace(level, load_bytes_per_s=level.load_bytes_per_s * clock)
        for level in profile.levels
    )
    other = dataclasses.replace(profile, peak_flops=profile.peak_flops * clock, levels=levels)
    found = product(N, H, W)
    scaled = Machine.of(host_target(), other)
    assert strip_lengths(found, COUNT, scaled) == strip_lengths(found, COUNT, machine)
    assert strips_at(found, (1, 1, 1)).min() >= 4
