"""What every op must hold: its expression is its reference, as loops and at points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from autotune.ops import OPS
from autotune.program.ir import FUNCTIONS
from autotune.program.text import print_program
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_points, evaluate_task
from autotune.tasks.inputs import random_inputs, sample_points
from tests.contracts.case import Case, single_task
from tests.contracts.op_cases import CASES
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

_MANY = ("conv2d", "matmul", "max_pool2d", "avg_pool2d", "resize", "reshape")


def _examples(op: str) -> int:
    return 60 if op in _MANY else 6 if op in FUNCTIONS else 15


def _check(op: str, check: object, examples: int) -> None:
    decorated = settings(max_examples=examples, suppress_health_check=list(HealthCheck))(
        given(case=CASES[op], number=st.integers(0, 1000))(seed(0)(check))
    )  # type: ignore[arg-type]
    decorated()


def test_every_op_has_cases() -> None:
    missing = {op for op in OPS if OPS.get(op).kind != "loop"} - set(CASES)
    assert not missing, "add cases of them to tests/contracts/op_cases.py"
    assert set(CASES) <= set(OPS)


@pytest.mark.parametrize("op", sorted(CASES))
def test_loops_give_the_reference(op: str) -> None:
    def check(case: Case, number: int) -> None:
        task = single_task(case, halo=number % 2 == 0)
        arrays = random_inputs(task, number)
        program = build_program(task)
        verify(program)
        got = run(program, arrays)
        names = task.nodes[0].inputs
        want = OPS.get(op).reference([arrays[n] for n in names], dict(case.attrs))
        assert (got.dtype.name, got.shape) == (want.dtype.name, want.shape)
        _close(got, want, 2e-5)

    _check(op, check, _examples(op))


@pytest.mark.parametrize("op", sorted(CASES))
def test_points_are_those_of_the_whole(op: str) -> None:
    def check(case: Case, number: int) -> None:
        task = single_task(case)
        arrays = random_inputs(task, number)
        points = sample_points(task, number, 20)
        whole = evaluate_task(task, arrays)
        assert whole.shape == task.value("o0").type.shape
        _close(evaluate_points(task, arrays, points), whole[tuple(points.T)], 1e-9)

    _check(op, check, _examples(op))


@pytest.mark.parametrize("op", sorted(set(CASES) - set(FUNCTIONS)))
def test_text_loses_nothing(op: str) -> None:
    def check(case: Case, number: int) -> None:
        program = build_program(single_task(case, halo=number % 2 == 0))
        assert parse_program(print_program(program)) == program

    _check(op, check, 4)


def _close(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    got, want = got.astype(np.float64), want.astype(np.float64)
    largest = float(np.max(np.abs(want[np.isfinite(want)]), initial=1.0))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * largest)
