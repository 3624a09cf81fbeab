"""Every op through the backends that have no suite of their own: C by the system's compiler, and
OpenCL by whatever device is here (PoCL where there is no GPU). A few ops by default, all with
--run-slow."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import cost_model
from autotune.machine import Machine
from autotune.schedule import apply_schedule
from autotune.target import load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from search_spaces.rules import rule_for
from tests.contracts.case import Case, single_task
from tests.contracts.op_cases import CASES
from tests.needs import param
from tests.unit.codegen.kernels import assert_close, run_kernel

FAST = ("conv2d", "gather", "leaky_relu", "matmul", "max_pool2d", "softmax")
SLOW = sorted(set(CASES) - {*FAST, "to_float16"})  # which only CUDA has
EXAMPLES = 2
BACKENDS = pytest.mark.parametrize("backend", [param("c"), param("opencl")])


def check(op: str, backend: str, examples: int) -> None:
    target = load_target(backend)

    def holds(case: Case, number: int) -> None:
        task = single_task(case, halo=number % 2 == 0)
        arrays = random_inputs(task, number)
        rule = rule_for(task, target)
        schedule = rule.schedule(task, target, cost_model.default(task, Machine.of(target), rule))
        program = apply_schedule(build_program(task), schedule)
        assert_close(run_kernel(task, program, target, arrays), evaluate_task(task, arrays), 1e-4)

    given_cases = given(case=CASES[op], number=st.integers(0, 1000))
    limits = settings(
        max_examples=examples, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    limits(given_cases(seed(0)(holds)))()


@BACKENDS
@pytest.mark.parametrize("op", FAST)
def test_common_ops(op: str, backend: str) -> None:
    check(op, backend, EXAMPLES)


@pytest.mark.slow
@BACKENDS
@pytest.mark.parametrize("op", SLOW)
def test_all_other_ops(op: str, backend: str) -> None:
    check(op, backend, EXAMPLES)
