"""A core's speeds follow from what was measured on it: the tables' on the machine that these are
of, and another machine's on that one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from autotune.machine import Machine
from autotune.machine.curves import value_at
from autotune.machine.facts import MachineFacts, Scattered
from autotune.machine.measured import L3_STREAM_VECTORS, measured_speeds
from autotune.machine.profile import DeviceProfile
from autotune.machine.speeds import CpuSpeeds, shipped_speeds
from autotune.target import load_target

MACHINES = Path(__file__).parents[3] / "benchmarks" / "data" / "machines"
TABLE, _ = shipped_speeds()


def profile(name: str) -> DeviceProfile:
    return DeviceProfile.from_json(json.loads((MACHINES / f"{name}.json").read_text()))


def speeds(name: str) -> CpuSpeeds:
    found = profile(name)
    return measured_speeds(found.target, found, TABLE)


def test_where_the_tables_are_from_they_follow_from_what_is_measured() -> None:
    found, known = speeds("zen4"), profile("zen4")
    # Of the last cache, a virtual machine has what its neighbours leave, and so it is with the
    # other core's.
    shared = {
        "own_share_of_l3", "own_caches_in_l3", "other_core_dirty_bytes_per_cycle",
        "l3_stream_bytes_per_cycle",
    }  # fmt: skip
    for field in dataclasses.fields(CpuSpeeds):
        if field.name not in shared | {"paired_line_waste"}:
            got, told = getattr(found, field.name), getattr(TABLE, field.name)
            assert got == pytest.approx(told, rel=0.25), field.name
    # Loads in order get more from there than comes in beside arithmetic; the table, for machines
    # that nobody measured, has less.
    assert known.facts is not None
    loads = value_at(known.facts.load_curve, 8 << 20)
    rate = known.peak_flops / (2 * known.target.lanes())
    most = L3_STREAM_VECTORS * known.target.vector_bytes
    assert found.l3_stream_bytes_per_cycle == pytest.approx(most)
    assert loads / rate > 1.5 * most
    assert found.l3_stream_bytes_per_cycle > TABLE.l3_stream_bytes_per_cycle


def test_another_core_has_its_own() -> None:
    found = speeds("granite_rapids")
    assert found.multiply_adds_per_clock == pytest.approx(2.0)
    assert (found.additions_beside, found.l1_ways) == (0.0, 12)
    assert found.l2_store_bytes_per_cycle < TABLE.l2_store_bytes_per_cycle / 3
    # Loads in order get 4 bytes a cycle of its last cache: operands get no more, and no less.
    assert found.l3_stream_bytes_per_cycle == pytest.approx(4.0, rel=0.1)
    assert found.memory_stream_bytes_per_cycle < found.l3_stream_bytes_per_cycle
    # 128 MiB of the 480 that the system tells of.
    assert found.own_share_of_l3 == pytest.approx(0.75 * 128 / 480, rel=0.5)
    assert found.own_share_of_l2 == TABLE.own_share_of_l2


def test_without_facts_there_are_the_tables() -> None:
    known = profile("zen4")
    plain = dataclasses.replace(known, facts=None)
    assert measured_speeds(known.target, plain, TABLE) is TABLE
    assert Machine.of(known.target, plain).cpu is TABLE
    assert Machine.of(known.target, known).cpu != TABLE


@pytest.mark.parametrize("left_out", [f.name for f in dataclasses.fields(MachineFacts)])
def test_what_was_not_measured_is_the_tables(left_out: str) -> None:
    known = profile("zen4")
    assert known.facts is not None
    field = next(f for f in dataclasses.fields(MachineFacts) if f.name == left_out)
    if field.default is dataclasses.MISSING:
        return  # a machine always has a processor, and cores
    less = dataclasses.replace(known.facts, **{left_out: field.default})
    found = measured_speeds(known.target, dataclasses.replace(known, facts=less), TABLE)
    for each in dataclasses.fields(CpuSpeeds):
        value = getattr(found, each.name)
        assert value >= 0
        assert np.isfinite(value)


def test_a_core_without_a_shared_cache() -> None:
    known = profile("zen4")
    target = dataclasses.replace(load_target("x86-64-v4"), l3_bytes=0)
    found = measured_speeds(target, known, TABLE)
    assert found.l3_stream_bytes_per_cycle == found.memory_stream_bytes_per_cycle
    assert found.own_share_of_l3 == TABLE.own_share_of_l3


def test_short_products_are_as_fast_as_they_were_measured() -> None:
    known = profile("zen4")
    assert known.facts is not None
    machine = Machine.of(known.target, known)
    assert machine.products_per_lane("bf16") == pytest.approx(2.0, rel=0.1)
    assert machine.products_per_lane("int8") == pytest.approx(4.0, rel=0.1)
    slow = tuple(
        dataclasses.replace(row, multiply_adds_per_s=row.multiply_adds_per_s / 4)
        if row.kind == "bfloat16" else row for row in known.facts.arithmetic
    )  # fmt: skip
    slower = dataclasses.replace(known, facts=dataclasses.replace(known.facts, arithmetic=slow))
    found = Machine.of(known.target, slower)
    assert found.products_per_lane("bf16") == pytest.approx(0.5, rel=0.1)
    assert found.products_per_lane("direct") == 1.0


def test_what_arithmetic_hides_of_a_stream_follows_from_both_together() -> None:
    known = profile("zen4")
    assert known.facts is not None
    alone_s = 64 / known.facts.load_curve[-1][1]
    size = known.facts.load_curve[-1][0]

    def found(far_s: float, prefetched_s: float) -> CpuSpeeds:
        row = Scattered(footprint=size, near_s=alone_s, far_s=far_s, prefetched_s=prefetched_s)
        facts = dataclasses.replace(known.facts, in_order=(row,))
        there = dataclasses.replace(known, facts=facts)
        return measured_speeds(known.target, there, TABLE)

    one_by_one = found(2 * alone_s, alone_s)
    assert one_by_one.hidden_stream == pytest.approx(0.0)
    assert one_by_one.hidden_asked_stream == pytest.approx(1.0)
    worse = found(2.5 * alone_s, 2.6 * alone_s)
    assert worse.hidden_stream == worse.hidden_asked_stream == pytest.approx(-0.5)
    assert speeds("zen4").hidden_stream == TABLE.hidden_stream


def test_code_for_any_processor_finds_the_caches_of_the_machine() -> None:
    known = profile("emerald_rapids_avx2")
    assert known.facts is not None
    machine = Machine.of(known.target, known)
    assert machine.target.l2_bytes == 256 << 10  # what any processor with AVX2 has
    assert (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes) == (48 << 10, 2 << 20, 260 << 20)
    assert (machine.cpu.l1_ways, machine.cpu.l1_way_bytes) == (12, 4096)
    assert machine.cpu.own_share_of_l3 < 0.75
    blind = dataclasses.replace(known, facts=dataclasses.replace(known.facts, caches=()))
    assert Machine.of(known.target, blind).l2_bytes == 256 << 10
    # By 256 KiB, half of what lies in the L2 cache would come from "the last one".
    blind_l3 = Machine.of(known.target, blind).cpu.l3_pass_bytes_per_cycle
    assert blind_l3 > 2 * machine.cpu.l3_pass_bytes_per_cycle
