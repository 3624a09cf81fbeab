"""The rule of everything else: reductions, rows and elementwise chains as whole kernels."""

from __future__ import annotations

import pytest

from autotune.program.build import build_program
from autotune.program.evaluate import evaluate_task
from autotune.program.inputs import random_inputs
from autotune.schedule import apply_schedule
from autotune.target import host_target
from autotune.types import Task
from search_spaces.rules import RULES
from tests.unit.codegen.kernels import assert_close, node, run_kernel, task, unary, value

ROW = 630


def norm_of_everything() -> Task:
    """A layer norm without a loop over rows: nothing but reductions is outermost."""
    return task(
        [node("layer_norm", "i0 c0 c1", "o0", axis=0, epsilon=1e-3)],
        *(value(name, (ROW,)) for name in ("i0", "c0", "c1", "o0")),
    )


def total() -> Task:
    return task(
        [node("reduce_sum", "i0", "o0", axes=(0, 1), keepdims=False)],
        value("i0", (30, 21)),
        value("o0", ()),
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "made", [norm_of_everything(), total(), unary("softmax", (ROW,), axis=0)], ids=lambda t: t.op
)
def test_a_reduction_of_everything_is_right_on_any_threads(made: Task, threads: int) -> None:
    rule, target, arrays = RULES.get("nests"), host_target(threads), random_inputs(made, 0)
    schedule = rule.schedule(made, target, rule.default(made, target))
    program = apply_schedule(build_program(made), schedule)
    assert_close(run_kernel(made, program, target, arrays), evaluate_task(made, arrays), 1e-4)
