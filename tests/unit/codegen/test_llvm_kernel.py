"""Machine code against the interpreter: every op, odd sizes, every kind of loop, two threads."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cost_model
from autotune.codegen import BACKENDS
from autotune.errors import BuildError
from autotune.machine import Machine
from autotune.program.ir import (
    Alloc,
    Apply,
    Bound,
    Buffer,
    Const,
    For,
    If,
    Index,
    IndexValue,
    Load,
    LoadIndex,
    Program,
    Select,
    Stmt,
    Store,
    index,
)
from autotune.schedule import apply_schedule
from autotune.target import host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Array, Task
from search_spaces.rules import rule_for
from tests.contracts.case import Case, single_task
from tests.contracts.op_cases import CASES
from tests.interpreter.interp import run
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import (
    assert_close,
    conv_relu,
    matmul,
    node,
    run_kernel,
    task,
    unary,
    value,
)

ONES = Store("o0", (index("j"),), Const(1.0))
ONE, TWO = host_target(1), host_target(2)


def by_hand(
    body: Stmt, extent: int, dtype: str = "float32", out: str = ""
) -> tuple[Task, Program]:
    """A program over i0 and o0 of `extent` elements, and a task with the same params."""
    made = task(
        [node("copy", "i0", "o0")],
        value("i0", (extent,), dtype),
        value("o0", (extent,), out or dtype),
    )
    params = (
        Buffer.dense("i0", dtype, (extent,), "param"),
        dataclasses.replace(Buffer.dense("o0", out or dtype, (extent,), "param"), written=True),
    )
    return made, Program("by_hand", params, (body,))


def check(made: Task, program: Program, arrays: dict[str, Array], threads: int = 1) -> None:
    verify(program)
    got = run_kernel(made, program, TWO if threads == 2 else ONE, arrays)
    assert_close(got, run(program, arrays))


@pytest.mark.parametrize("op", sorted(CASES))
def test_unscheduled_loops_of_every_op(op: str) -> None:
    @settings(max_examples=3, suppress_health_check=list(HealthCheck), database=None)
    @given(case=CASES[op], number=st.integers(0, 1000))
    def one(case: Case, number: int) -> None:
        made = single_task(case, halo=number % 2 == 0)
        arrays = random_inputs(made, number)
        program = build_program(made)
        got = run_kernel(made, program, TWO if number % 3 == 0 else ONE, arrays)
        assert_close(got, evaluate_task(made, arrays))

    one()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "made",
    [conv_relu(), conv_relu(height=1, channels=1, filters=1), matmul(1, 1, 1), matmul(7, 13, 33),
     unary("softmax", (3, 37), axis=-1), unary("relu", (2, 5, 3)), unary("neg", (33,), "int64"),
     unary("not", (19,), "bool")],
    ids=lambda t: f"{t.nodes[0].op}-{t.by_role('output')[0].type.shape}",
)  # fmt: skip
def test_default_schedules(made: Task, threads: int) -> None:
    target = host_target(threads)
    rule = rule_for(made, target)
    schedule = rule.schedule(made, target, cost_model.default(made, Machine.of(target), rule))
    arrays = random_inputs(made, 1)
    got = run_kernel(made, apply_schedule(build_program(made), schedule), target, arrays)
    assert_close(got, evaluate_task(made, arrays))


@pytest.mark.parametrize("lanes", [2, 3, 5, 16, 24])
@pytest.mark.parametrize("combine", ["sum", "prod", "max", "min"])
def test_reductions_over_lanes(combine: str, lanes: int) -> None:
    i = index("i")
    body = For("i", lanes, "vector", (Store("o0", (Index(),), Load("i0", (i,)), combine),))
    made, program = by_hand(body, lanes)
    start = Store("o0", (Index(),), Const(0.5))
    rest = For("j", lanes, "serial", (Store("o0", (index("j"),), Const(0.0)),))
    program = dataclasses.replace(program, body=(rest, start, body))
    x = np.linspace(-1.5, 2, lanes, dtype=np.float32)
    check(made, program, {"i0": x})


def test_lanes_under_a_mask() -> None:
    i = index("i")
    guarded = If((Bound(i, 3, 11),), (Store("o0", (i,), Load("i0", (i - 3,))),))
    clear = For("j", 16, "vector", (Store("o0", (index("j"),), Const(7.0)),))
    made, program = by_hand(clear, 16)
    program = dataclasses.replace(program, body=(clear, For("i", 16, "vector", (guarded,))))
    check(made, program, {"i0": np.arange(16, dtype=np.float32)})


def test_a_selection_by_lane_reads_only_the_branch_taken() -> None:
    i = index("i")
    chosen = Select((Bound(i, 5, 16),), Load("i0", (i - 5,)), Const(-1.0))
    made, program = by_hand(For("i", 16, "vector", (Store("o0", (i,), chosen),)), 16)
    check(made, program, {"i0": np.arange(16, dtype=np.float32)})


def test_selections_and_values_that_divide_the_lane() -> None:
    i = index("i")
    odd = Select((Bound((i + 1) % 3, 1, 3),), IndexValue(i // 3, "float32"), Load("i0", (i,)))
    made, program = by_hand(For("i", 16, "vector", (Store("o0", (i,), odd),)), 16)
    check(made, program, {"i0": np.arange(16, dtype=np.float32)})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "uint8"])
def test_lanes_far_apart(dtype: str) -> None:
    i = index("i")
    reverse = Store("o0", (i * -1 + 7,), Load("i0", ((i * 3) % 8,)))
    made, program = by_hand(For("i", 8, "vector", (reverse,)), 8, dtype)
    check(made, program, {"i0": np.arange(8).astype(dtype)})


def test_a_division_of_a_loaded_index() -> None:
    i = index("i")
    loaded = Index(((LoadIndex("i0", (i,), 8), 1),))
    store = Store("o0", (i,), Load("i0", ((loaded + 1) // 2,)))
    made, program = by_hand(For("i", 8, "serial", (store,)), 8, "int64")
    check(made, program, {"i0": np.array([7, 0, -1, 3, 100, 2, -8, 5])})


def test_maxima_keep_what_is_not_a_number() -> None:
    i = index("i")
    relu = Apply("max", (Load("i0", (i,)), Const(0.0)))
    made, program = by_hand(For("i", 16, "vector", (Store("o0", (i,), relu),)), 16)
    x = np.linspace(-1, 1, 16, dtype=np.float32)
    x[[2, 9]] = np.nan
    got = run_kernel(made, program, ONE, {"i0": x})
    np.testing.assert_array_equal(got, np.maximum(x, 0))


@pytest.mark.parametrize("name", ["float32", "int64", "bool", "uint8", "int8", "int32", "float64"])
def test_conversions(name: str) -> None:
    i = index("i")
    source = np.array([0.0, 1.0, 1.5, 2.75, 100.0, 0.0, 3.0, 7.0], np.float32)
    store = Store("o0", (i,), Apply(f"to_{name}", (Load("i0", (i,)),)))
    made, program = by_hand(For("i", 8, "vector", (store,)), 8, "float32", name)
    check(made, program, {"i0": source})


def test_threads_meet_between_statements() -> None:
    i, j = index("i"), index("j")
    scratch = Buffer.dense("t", "float32", (64,), "scratch")
    first = For("i", 64, "parallel", (Store("t", (i,), Load("i0", (i,))),))
    last = For("j", 64, "parallel", (Store("o0", (j,), Load("t", (j * -1 + 63,))),))
    made, program = by_hand(Alloc(scratch, (first, last)), 64)
    for _ in range(5):
        check(made, program, {"i0": np.arange(64, dtype=np.float32)}, threads=2)


@pytest.mark.parametrize(
    ("backend", "meets"), [("llvm", "call void @autotune_finish("), ("c", "#pragma omp barrier")]
)
def test_threads_share_what_is_in_memory_amid_statements(backend: str, meets: str) -> None:
    i, j, k = index("i"), index("j"), index("k")
    t, u = (Buffer.dense(name, "float32", (64,), "scratch") for name in ("t", "u"))
    first = For("i", 64, "parallel", (Store("t", (i,), Load("i0", (i,))),))
    second = For("j", 64, "parallel", (Store("u", (j,), Load("i0", (j * -1 + 63,))),))
    total = Apply("sub", (Load("t", (k * -1 + 63,)), Load("u", (k * -1 + 63,))))
    last = For("k", 64, "parallel", (Store("o0", (k,), total),))
    made, program = by_hand(Alloc(t, (first, Alloc(u, (second, last)))), 64)
    target = TWO if backend == "llvm" else load_target("c").with_threads(2)
    arrays = {"i0": np.arange(64, dtype=np.float32)}
    for _ in range(5):
        assert_close(run_kernel(made, program, target, arrays), 63 - 2 * arrays["i0"])
    assert BACKENDS.get(backend).source(program, target, "kernel").count(meets) == 3


def test_private_scratch_of_threads() -> None:
    i, j, k = index("i"), index("j"), index("k")
    local = Buffer.dense("t", "float32", (4,), "scratch")
    fill = For("j", 4, "vector", (Store("t", (j,), Load("i0", (i * 4 + j,))),))
    use = For("k", 4, "vector", (Store("o0", (i * 4 + k,), Load("t", (k * -1 + 3,))),))
    made, program = by_hand(For("i", 50, "parallel", (Alloc(local, (fill, use)),)), 200)
    check(made, program, {"i0": np.arange(200, dtype=np.float32)}, threads=2)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (For("i", 8, "vector", (Store("o0", (Index(),), Const(1.0)),)), "written by every lane"),
        (
            For(
                "i",
                2,
                "vector",
                (For("j", 4, "vector", (Store("o0", (index("j"),), Const(1.0)),)),),
            ),
            "is inside another",
        ),
    ],
)
def test_programs_without_code_are_build_errors(body: Stmt, message: str) -> None:
    _, program = by_hand(body, 8)
    with pytest.raises(BuildError, match=message):
        BACKENDS.get("llvm").source(program, ONE, "k")


def test_unrolling_without_end_is_a_build_error() -> None:
    i = index("i")
    loop = For("i", 150_000, "unroll", (Store("o0", (i,), Load("i0", (i,))),))
    _, program = by_hand(loop, 150_000)
    with pytest.raises(BuildError, match="unrolls to more than"):
        BACKENDS.get("llvm").source(program, ONE, "k")
