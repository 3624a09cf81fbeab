"""Targets from names, files and sysfs."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from autotune import caches
from autotune.codegen.llvm.backend import target_machine
from autotune.errors import TargetError
from autotune.target import (
    host_features,
    host_target,
    load_target,
    machine_of,
    parse_target,
    print_target,
    target_names,
)


def test_this_host_describes_itself() -> None:
    target = load_target("cpu", threads=2)
    assert target == host_target(2)
    assert target.name == "cpu"
    assert target.threads == 2
    assert target.cores == len(os.sched_getaffinity(0))
    assert target.vector_bytes in (16, 32, 64)
    assert target.key.endswith("-t2")


def test_present_and_absent_features_are_listed_and_wide_vectors_are_used() -> None:
    flags = {"avx512f": True, "amx-tile": False, "avx2": True}
    assert host_features(flags) == "-amx-tile,+avx2,+avx512f,-prefer-256-bit"
    assert host_features({"neon": True, "sve": False}) == "-sve,+neon"


def test_code_has_what_the_host_has_whatever_its_name_stands_for() -> None:
    """A hypervisor that hides AVX-512 leaves the family and model by which LLVM names the CPU."""
    flags = {**dict.fromkeys(("avx", "avx2", "fma"), True), "avx512f": False, "avx512vl": False}
    target = dataclasses.replace(
        load_target("x86-64-v3"), cpu="znver4", features=host_features(flags)
    )
    text = """define <8 x float> @f(<8 x float> %a, <8 x float> %b) {
  %c = fcmp olt <8 x float> %a, %b
  %s = select <8 x i1> %c, <8 x float> %a, <8 x float> zeroinitializer
  ret <8 x float> %s
}"""
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    machine = target_machine(target.triple, target.cpu, target.features)
    assert "%k1" not in str(machine.emit_assembly(module))


def test_the_shipped_targets_cover_avx2_avx512_and_neon() -> None:
    assert target_names()[0] == "cpu"
    families = {load_target(name).family for name in target_names()}
    assert {"cpu-x86_64-v256", "cpu-x86_64-v512", "cpu-aarch64-v128"} <= families


def test_an_unknown_target_lists_what_exists() -> None:
    with pytest.raises(TargetError, match=r"unknown target 'x87'.*cortex-a72.*x86-64-v3"):
        load_target("x87")


def test_a_file_of_the_user_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(print_target(load_target("x86-64-v3")).replace("x86-64-v3", "mine"))
    assert load_target(str(path), threads=3).name == "mine"
    assert load_target(str(path), threads=3).threads == 3


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"none\.toml: No such file"):
        load_target(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("\nturbo = 1\n", "unknown key turbo; known: name, kind"),
        ("\ncores = = 2\n", "not TOML"),
        ("\nthreads = 0\n", "threads must be positive"),
        ('\nthreads = "2"\n', "threads must be an integer, got '2'"),
        ("\nthreads = true\n", "threads must be an integer, got True"),
    ],
)
def test_a_wrong_key_or_value_is_named(change: str, message: str) -> None:
    text = "\n".join(
        line
        for line in print_target(load_target("cortex-a72")).splitlines()
        if not line.startswith("threads")
    )
    with pytest.raises(TargetError, match=message):
        parse_target(text + change, "mine.toml")


def test_a_missing_key_is_named() -> None:
    text = print_target(load_target("cortex-a72")).replace('cpu = "cortex-a72"\n', "")
    with pytest.raises(TargetError, match="missing key cpu"):
        parse_target(text)


def test_a_kind_without_a_backend_is_refused() -> None:
    text = print_target(load_target("cortex-a72")).replace('kind = "cpu"', 'kind = "fpga"')
    with pytest.raises(TargetError, match="'fpga'"):
        parse_target(text)


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("amd64-pc-linux-gnu", "x86_64"),
        ("arm64", "aarch64"),
        ("armv7l", "arm"),
        ("armv7-unknown-linux-gnueabihf", "arm"),
        ("riscv64gc-unknown-linux-gnu", "riscv64"),
        ("x86_64", "x86_64"),
    ],
)
def test_triples_and_systems_name_a_machine_alike(name: str, machine: str) -> None:
    assert machine_of(name) == machine


def test_threads_must_be_positive() -> None:
    with pytest.raises(TargetError, match="threads"):
        load_target("cpu", threads=0)


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    entries = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"),
               ("3", "Unified", "broken")]  # fmt: skip
    for number, (level, kind, size) in enumerate(entries):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert caches.sizes(tmp_path) == {1: 48 << 10, 2: 2 << 20}
    assert caches.sizes(tmp_path / "nothing") == {}


def test_a_number_after_a_gpu_tells_which_one() -> None:
    second, first = load_target("sm_80:1"), load_target("sm_80")
    assert (second.device, first.device) == (1, 0)
    assert second.key == first.key
    assert first.within(second) == second, "what a board serves, its clients need not know"
    with pytest.raises(TargetError, match="x86-64-v3 has no devices to choose from"):
        load_target("x86-64-v3:0")
