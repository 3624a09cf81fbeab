"""Sums that slide along a vector: the program that slide makes, its results, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import cost_model
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.program.text import print_stmt
from autotune.schedule import Schedule, apply_schedule, schedule_from_json
from autotune.target import Target, host_target
from autotune.tasks.build import build_program
from autotune.types import Array, Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import node, run_kernel, task, value

HOST = host_target()
AROUND = """program p
param x: float32[2, 10]
param y: float32[2, 10] written
for i in 2 serial:
  for j in 10 serial:
    y[i, j] = float32(0.0)
    for k in 3 serial:
      y[i, j] sum= select(0 <= j + k - 1 < 10, mul(x[i, j + k - 1], x[i, j + k - 1]), float32(0.0))
"""


def slid(text: str = AROUND, at: str = "v", lanes: int = 5) -> Program:
    """The program with its sums over whole vectors of terms."""
    steps = schedule_from_json(
        [
            {"step": "split", "loop": "j", "factor": lanes, "outer": "v", "inner": "l"},
            {"step": "cache_write", "buffer": "y", "loops": ["l"]},
            {"step": "shared_window_terms", "loop": "k", "at": at},
        ]
    )
    program = apply_schedule(parse_program(text), steps)
    verify(program)
    return program


def test_terms_are_computed_ahead_in_whole_vectors() -> None:
    text = [line.strip() for line in print_stmt(slid().body[0]).splitlines()]
    assert text[1] == "alloc y.reg.terms: float32[20] register:"
    assert text[2:4] == ["for k_terms in 4 serial:", "for l_terms in 5 serial:"]
    assert text[4].startswith("y.reg.terms[5*k_terms + l_terms] = select(0 <= 5*k_terms + l_terms")
    assert "y.reg[l] sum= y.reg.terms[k + l + 5*v + 4]" in text


@pytest.mark.parametrize(("at", "lanes"), [("v", 5), ("i", 5), ("v", 2), ("v", 10), ("v", 4)])
def test_sums_stay_the_same(at: str, lanes: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 10), np.float32)
    want, got = (run(p, {"x": x}) for p in (parse_program(AROUND), slid(at=at, lanes=lanes)))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("k - 1 < 10", "k - 1 < 9 and 0 <= k < 3", "do not slide along one index"),
        ("j + k - 1], x[i, j + k - 1]", "j + k - 1], x[i, k]", "do not slide along one index"),
        ("j + k - 1", "j + 2*k - 2", "does not slide element by element"),
        ("param y", "param z", "no buffer y"),
    ],
)
def test_what_does_not_slide(old: str, new: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        slid(AROUND.replace(old, new))


def test_what_is_not_guarded_is_not_read_past_its_end() -> None:
    text = AROUND.replace("float32[2, 10]\nparam y", "float32[2, 14]\nparam y")
    start = text.index("select(")
    bare = text[:start] + "mul(x[i, j + k], x[i, j + k])\n"
    with pytest.raises(ScheduleError, match="not guarded at the ends"):
        slid(bare)


def test_a_loop_that_writes_what_the_terms_read_is_refused() -> None:
    text = AROUND.replace("param y: float32[2, 10] written\n", "").replace("y[", "x[", 1)
    text = text.replace("param x: float32[2, 10]", "param x: float32[2, 10] written")
    with pytest.raises(ScheduleError):
        slid(text)


def lrn_task(channels: int, size: int) -> Task:
    shape = (1, 3, 4, channels)
    attrs = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 1.0}
    return task([node("lrn", "i0", "o0", **attrs)], value("i0", shape), value("o0", shape))


def schedules(made: Task, target: Target) -> list[Schedule]:
    """Schedules with every number of vectors side by side."""
    rule = rule_for(made, target)
    default = dict(cost_model.default(made, Machine.of(target), rule).items) | {
        "tile_w": 1,
        "tile_h": 1,
        "slide": 1,
    }
    sizes = next(p for p in rule.space(made, target).params if p.name == "vectors").choices
    return [
        rule.schedule(made, target, Config(tuple((default | {"vectors": n}).items())))
        for n in sizes
    ]


def test_wide_rows_slide_by_default() -> None:
    default = cost_model.default(lrn_task(96, 5), Machine.of(HOST))
    assert dict(default.items)["slide"] == 1


def reference(x: Array, size: int) -> Array:
    before = (size - 1) // 2
    padded = np.pad(x.astype(np.float64) ** 2, [(0, 0)] * 3 + [(before, size - 1 - before)])
    total = sum(padded[..., k : k + x.shape[-1]] for k in range(size))
    return np.asarray(x / (1 + 0.3 / size * total) ** 0.75)


@pytest.mark.parametrize(("channels", "size"), [(7, 3), (50, 5), (96, 4), (40, 21)])
def test_normalised_channels(channels: int, size: int) -> None:
    made = lrn_task(channels, size)
    x = np.random.default_rng(1).standard_normal((1, 3, 4, channels), np.float32)
    for schedule in schedules(made, HOST):
        program = apply_schedule(build_program(made), schedule)
        verify(program)
        got = run_kernel(made, program, HOST, {"i0": x})
        np.testing.assert_allclose(got, reference(x, size), rtol=2e-6)


def test_squares_that_overflow_leave_nothing() -> None:
    made = lrn_task(20, 3)
    x = np.zeros((1, 3, 4, 20), np.float32)
    x[..., 7] = 3e38
    program = apply_schedule(build_program(made), schedules(made, HOST)[-1])
    got = run_kernel(made, program, HOST, {"i0": x})
    assert not got.any()
