"""Micro-benchmarks: loops for every instruction set, who the processor is, and, slowly, what they
find on this machine."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest

from autotune.codegen.llvm.backend import compile_text
from autotune.machine.facts import TILE_BYTES, MachineFacts, Scattered
from autotune.machine.files import check_facts
from autotune.measure.facts import texts
from autotune.measure.facts.arithmetic import Registers, configuration, instructions_of, tile_text
from autotune.measure.facts.measure import best_of, measure_facts
from autotune.measure.facts.memory import PIECE_BYTES, largest_bytes, sizes
from autotune.measure.facts.processor import processor_of
from autotune.measure.facts.timing import Loop, least_s, low, rounded
from autotune.measure.throttle import available_cores
from autotune.target import Target, host_target, load_target

X86 = "avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512vnni,+avx512bf16,+avx512fp16"
SAPPHIRE = dataclasses.replace(load_target("x86-64-v4"), features=f"+{X86},-prefer-256-bit")
NEOVERSE = dataclasses.replace(
    load_target("cortex-a72"), cpu="neoverse-v1",
    features="+neon,+dotprod,+bf16,+i8mm,+fullfp16",
)  # fmt: skip
ALDER = dataclasses.replace(load_target("x86-64-v3"), features="+avx2,+fma,+avxvnni")
WORDS = {
    "AMD": "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\nmodel name : AMD EPYC\n"
    "stepping : 1\ncpu MHz : 2596.096\n\nvendor_id : other\n",
    "Arm": "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU variant : 0x1\n"
    "CPU part : 0xd40\nCPU revision : 1\n",
    "nothing": "",
}


def kinds(target: Target) -> set[tuple[str, str, int]]:
    return {(i.kind, i.name, i.vector_bytes) for i in instructions_of(target)}


def test_instructions_are_those_that_the_features_name() -> None:
    assert kinds(load_target("x86-64-v3")) == {
        (kind, name, width)
        for kind, name in (("float32", "fma"), ("float64", "fma"), ("int8", "pmaddwd"))
        for width in (16, 32)
    }
    wide = {(name, kind) for kind, name, width in kinds(SAPPHIRE) if width == 64}
    assert wide == {
        ("fma", "float32"), ("fma", "float64"), ("fma", "float16"), ("dpbf16ps", "bfloat16"),
        ("vpdpbusd", "int8"),
    }  # fmt: skip
    assert {("int8", "vpdpbusd", 16), ("int8", "vpdpbusd", 32)} < kinds(ALDER)
    arm = {(name, kind) for kind, name, _ in kinds(NEOVERSE)}
    assert {("bfdot", "bfloat16"), ("sdot", "int8"), ("smmla", "int8")} < arm


def test_without_a_fused_multiply_add_there_is_no_arithmetic_to_measure() -> None:
    old = dataclasses.replace(load_target("x86-64-v3"), features="+sse2", vector_bytes=16)
    assert not kinds(old)


@pytest.mark.parametrize("target", [SAPPHIRE, NEOVERSE, ALDER], ids=lambda t: t.cpu)
def test_every_chain_is_code_for_its_processor(target: Target) -> None:
    for found in instructions_of(target):
        text = texts.chains_text("f", found.kinds, found.emit, 4, found.declared)
        assert compile_text(text, target)


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "cortex-a72", "rpi4", "riscv64-v"])
def test_loops_through_memory_are_code_for_every_processor(name: str) -> None:
    target = load_target(name)
    lanes = target.lanes()
    for text in (
        texts.clock_text("f"),
        texts.clock_text("f", lanes),
        texts.broadcasts_text("f", lanes),
        texts.gathers_text("f", lanes),
        texts.chase_text("f"),
        texts.meeting_text(),
        texts.PREFETCH + "\n" + texts.runs_text("f", lanes, ahead=texts.AHEAD, each=2),
        *(texts.passes_text("f", target.vector_bytes, m) for m in ("load", "store", "copy")),
    ):
        assert compile_text(text, target)


@pytest.mark.parametrize("instruction", ["tdpbf16ps", "tdpfp16ps", "tdpbusd"])
def test_tiles_are_configured_used_and_released(instruction: str) -> None:
    features = f"{SAPPHIRE.features},+amx-tile,+amx-bf16,+amx-int8,+amx-fp16"
    target = dataclasses.replace(SAPPHIRE, features=features)
    assert compile_text(tile_text("f", instruction, 4), target)
    text = tile_text("f", instruction, 4)
    lines = [n for n in text.splitlines() if "  call" in n]
    assert "ldtilecfg" in lines[0]
    assert "tilerelease" in lines[-1]
    assert sum(instruction in n for n in lines) == 4 * texts.UNROLL


def test_a_configuration_has_eight_tiles_of_sixteen_rows() -> None:
    data = configuration()
    assert data[0] == 1
    assert data[16:32].tolist() == [64, 0] * 8
    assert data[48:56].tolist() == [16] * 8
    assert data.sum() == 1 + 8 * 64 + 8 * 16


@pytest.mark.parametrize(
    ("words", "name"),
    [("AMD", "AuthenticAMD-25-17-1"), ("Arm", "0x41-8-3392-1")],
)
def test_a_processor_is_named_by_family_model_and_stepping(words: str, name: str) -> None:
    assert processor_of(SAPPHIRE, WORDS[words]).name == name


def test_a_processor_that_says_nothing_is_named_by_what_it_can_do() -> None:
    found = processor_of(SAPPHIRE, WORDS["nothing"])
    assert found.name.endswith("-x-x-x")
    assert found.llvm == SAPPHIRE.cpu
    assert {"avx512bf16", "avx512fp16"} < set(found.abilities)
    assert processor_of(SAPPHIRE, WORDS["AMD"]).said_hz == 2596.096e6


def test_footprints_go_from_the_innermost_cache_far_beyond_the_last() -> None:
    target = load_target("x86-64-v4")
    most = largest_bytes(target)
    assert most % PIECE_BYTES == 0
    found = sizes(most)
    assert found[0] < target.l1_bytes
    assert found[-1] >= most // 2
    assert list(found) == sorted(set(found))


def test_the_least_of_many_turns_counts() -> None:
    now = [0.0]
    taken = iter([1e-3] * 3 + [1e-3, 2e-3, 5e-4] + [1e-3] * 99)

    def call(_address: int, rounds: int) -> None:
        now[0] += rounds * next(taken)

    loop = Loop(call, 0)
    loop.rounds = 1
    (each_s,) = least_s({"f": loop}, lambda: now[0], turns=3).values()
    assert loop.rounds == 1
    assert each_s == pytest.approx(5e-4)


def test_figures_are_short_and_neither_lucky_nor_disturbed() -> None:
    assert rounded(123456789.0) == 123500000.0
    assert low([9.0, 1.0, 2.0, 3.0, 4.0], 0.25) == 2.0


def test_of_several_rounds_the_least_disturbed_counts_field_by_field() -> None:
    quiet = {
        "load_curve": ((1, 4.0), (2, 3.0)), "latency_curve": ((1, 1.0), (2, 2.0)),
        "transfer_s": 1.0, "transfer_bytes_per_s": 9.0, "page_curve": (),
        "scattered": (Scattered(footprint=8, near_s=1.0, far_s=5.0, prefetched_s=3.0),),
        "in_order": (Scattered(footprint=8, near_s=1.0, far_s=5.0, prefetched_s=3.0),),
    }  # fmt: skip
    disturbed = {
        "load_curve": ((1, 5.0), (2, 1.0)), "latency_curve": ((1, 3.0), (2, 1.5)),
        "transfer_s": 4.0, "transfer_bytes_per_s": 2.0, "page_curve": (),
        "scattered": (Scattered(footprint=8, near_s=2.0, far_s=4.0, prefetched_s=6.0),),
        "in_order": (Scattered(footprint=8, near_s=2.0, far_s=4.0, prefetched_s=6.0),),
    }  # fmt: skip
    assert best_of([quiet, disturbed]) == {
        "load_curve": ((1, 5.0), (2, 3.0)), "latency_curve": ((1, 1.0), (2, 1.5)),
        "transfer_s": 1.0, "transfer_bytes_per_s": 9.0, "page_curve": (),
        "scattered": (Scattered(footprint=8, near_s=1.0, far_s=4.0, prefetched_s=3.0),),
        "in_order": (Scattered(footprint=8, near_s=1.5, far_s=4.5, prefetched_s=4.5),),
    }  # fmt: skip
    lone = {"transfer_s": None, "transfer_bytes_per_s": None}
    assert best_of([lone, lone]) == lone


@pytest.mark.slow
def test_this_machine_is_measured_within_bounds_of_sense() -> None:
    target, cores = host_target(1), available_cores()
    start = time.process_time()
    facts = measure_facts(target, cores)
    assert time.process_time() - start < 60
    check_facts(facts)
    assert MachineFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts
    assert facts.clock_hz is not None
    assert 1e8 < facts.clock_hz < 1e10
    for row in facts.arithmetic:
        assert row.multiply_adds_per_s > 1e8
        assert row.vector_bytes == TILE_BYTES or 1 <= row.latency_s * facts.clock_hz < 40
    near, far = facts.load_curve[0][1], facts.load_curve[-1][1]
    assert near > far > 1e8
    assert facts.latency_curve[0][1] < facts.latency_curve[-1][1] < 1e-4
    assert (facts.transfer_s is None) == (len(cores) == 1)
    assert len(facts.regions) == (len(cores) > 1) + (len(cores) > 2)


def test_registers_are_as_fast_as_in_their_best_moment() -> None:
    registers = Registers(host_target(1), time.perf_counter)
    first_s = dict(registers.round_s)
    registers.again()
    assert first_s.keys() == registers.round_s.keys()
    assert all(registers.round_s[name] <= first_s[name] for name in first_s)
    disturbed_s = {name: 2 * s for name, s in first_s.items()}
    registers.round_s = disturbed_s
    registers.again()
    assert sum(registers.round_s[name] < s for name, s in disturbed_s.items()) > len(first_s) / 2
