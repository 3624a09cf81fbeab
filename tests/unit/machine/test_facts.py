"""What a prior asks of a machine: measured where it was, by the tables where it was not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.machine import Machine
from autotune.machine.profile import DeviceProfile
from autotune.target import load_target
from tests.unit.machine.samples import FACTS, KIB, MIB, PROFILE, TARGET

MEASURED = Machine.of(TARGET, PROFILE)
NOMINAL = Machine.of(TARGET)


def test_bytes_stream_as_fast_as_their_footprint_allows() -> None:
    assert MEASURED.stream_s(4e11, 16 * KIB) == pytest.approx(1.0)
    assert MEASURED.stream_s(3e10, 16 * MIB) == pytest.approx(1.0)
    many = MEASURED.stream_s(np.array([4e11, 3e10]), np.array([16.0 * KIB, 16.0 * MIB]))
    assert many.tolist() == pytest.approx([1.0, 1.0])


def test_cores_share_memory_but_not_their_own_caches() -> None:
    alone, both = (MEASURED.stream_s(1e9, 256 * MIB, cores) for cores in (1, 2))
    assert both == pytest.approx(1e9 / 1.5e10)
    assert alone == pytest.approx(1e9 / 1e10)
    assert MEASURED.stream_s(1e9, 2 * MIB, 2) == pytest.approx(1e9 / 4e11)


def test_the_fastest_instruction_of_a_kind_is_found_and_what_is_not_there_is_none() -> None:
    fastest = MEASURED.arithmetic("bfloat16")
    assert fastest is not None
    assert fastest.instruction == "tdpbf16ps"
    narrow = MEASURED.arithmetic("float32", 32)
    assert narrow is not None
    assert narrow.multiply_adds_per_s == 6.4e10
    assert MEASURED.arithmetic("int8") is None
    assert MEASURED.arithmetic("float32", 16) is None


def test_effective_sizes_take_the_place_of_believed_ones() -> None:
    assert MEASURED.cache_bytes(1) == TARGET.l1_bytes
    assert NOMINAL.cache_bytes(2) == int(TARGET.l2_bytes * NOMINAL.cpu.own_share_of_l2)


def test_waits_are_interpolated_and_unknown_ones_are_none() -> None:
    assert MEASURED.latency_s(8 * KIB) == pytest.approx(1.2e-9)
    assert NOMINAL.latency_s(8 * KIB) is None


def test_prefetches_hide_nothing_of_no_waiting() -> None:
    (runs,) = FACTS.scattered
    assert dataclasses.replace(runs, far_s=runs.near_s).hidden == 0.0
    assert dataclasses.replace(runs, prefetched_s=0.0).hidden == 1.0


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "cortex-a72", "rpi4", "sm_80"])
def test_a_machine_that_measured_nothing_answers_by_the_tables(name: str) -> None:
    machine = Machine.of(load_target(name))
    times = [float(machine.stream_s(1e6, size)) for size in (8 * KIB, 256 * KIB, 1 << 30)]
    assert times == sorted(times)
    found = machine.arithmetic("float32")
    assert found is not None
    assert 2 * found.multiply_adds_per_s == machine.profile.peak_flops
    assert machine.arithmetic("float16") is None


def test_a_wide_machine_has_the_products_that_its_features_name() -> None:
    target = dataclasses.replace(TARGET, features=f"{TARGET.features},+avx512bf16,+avx512vnni")
    machine = Machine.of(target, dataclasses.replace(bare(), target=target))
    rates = [machine.arithmetic(kind) for kind in ("float32", "bfloat16", "int8")]
    assert [r and r.multiply_adds_per_s / 1.2e11 for r in rates] == [1.0, 2.0, 4.0]


def bare() -> DeviceProfile:
    return dataclasses.replace(PROFILE, facts=None)


def test_a_processor_is_named_by_what_is_known_of_it() -> None:
    assert FACTS.processor.name == "GenuineIntel-6-173-x"
