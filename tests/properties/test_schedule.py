"""Schedule steps by chance: whatever a step accepts must still verify and give the same output.

Steps are drawn from the names that exist in the program, legal or not; an illegal one must raise
ScheduleError and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.errors import BuildError, ScheduleError
from autotune.program.ir import Alloc, For, Program, Store, walk
from autotune.program.text import print_program
from autotune.schedule import Schedule, Step, schedule_from_json, schedule_to_json
from autotune.target import host_target
from autotune.tasks.build import build_program
from autotune.tasks.inputs import random_inputs
from autotune.types import Array, Task
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
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

Draw = Callable[[st.SearchStrategy[Any]], Any]
HOST = host_target(1)


def attention() -> Task:
    """softmax(a b): a reduction, then two more over its rows."""
    return task(
        [node("matmul", "i0 i1", "t0", transpose_b=True), node("softmax", "t0", "o0", axis=-1)],
        value("i0", (3, 2)),
        value("i1", (5, 2)),
        value("t0", (3, 5)),
        value("o0", (3, 5)),
    )


def pooled() -> Task:
    return task(
        [node("max_pool2d", "i0", "t0", kernel=(2, 2), strides=(2, 1)), node("relu", "t0", "o0")],
        value("i0", (1, 4, 3, 3)),
        value("t0", (1, 2, 2, 3)),
        value("o0", (1, 2, 2, 3)),
    )


def chain() -> Task:
    return task(
        [node("neg", "i0", "t0"), node("abs", "t0", "t1"), node("add", "t1 t0", "o0")],
        value("i0", (2, 3, 4)),
        value("t0", (2, 3, 4)),
        value("t1", (2, 3, 4)),
        value("o0", (2, 3, 4)),
    )


TASKS = {
    "conv": conv_relu(height=2, channels=2, filters=3),
    "conv 1x1": conv_relu(height=2, channels=3, filters=5, kernel=1),
    "matmul": matmul(3, 4, 5),
    "attention": attention(),
    "norm": unary("softmax", (2, 6), axis=0),
    "sum": task(
        [node("reduce_sum", "i0", "o0", axes=(-1,), keepdims=False)],
        value("i0", (3, 9)),
        value("o0", (3,)),
    ),
    "pooled": pooled(),
    "chain": chain(),
}


def random_step(draw: Draw, program: Program, number: int) -> Step:
    """A step on names of the program; whether it is legal is left to chance."""
    loops = [s.var for s in walk(program.body) if isinstance(s, For)]
    local = [s.buffer.name for s in walk(program.body) if isinstance(s, Alloc)]
    buffers = [p.name for p in program.params] + local
    loop = st.sampled_from(loops)
    some = st.integers(0, len(loops) - 1).flatmap(
        lambda first: st.permutations(loops[first : first + draw(st.integers(1, 3))]).map(tuple)
    )
    in_order = st.integers(0, len(loops) - 1).flatmap(
        lambda first: st.integers(1, 3).map(lambda n: tuple(loops[first : first + n]))
    )
    rank = {s.name: len(s.shape) for s in program.params}
    rank |= {
        s.buffer.name: len(s.buffer.shape) for s in walk(program.body) if isinstance(s, Alloc)
    }
    buffer = draw(st.sampled_from(buffers))
    at = draw(loop)
    splits = draw(st.sampled_from([(), ((0, 2),)])) if rank[buffer] else ()
    packed = draw(st.permutations(range(rank[buffer] + len(splits))).map(tuple))
    after = draw(st.sampled_from(loops[loops.index(at) :][:3]))
    fields: dict[str, dict[str, Any]] = {
        "split": {"loop": at, "factor": draw(st.integers(1, 5)), "outer": f"a{number}",
                  "inner": f"b{number}"},
        "fuse": {"outer": at, "inner": after, "fused": f"f{number}"},
        "reorder": {"loops": draw(some)},
        "unroll": {"loops": draw(in_order)},
        "vectorize": {"loops": (at,)},
        "parallel": {"loop": at},
        "jam": {"loop": at, "other": draw(loop)},
        "hoist": {"loop": at},
        "distribute": {"loop": at, "inner": draw(loop)},
        "software_pipeline": {"loop": at, "buffer": buffer},
        "inline": {"buffer": buffer},
        "compute_at": {"buffer": buffer, "at": at},
        "cache_write": {"buffer": buffer, "loops": draw(in_order)},
        "rfactor": {"buffer": buffer, "top": at,
                    "loops": tuple(loops[loops.index(at) :][draw(st.integers(0, 1)) :][:2])},
        "specialize": {"loop": at, "at": draw(st.sampled_from([*local, "none"]))},
        "pack": {"buffer": buffer, "splits": splits, "order": packed},
        "cache_read": {"buffer": buffer, "loop": draw(st.sampled_from(["", *loops])),
                       "dims": tuple(range(rank[buffer])), "splits": splits, "order": packed},
        "store_at": {"buffer": (local or buffers)[0], "loop": draw(st.sampled_from(loops[:3]))},
    }  # fmt: skip
    # The seldom legal ones more often.
    seldom = ["rfactor", "compute_at", "store_at", "cache_write", "inline", "specialize"]
    name = draw(st.sampled_from([*sorted(fields), *seldom, *seldom]))
    return schedule_from_json([{"step": name, **fields[name]}])[0]


def random_schedule(draw: Draw, program: Program, steps: int) -> tuple[Program, Schedule]:
    """The program after the accepted ones of some random steps."""
    taken: list[Step] = []
    for number in range(steps):
        step = random_step(draw, program, number)
        try:
            program = step.apply(program)
        except ScheduleError:
            continue
        verify(program)
        taken.append(step)
    return program, tuple(taken)


def property_of(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    config = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    return lambda f: config(given(data=st.data())(f))


def naive_run(made: Task) -> tuple[Program, dict[str, Array], Array]:
    """A task's program without a schedule, inputs, and what it makes of them."""
    naive, arrays = build_program(made), random_inputs(made, 0)
    return naive, arrays, run(naive, arrays)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_accepted_steps_change_no_result(name: str) -> None:
    naive, arrays, want = naive_run(TASKS[name])

    @property_of(40)
    def check(data: st.DataObject) -> None:
        program, steps = random_schedule(data.draw, naive, 8)
        assert_close(run(program, arrays), want)
        assert parse_program(print_program(program)) == program
        assert schedule_from_json(schedule_to_json(steps)) == steps

    check()


@pytest.mark.parametrize("name", sorted(TASKS))
def test_registers_of_loops_with_guards_change_no_result(name: str) -> None:
    """A loop split whether that goes up or not, then what it computes kept in registers: chance
    seldom finds the two together."""
    naive, arrays, want = naive_run(TASKS[name])

    @property_of(20)
    def check(data: st.DataObject) -> None:
        loops = [s.var for s in walk(naive.body) if isinstance(s, For)]
        at, factor = data.draw(st.sampled_from(loops)), data.draw(st.integers(2, 5))
        split = {"step": "split", "loop": at, "factor": factor, "outer": "a", "inner": "b"}
        program = schedule_from_json([split])[0].apply(naive)
        buffers = sorted({s.buffer for s in walk(naive.body) if isinstance(s, Store)})
        before = loops[: loops.index(at)]
        outside = before[len(before) - data.draw(st.integers(0, min(2, len(before)))) :]
        for buffer in data.draw(st.permutations(buffers)):
            tile = {"step": "cache_write", "buffer": buffer, "loops": (*outside, "a", "b")}
            with contextlib.suppress(ScheduleError):
                program = schedule_from_json([tile])[0].apply(program)
                break
        verify(program)
        assert_close(run(program, arrays), want)

    check()


@pytest.mark.parametrize("name", sorted(TASKS))
def test_machine_code_of_accepted_steps(name: str) -> None:
    made = TASKS[name]
    naive, arrays, want = naive_run(made)

    @property_of(10)
    def check(data: st.DataObject) -> None:
        program, _ = random_schedule(data.draw, naive, 8)
        try:
            got = run_kernel(made, program, HOST, arrays)
        except BuildError:
            # E.g. a register buffer under a loop that is not unrolled: no code, no result.
            return
        assert_close(np.asarray(got), want)

    check()
