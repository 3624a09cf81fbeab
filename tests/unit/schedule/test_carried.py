"""Iterations that read what those before them wrote keep their order."""

from __future__ import annotations

import pytest

from autotune.errors import ScheduleError
from autotune.schedule import Step
from autotune.schedule.loops.nest import Parallel, Reorder, Vectorize
from tests.interpreter.parse import parse_program

SCAN = """
program scan
param x: float32[8, 16]
param y: float32[8, 16] written
for r in 8 serial:
  for c in 16 serial:
    y[r, c] = x[r, c]
for i in 7 serial:
  for j in 16 serial:
    y[i + 1, j] sum= y[i, j]
"""
SLANTED = SCAN.replace("for j in 16", "for j in 15").replace("y[i, j]", "y[i, j + 1]")


@pytest.mark.parametrize("step", [Vectorize(loops=("i",)), Parallel(loop="i")])
def test_iterations_that_wait_for_each_other_stay_apart(step: Step) -> None:
    with pytest.raises(ScheduleError, match="wait for each other"):
        step.apply(parse_program(SCAN))


def test_those_beside_each_other_are_vectors() -> None:
    program = Reorder(loops=("j", "i")).apply(parse_program(SCAN))
    Parallel(loop="j").apply(program)
    Vectorize(loops=("j",)).apply(parse_program(SCAN))


def test_elements_made_before_in_both_directions_keep_their_order() -> None:
    with pytest.raises(ScheduleError, match="both ways"):
        Reorder(loops=("j", "i")).apply(parse_program(SLANTED))
