"""Naive loops of a task: names, order, padding, scalars."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.program.ir import Alloc, For, Program, walk
from autotune.program.text import print_program
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from tests.interpreter.interp import run
from tests.interpreter.verify import verify
from tests.unit.program import tasks

HALO = ((0, 0), (1, 2), (1, 1), (0, 0))


def _allocs(program: Program) -> list[str]:
    return [s.buffer.name for s in walk(program.body) if isinstance(s, Alloc)]


def _loops(program: Program) -> list[str]:
    return [s.var for s in walk(program.body) if isinstance(s, For)]


def test_params_are_those_of_the_task_with_their_layouts() -> None:
    program = build_program(tasks.conv_relu(HALO))
    assert [b.name for b in program.params] == ["i0", "c0", "o0"]
    assert [(b.constant, b.written) for b in program.params] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert program.params[0].halo == HALO
    assert program.params[0].strides == (7 * 7 * 3, 7 * 3, 3, 1)


def test_loops_are_named_by_tensor_and_axis() -> None:
    names = _loops(build_program(tasks.conv_relu(HALO)))
    assert names[:7] == ["t0_n", "t0_oh", "t0_ow", "t0_oc", "t0_kh", "t0_kw", "t0_ic"]
    assert names[7:] == [f"{t}_d{d}" for t in ("t2", "o0") for d in range(4)]


def test_stages_of_an_op_are_named_with_an_underscore() -> None:
    assert "o0_max_d0" in _loops(build_program(tasks.attention_scores()))


def test_init_and_reduction_share_the_outer_nest() -> None:
    lines = [s.strip() for s in print_program(build_program(tasks.attention_scores())).split("\n")]
    start = lines.index("for t0_n in 7 serial:")
    assert lines[start + 1 : start + 4] == [
        "t0[t0_b0, t0_m, t0_n] = float32(0.0)",
        "for t0_k in 3 serial:",
        "t0[t0_b0, t0_m, t0_n] sum= mul(i0[t0_b0, t0_m, t0_k], i1[t0_b0, t0_n, t0_k])",
    ]


def test_a_halo_is_read_directly() -> None:
    program = build_program(tasks.conv_relu(HALO))
    assert _allocs(program) == ["t0", "t2"]
    assert "i0[t0_n, t0_kh + t0_oh - 1, t0_kw + t0_ow - 1, t0_ic]" in print_program(program)


def test_padding_without_halo_is_a_copy_with_one() -> None:
    program = build_program(tasks.conv_relu())
    assert _allocs(program) == ["t0", "t2", "i0.pad"]
    padded = next(
        s.buffer for s in walk(program.body) if isinstance(s, Alloc) and s.buffer.name == "i0.pad"
    )
    assert padded.shape == (1, 4, 5, 3)
    assert padded.halo == ((0, 0), (1, 1), (1, 1), (0, 0))
    assert padded.strides == (6 * 7 * 3, 7 * 3, 3, 1)


def test_a_halo_too_small_is_no_halo() -> None:
    small = ((0, 0), (1, 0), (1, 1), (0, 0))
    assert "i0.pad" in _allocs(build_program(tasks.conv_relu(small)))


def test_scalars_become_literals() -> None:
    program = build_program(tasks.conv_relu())
    assert "mul(t0[t2_d0, t2_d1, t2_d2, t2_d3], float32(2.0))" in print_program(program)


def test_a_scalar_picks_a_row() -> None:
    made = tasks.task(
        [
            tasks.node("scalar", "", "t0", value=-1, dtype="int64"),
            tasks.node("gather", "i0 t0", "o0", axis=0),
        ],
        [
            tasks.value("i0", (3, 2)),
            tasks.value("t0", (), "int64"),
            tasks.value("o0", (2,)),
        ],
    )
    program = build_program(made)
    assert "o0[o0_d0] = i0[2, o0_d0]" in print_program(program)
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(run(program, {"i0": array}), [4, 5])


def test_a_scalar_output_is_stored() -> None:
    made = tasks.task(
        [tasks.node("scalar", "", "o0", value=3, dtype="int64")], [tasks.value("o0", (), "int64")]
    )
    assert run(build_program(made), {}) == 3


def test_a_whole_reduction_needs_no_loop_around_it() -> None:
    made = tasks.task(
        [tasks.node("reduce_sum", "i0", "o0", axes=(0, 1), keepdims=False)],
        [tasks.value("i0", (2, 3)), tasks.value("o0", ())],
    )
    program = build_program(made)
    verify(program)
    assert run(program, {"i0": np.ones((2, 3), np.float32)}) == 6


@pytest.mark.parametrize(
    "made", [tasks.conv_relu(), tasks.conv_relu(HALO), tasks.conv_conv(), tasks.attention_scores()]
)
def test_loops_give_the_task(made: Task) -> None:
    arrays = random_inputs(made, 3)
    program = build_program(made)
    verify(program)
    np.testing.assert_allclose(
        run(program, arrays), evaluate_task(made, arrays), rtol=1e-4, atol=1e-5
    )
