"""Parts of a loop's iterations side by side: what hoist, distribute and software_pipeline make and
refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.errors import ScheduleError
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

CENTRED = """program p
param x: float32[6, 8]
param y: float32[6, 8] written
for b in 3 serial:
  alloc s: float32[2] scratch:
    for r in 2 serial:
      alloc t: float32[2] register:
        for i in 2 unroll:
          t[i] = float32(0.0)
        for k in 4 serial:
          for u in 2 unroll:
            t[u] sum= sub(x[2*b + r, 2*k + u], max(x[2*b + r, 0], x[2*b + r, 7]))
        s[r] = add(t[0], t[1])
    for q in 2 serial:
      for l in 8 serial:
        y[2*b + q, l] = mul(x[2*b + q, l], s[q])
"""
HOIST = {"step": "hoist", "loop": "k"}
DISTRIBUTE = {"step": "distribute", "loop": "r", "inner": "k"}
PIPELINE = {"step": "software_pipeline", "loop": "b", "buffer": "y"}
BLOCKS = {"step": "specialize", "loop": "b"}


def changed(*steps: dict[str, Any], text: str = CENTRED) -> Program:
    program = apply_schedule(parse_program(text), schedule_from_json(list(steps)))
    verify(program)
    return program


@pytest.mark.parametrize(
    "steps",
    [
        (HOIST,),
        (DISTRIBUTE,),
        (PIPELINE,),
        (HOIST, DISTRIBUTE, PIPELINE),
        (BLOCKS, PIPELINE),
        (PIPELINE, HOIST),
    ],
)
def test_results_stay_the_same(steps: tuple[dict[str, Any], ...]) -> None:
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    wide = x.astype(np.float64)
    sums = (wide - wide[:, [0, 7]].max(1, keepdims=True)).sum(1, keepdims=True)
    np.testing.assert_allclose(run(changed(*steps), {"x": x}), wide * sums, rtol=1e-5, atol=1e-5)


def test_all_three_make_this_program() -> None:
    text = print_program(changed(HOIST, DISTRIBUTE, PIPELINE))
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("for b in 2 serial:")
    top = "max(x[2*b + r + 2, 0], x[2*b + r + 2, 7])"
    assert lines[at : at + 18] == [
        "for b in 2 serial:",
        "for s_now0 in 2 serial:",
        "s.now[s_now0] = s[s_now0]",
        "alloc t: float32[2, 2] register:",
        "alloc k.kept0: float32[2] register:",
        "for r in 2 serial:",
        "for i in 2 unroll:",
        "t[r, i] = float32(0.0)",
        f"k.kept0[r] = {top}",
        "for k in 4 serial:",
        "for r_k in 2 serial:",
        "for u in 2 unroll:",
        "t[r_k, u] sum= sub(x[2*b + r_k + 2, 2*k + u], k.kept0[r_k])",
        "for r_out in 2 serial:",
        "s[r_out] = add(t[r_out, 0], t[r_out, 1])",
        "for q in 2 serial:",
        "for l in 8 serial:",
        "y[2*b + q, l] = mul(x[2*b + q, l], s.now[q])",
    ]
    assert (
        lines[at - 1] == "s[r_out_first] = add(t_first[r_out_first, 0], t_first[r_out_first, 1])"
    )
    assert lines[-1] == "y[q_last + 4, l_last] = mul(x[q_last + 4, l_last], s[q_last])"


def test_a_guarded_value_is_not_computed_ahead_of_its_guard() -> None:
    plain = "          for u in 2 unroll:\n            t[u]"
    text = CENTRED.replace(
        plain, "          if 0 <= b < 2:\n            for u in 2 unroll:\n" + 14 * " " + "t[u]"
    )
    with pytest.raises(ScheduleError, match="nothing is the same"):
        changed(HOIST, text=text)


@pytest.mark.parametrize(
    ("old", "new", "step", "message"),
    [
        ("max(x[2*b + r, 0], x[2*b + r, 7])", "x[2*b + r, 0]", HOIST, "nothing is the same"),
        ("max(x[2*b + r, 0], x[2*b + r, 7])", "max(t[0], t[1])", HOIST, "nothing is the same"),
        ("for k in 4 serial", "for k in 4 vector", HOIST, "a vector's"),
        ("s[r] = add", "s[0] = add", DISTRIBUTE, "share elements of s"),
        ("s[r] = add(t[0], t[1])", "s[r] = add(t[0], s[0])", DISTRIBUTE, "share elements of s"),
        ("for k in 4 serial", "for k in 4 vector", DISTRIBUTE, "a vector's"),
        ("for b in 3", "for b in 1", PIPELINE, "no iteration to run ahead"),
        ("for b in 3 serial", "for b in 3 parallel", PIPELINE, "b is parallel"),
        (
            "sub(x[2*b + r, 2*k + u], ",
            "sub(y[2*b + r, 2*k + u], ",
            PIPELINE,
            "from one part to the",
        ),
    ],
)
def test_what_is_refused(old: str, new: str, step: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        changed(step, text=CENTRED.replace(old, new))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (DISTRIBUTE | {"loop": "b"}, "not directly inside"),
        (PIPELINE | {"buffer": "s"}, "nothing comes before s"),
        (PIPELINE | {"buffer": "none"}, "nothing comes before none"),
    ],
)
def test_where_steps_do_not_apply(step: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        changed(step)
