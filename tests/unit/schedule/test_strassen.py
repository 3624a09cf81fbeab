"""Strassen's algorithm: the sums, the step against the naive loops, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.errors import ScheduleError
from autotune.program.ir import Program
from autotune.program.strassen import DATA, PRODUCTS, RESULT, WEIGHTS, combined_weights, first_uses
from autotune.program.text import print_program
from autotune.schedule import STEPS, apply_schedule
from autotune.target import host_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from search_spaces.rules import rule_for
from tests.interpreter.interp import run as run_program
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import assert_close, node, run_kernel, task, value


def product(*shape: int, transposed: bool = False, halo: bool = False) -> Task:
    """relu(x w + bias), x of shape [..., k], w of [k, n] (or its transpose); shape: ..., k, n."""
    *points, k, n = shape
    weights = (n, k) if transposed else (k, n)
    pads = ((0, 0), *((1, 2) for _ in points[1:]), (0, 0)) if halo else None
    given = value("i0", (*points, k), pads=pads) if pads else value("i0", (*points, k))
    return task(
        [
            node("matmul", "i0 c0", "t0", transpose_b=transposed),
            node("add", "t0 c1", "t1"),
            node("relu", "t1", "o0"),
        ],
        given,
        value("c0", weights),
        value("c1", (n,)),
        value("t0", (*points, n)),
        value("t1", (*points, n)),
        value("o0", (*points, n)),
    )


def conv1x1(*shape: int, stride: int = 1) -> Task:
    """shape: batch, height, width, k, n."""
    batch, height, width, k, n = shape
    out = (batch, -(-height // stride), -(-width // stride), n)
    attrs = {"strides": (stride, stride)}
    return task(
        [node("conv2d", "i0 c0", "t0", **attrs), node("add", "t0 c1", "o0")],
        value("i0", (batch, height, width, k)),
        value("c0", (1, 1, k, n)),
        value("c1", (n,)),
        value("t0", out),
        value("o0", out),
    )


def merged(case: Task, at: str) -> Program:
    """The naive program with the epilogue in the product's loops."""
    program = build_program(case)
    for name in ("t1",):
        if any(v.name == name for v in case.values):
            program = STEPS.get("inline")(buffer=name).apply(program)
    return STEPS.get("compute_at")(buffer="o0", at=at).apply(program)


def test_seven_products_are_the_product_of_blocks() -> None:
    a, b = np.random.default_rng(0).integers(-9, 9, (2, 2, 2))
    data, weights, result = (np.asarray(m) for m in (DATA, WEIGHTS, RESULT))
    products = np.einsum("ipq,pq->i", data, a) * np.einsum("iqr,qr->i", weights, b)
    np.testing.assert_array_equal(np.einsum("ipr,i->pr", result, products), a @ b)


def test_combined_weights_are_the_sums_of_blocks() -> None:
    w = np.random.default_rng(1).standard_normal((1, 4, 6)).astype(np.float32)
    got = combined_weights(w, 1, 2)
    assert got.shape == (7, 1, 2, 3)
    np.testing.assert_array_equal(got[2], w[:, :2, :3] + w[:, 2:, 3:])
    np.testing.assert_array_equal(got[5], w[:, 2:, :3] - w[:, :2, :3])


def test_a_product_is_the_first_to_use_one_block_at_most() -> None:
    uses = [first_uses(i) for i in range(PRODUCTS)]
    assert max(map(len, uses)) == 1
    assert {block for found in uses for block in found} == {(0, 0), (0, 1), (1, 0), (1, 1)}


CASES = [
    (product(4, 6, 8), "t0_m", "t0_n"),
    (product(4, 6, 8, transposed=True), "t0_m", "t0_n"),
    (product(1, 6, 4, 10), "t0_m", "t0_n"),
    (product(2, 3, 4, 6), "t0_b0", "t0_n"),
    (conv1x1(1, 4, 3, 6, 8), "t0_oh", "t0_oc"),
    (conv1x1(2, 3, 2, 2, 6), "t0_ow", "t0_oc"),
    (conv1x1(1, 7, 5, 2, 6, stride=2), "t0_oh", "t0_oc"),
    (conv1x1(1, 3, 3, 2, 6), "", "t0_oc"),
    (conv1x1(2, 3, 2, 2, 6), "", "t0_oc"),
    (product(5, 6, 8), "", "t0_n"),
]


@pytest.mark.parametrize(("case", "rows", "channels"), CASES)
def test_equals_the_naive_loops(case: Task, rows: str, channels: str) -> None:
    step = STEPS.get("strassen")(buffer="t0", rows=rows, lanes=2)
    program = step.apply(merged(case, channels))
    verify(program)
    assert parse_program(print_program(program)) == program
    arrays = random_inputs(case, 1)
    np.testing.assert_allclose(
        run_program(program, arrays), evaluate_task(case, arrays), atol=1e-4
    )


@pytest.mark.parametrize(("case", "rows", "channels"), CASES)
@pytest.mark.parametrize("fewest", [False, True])
def test_runs_and_panels_equal_the_naive_loops(
    case: Task, rows: str, channels: str, fewest: bool
) -> None:
    *points, n = next(v.type.shape for v in case.values if v.name == "o0")
    halves = -(-math.prod(points) // 2), n // 2
    run, panel = (next(d for d in range(2 - fewest, h + 1) if h % d == 0) for h in halves)
    fields = {"rows": rows, "lanes": 2, "run": run, "panel": panel}
    program = STEPS.get("strassen_runs")(buffer="t0", **fields).apply(merged(case, channels))
    verify(program)
    assert parse_program(print_program(program)) == program
    out = STEPS.get("peel_all")(loop="stra_i").apply(program)
    verify(out)
    assert "select" not in print_program(out).replace("select(0 <= 2*", "")
    arrays = random_inputs(case, 1)
    for made in (program, out):
        np.testing.assert_allclose(
            run_program(made, arrays), evaluate_task(case, arrays), atol=1e-4
        )


def test_runs_are_equal() -> None:
    step = STEPS.get("strassen_runs")
    for run, panel, message in (
        (3, 4, "2 points .* runs of 3"),
        (2, 3, "4 channels .* runs of 3"),
    ):
        with pytest.raises(ScheduleError, match=message):
            step(buffer="t0", rows="t0_m", lanes=2, run=run, panel=panel).apply(
                merged(product(4, 6, 8), "t0_n")
            )


@pytest.mark.parametrize(
    ("case", "rows", "channels", "message"),
    [
        (product(3, 6, 8), "t0_m", "t0_n", "t0_m of 3 iterations has no halves"),
        (product(4, 5, 8), "t0_m", "t0_n", "t0_k of 5 iterations has no halves"),
        (product(4, 6, 7), "t0_m", "t0_n", "t0_n of 7 iterations has no halves"),
        (product(4, 6, 8), "t0_n", "t0_n", "t0_n is no loop over points"),
    ],
)
def test_what_has_no_halves_is_refused(case: Task, rows: str, channels: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        STEPS.get("strassen")(buffer="t0", rows=rows, lanes=2).apply(merged(case, channels))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("case", "algorithm"),
    [
        (product(128, 128, 256), "strassen"),
        (conv1x1(1, 14, 14, 256, 136), "strassen"),
        (product(1, 71, 130, 226), "strassen"),
        (product(128, 128, 256), "strassen_runs"),
        (conv1x1(1, 14, 14, 256, 160), "strassen_runs"),
        (conv1x1(1, 9, 9, 256, 128), "strassen_runs"),
        (product(1, 71, 130, 224), "strassen_runs"),
    ],
)
def test_scheduled_machine_code(case: Task, algorithm: str, threads: int) -> None:
    target = host_target(threads)
    rule = rule_for(case, target)
    space = rule.space(case, target)
    rows = space.sample(np.random.default_rng(0), 1000)
    configs = [c for c in map(space.config, rows) if c["algorithm"] == algorithm]
    arrays = random_inputs(case, 2)
    assert configs
    for config in configs[:: max(1, len(configs) // 4)][:4]:
        program = apply_schedule(build_program(case), rule.schedule(case, target, config))
        verify(program)
        assert_close(run_kernel(case, program, target, arrays), evaluate_task(case, arrays))


def test_strict_accuracy_leaves_it_out() -> None:
    case, target = product(128, 128, 256), host_target().with_accuracy("strict")
    choices = rule_for(case, target).space(case, target).params[0].choices
    assert choices == ("direct",)


def test_halves_that_are_no_panels_have_no_runs() -> None:
    case, target = product(1, 71, 130, 226), host_target()
    space = rule_for(case, target).space(case, target)
    found = {space.config(row)["algorithm"] for row in space.sample(np.random.default_rng(0), 500)}
    assert found == {"direct", "strassen"}
