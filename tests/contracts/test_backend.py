"""What every backend gives: object code for every shipped CPU, kernels and entries that run."""

from __future__ import annotations

import ctypes
import dataclasses
import struct

import llvmlite.binding as llvm
import numpy as np
import pytest

import cost_model
from autotune.codegen import BACKENDS, DEVICE_KINDS, Backend, EntryCall
from autotune.codegen.loader import load
from autotune.errors import BuildError
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.schedule import apply_schedule
from autotune.target import Target, host_target, load_target, target_names
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.needs import require_for
from tests.unit.codegen.kernels import assert_close, conv_relu, matmul, run_kernel, unary

MACHINES = {"x86_64": 62, "aarch64": 183, "armv7": 40, "riscv64": 243}
"""ELF's e_machine by architecture."""
CPU_TARGETS = [
    name
    for name in target_names()
    if (target := load_target(name)).kind == "cpu" and target.triple.split("-")[0] in MACHINES
]
"""Those whose objects are ELF; what WebAssembly's do, `test_wasm.py` holds."""
NEEDS = {"x86-64-v3": ("avx2", "fma"), "x86-64-v4": ("avx512f", "avx512vl"), "cortex-a72": ()}
HERE = llvm.get_host_cpu_features()
RUNS_HERE = [
    name
    for name, flags in NEEDS.items()
    if flags and llvm.get_process_triple().startswith("x86_64") and all(HERE.get(f) for f in flags)
]
BACKEND_PARTS = BACKENDS.parts()
CPU_PARTS = [b for b in BACKEND_PARTS if b.name not in DEVICE_KINDS]
PAIRS = [
    (backend, name)
    for backend in CPU_PARTS
    for name in CPU_TARGETS
    if backend.name != "c" or load_target(name).triple.startswith(("x86_64", "aarch64"))
]
"""Backends and what they build for here: C compilers for other machines are not asked for."""
TASKS = [conv_relu(), matmul(7, 13, 33), unary("softmax", (3, 37), axis=-1)]


def scheduled(made: Task, target: Target) -> Program:
    rule = rule_for(made, target)
    schedule = rule.schedule(made, target, cost_model.default(made, Machine.of(target), rule))
    return apply_schedule(build_program(made), schedule)


def require_built_by(backend: Backend, target: Target) -> None:
    """Skip the test where the backend's compiler for the target is missing."""
    if backend.name == "c":
        require_for(dataclasses.replace(target, kind="c"))


def named(made: Task) -> str:
    return made.nodes[0].op


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("backend", "name"), PAIRS, ids=lambda v: getattr(v, "name", v))
def test_objects_are_for_the_target_s_machine(backend: Backend, name: str, threads: int) -> None:
    target = load_target(name, threads)
    require_built_by(backend, target)
    machine = MACHINES[target.triple.split("-")[0]]
    for made in TASKS:
        code = backend.build(scheduled(made, target), target, "kernel").code
        assert code[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", code, 18)[0] == machine


@pytest.mark.parametrize("name", RUNS_HERE)
@pytest.mark.parametrize("made", TASKS, ids=named)
def test_kernels_of_shipped_targets_run_here(made: Task, name: str) -> None:
    target = load_target(name)
    arrays = random_inputs(made, 0)
    got = run_kernel(made, scheduled(made, target), target, arrays)
    assert_close(got, evaluate_task(made, arrays), 1e-4)


@pytest.mark.parametrize("backend", BACKEND_PARTS, ids=lambda b: b.name)
def test_source_and_code_are_the_same_every_time(backend: Backend) -> None:
    target = host_target()
    require_built_by(backend, target)
    program = scheduled(conv_relu(), target)
    first, second = (backend.source(program, target, "k") for _ in range(2))
    assert first == second
    assert backend.build(program, target, "k") == backend.build(program, target, "k")


@pytest.mark.parametrize("backend", CPU_PARTS, ids=lambda b: b.name)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_entry_calls_kernels_in_order(backend: Backend, threads: int) -> None:
    kind = "c" if backend.name == "c" else "cpu"
    target = dataclasses.replace(host_target(threads), kind=kind)
    require_for(target)
    made = unary("neg", (40,))
    built = backend.build(scheduled(made, target), target, "negate")
    calls = (
        EntryCall(symbol="negate", args=((0, 0), (1, 160), (2, 0))),
        EntryCall(symbol="negate", args=((1, 160), (1, 0), (2, 0))),
    )
    library = load([built.code, backend.build_entry(calls, target, "model")], target)
    x, memory = np.arange(40, dtype=np.float32), np.zeros(80, np.float32)
    workspace = np.zeros(built.workspace_bytes + 64, np.uint8)
    bases = (ctypes.c_void_p * 3)(x.ctypes.data, memory.ctypes.data, workspace.ctypes.data)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("model"))(bases)
    np.testing.assert_array_equal(memory, np.concatenate([x, -x]))


def test_a_library_names_the_function_it_lacks() -> None:
    target = host_target()
    built = BACKENDS.get("llvm").build(scheduled(matmul(), target), target, "kernel")
    with pytest.raises(BuildError, match="no function other in the loaded objects"):
        load([built.code], target).address("other")


def test_an_unknown_machine_is_a_build_error() -> None:
    target = host_target()
    unknown = Target.from_json({**target.to_json(), "triple": "pdp11-dec-unix"})
    with pytest.raises(BuildError, match="no code generator for pdp11"):
        BACKENDS.get("llvm").build(scheduled(matmul(), target), unknown, "kernel")
