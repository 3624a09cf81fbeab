"""Windows whose sides are summed one after the other: the program, its results, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

SUMS = """program p
param x: float32[10, 15]
param y: float32[8, 6] written
for i in 8 serial:
  for j in 6 serial:
    y[i, j] = float32(0.0)
    for a in 3 serial:
      for b in 5 serial:
        y[i, j] sum= x[i + a, 2*j + b]
"""
LARGEST = """program p
param x: float32[8, 6]
param y: float32[8, 6] written
for i in 8 serial:
  for j in 6 serial:
    y[i, j] = float32(-inf)
    for a in 3 serial:
      for b in 3 serial:
        y[i, j] max= x[clamp(i + a - 1, 0, 7), clamp(b + j - 1, 0, 5)]
"""


def separated(text: str, loop: str = "b") -> Program:
    steps = schedule_from_json([{"step": "separate_window", "loop": loop}])
    program = apply_schedule(parse_program(text), steps)
    verify(program)
    return program


def test_columns_are_summed_once_for_all_windows_that_have_them() -> None:
    text = [line.strip() for line in print_program(separated(SUMS)).splitlines()]
    assert "alloc y.part: float32[8, 15] scratch:" in text
    assert "y.part[i_part, j_part] sum= x[a + i_part, j_part]" in text
    assert "y[i, j] sum= y.part[i, b + 2*j]" in text


@pytest.mark.parametrize("text", [SUMS, LARGEST])
@pytest.mark.parametrize("loop", ["a", "b"])
def test_results_stay_the_same(text: str, loop: str) -> None:
    shape = (10, 15) if text is SUMS else (8, 6)
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    want, got = (run(p, {"x": x}) for p in (parse_program(text), separated(text, loop)))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "loop", "message"),
    [
        ("2*j + b", "2*j", "b", "do not slide along loop b"),
        ("i + a, 2*j + b", "a, i + 2*j + b", "b", "do not slide along loop b"),
        ("i + a, 2*j + b", "i + a + b, 2*j + b", "b", "do not slide along loop b"),
        ("2*j + b", "2*j + 2*b", "b", "do not slide along loop b"),
        ("2*j + b", "2*j + b", "j", "holds more than one reduction"),
        ("    y[i, j] = float32(0.0)\n", "", "b", "does not set what it adds to"),
    ],
)
def test_what_is_no_window_is_refused(old: str, new: str, loop: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        separated(SUMS.replace(old, new).replace("float32[10, 15]", "float32[64, 64]"), loop)
