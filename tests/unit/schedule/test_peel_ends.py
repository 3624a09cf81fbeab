"""Loop peeling of first and last iterations."""

from __future__ import annotations

import pytest

from autotune.errors import ScheduleError
from autotune.program.text import print_program
from autotune.schedule.loops.nest import Split
from autotune.schedule.loops.peel_ends import PeelEnds
from tests.interpreter.parse import parse_program

MIRROR = """
program mirror
param x: float32[20]
param y: float32[22] written
for i in 22 serial:
  y[i] = x[clamp(i - 1, 0, 19)]
"""
PEELED = """
program mirror
param x: float32[20]
param y: float32[22] written
y[0] = x[0]
for i in 20 serial:
  y[i + 1] = x[i]
y[21] = x[19]
"""


def test_iterations_between_need_no_clamp() -> None:
    program = PeelEnds(loop="i", first=1, last=1).apply(parse_program(MIRROR))
    assert print_program(program).split() == PEELED.split()


def test_a_loop_that_its_guard_ends_early_is_shorter() -> None:
    program = Split(loop="i", factor=8, outer="o", inner="v").apply(parse_program(MIRROR))
    text = print_program(PeelEnds(loop="o", last=1).apply(program))
    assert "for v.o2 in 6 serial:" in text
    assert "if" not in text


def test_every_iteration_may_be_peeled() -> None:
    program = Split(loop="i", factor=8, outer="o", inner="v").apply(parse_program(MIRROR))
    text = print_program(PeelEnds(loop="o", first=1, last=2).apply(program))
    assert "for o in" not in text


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [(-1, 0, "up to 8"), (9, 0, "up to 8"), (4, 0, "only 3"), (2, 2, "only 3")],
)
def test_no_more_than_there_are(first: int, last: int, message: str) -> None:
    program = Split(loop="i", factor=8, outer="o", inner="v").apply(parse_program(MIRROR))
    with pytest.raises(ScheduleError, match=message):
        PeelEnds(loop="o", first=first, last=last).apply(program)
