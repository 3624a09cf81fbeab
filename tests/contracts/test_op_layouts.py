"""Every op's kernel where its values lie in any order of dimensions, with gaps between elements:
by LLVM; by C, OpenCL and on an emulated GPU those that move elements, and the others with
--run-slow."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import cost_model
from autotune.machine import Machine
from autotune.ops import OPS
from autotune.program.ir import FUNCTIONS, Program
from autotune.schedule import apply_schedule
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Array, Task
from search_spaces.rules import rule_for
from tests.contracts.case import Case, in_other_orders, single_task
from tests.contracts.op_cases import CASES
from tests.emulator import run_emulated
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import assert_close, run_kernel

CPU_ONLY = {"to_float16"}
"""What only GPUs have is left to their own suites."""
NAMES = sorted(set(CASES) - CPU_ONLY)
MOVING = sorted(n for n in NAMES if OPS.get(n).kind in ("view", "data"))
OTHERS = sorted(set(NAMES) - set(MOVING) - set(FUNCTIONS) | {"add", "where"})
DEVICES = ["c", "opencl", "sm_80"]


def computed(task: Task, program: Program, target: Target, arrays: dict[str, Array]) -> Array:
    if target.kind == "cuda":
        return run_emulated(program, target, arrays)
    return run_kernel(task, program, target, arrays)


def check(op: str, target: Target, examples: int) -> None:
    def holds(case: Case, number: int) -> None:
        task = in_other_orders(single_task(case), number)
        arrays = random_inputs(task, number)
        rule = rule_for(task, target)
        schedule = rule.schedule(task, target, cost_model.default(task, Machine.of(target), rule))
        program = apply_schedule(build_program(task), schedule)
        verify(program)
        want = evaluate_task(task, arrays)
        assert_close(computed(task, program, target, arrays), want, 1e-4)

    limits = settings(
        max_examples=examples, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    limits(given(case=CASES[op], number=st.integers(0, 1000))(seed(0)(holds)))()


@pytest.mark.parametrize("op", NAMES)
def test_kernels_take_any_layout(op: str) -> None:
    check(op, host_target(1), 25 if op in MOVING else 1 if op in FUNCTIONS else 4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", ["gather", "transpose"])
def test_other_backends_move_elements_of_any_layout(op: str, device: str) -> None:
    check(op, load_target(device), 2)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", sorted({*MOVING, *OTHERS}))
def test_other_backends_take_any_layout(op: str, device: str) -> None:
    check(op, load_target(device), 3)
