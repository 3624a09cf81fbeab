"""What every shipped target promises."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from autotune.systems import code_triple
from autotune.target import Target, load_target, parse_target, print_target, target_names


@pytest.mark.parametrize("name", target_names())
def test_printing_and_parsing_gives_the_same_target(name: str) -> None:
    target = load_target(name)
    assert parse_target(print_target(target)) == target
    assert Target.from_json(target.to_json()) == target


@pytest.mark.parametrize("name", target_names())
def test_the_file_s_name_is_the_target_s_name(name: str) -> None:
    assert load_target(name).name == name


@pytest.mark.parametrize("name", [n for n in target_names() if load_target(n).kind == "cpu"])
def test_llvm_knows_the_cpu_and_emits_code_for_it(name: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = load_target(name)
    machine = llvm.Target.from_triple(code_triple(target.triple)).create_target_machine(
        cpu=target.cpu, features=target.features
    )
    module = llvm.parse_assembly("define void @f() { ret void }")
    magic = b"\0asm" if target.triple.startswith("wasm32") else b"\x7fELF"
    assert machine.emit_object(module)[:4] == magic


@pytest.mark.parametrize("name", [n for n in target_names() if load_target(n).kind == "cuda"])
def test_llvm_emits_ptx_for_the_architecture(name: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = load_target(name)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features
    )
    module = llvm.parse_assembly("define void @f() { ret void }")
    assert f".target {target.arch}" in machine.emit_assembly(module)


@pytest.mark.parametrize("name", [n for n in target_names() if load_target(n).is_gpu])
def test_gpus_say_what_a_block_may_hold(name: str) -> None:
    target = load_target(name)
    assert target.max_threads >= 128
    assert target.shared_bytes >= 16 << 10
    assert target.max_threads % target.warp == 0
    assert target.key.startswith(target.kind)
