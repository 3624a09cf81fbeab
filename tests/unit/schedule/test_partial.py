"""Sums in parts: what the step makes of a small program, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

ROWS = """program p
param x: float32[4, 12]
param y: float32[4] written
for i in 4 serial:
  y[i] = float32(1.0)
  for p in 3 serial:
    for k in 4 serial:
      y[i] sum= x[i, 4*p + k]
  y[i] = neg(y[i])
"""
X = np.arange(48, dtype=np.float32).reshape(4, 12)


def partial(loop: str) -> tuple[dict[str, str], ...]:
    return ({"step": "partial", "buffer": "y", "loop": loop},)


def test_parts_are_added_up_before_what_follows() -> None:
    program = apply_schedule(parse_program(ROWS), schedule_from_json(partial("p")))
    verify(program)
    text = print_program(program)
    assert "alloc y.parts: float32[3, 4] scratch:" in text
    assert "y.parts[p, i_part] sum= x[i_part, k + 4*p]" in text
    np.testing.assert_allclose(run(program, {"x": X}), -(1 + X.sum(axis=1)))


@pytest.mark.parametrize(
    ("loop", "reason"), [("k", "hold more than each other"), ("i", "hold more"), ("q", "no loop")]
)
def test_only_the_outermost_loop_of_a_sum_has_parts(loop: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        apply_schedule(parse_program(ROWS), schedule_from_json(partial(loop)))
