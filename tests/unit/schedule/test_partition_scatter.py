"""Updates at places read from memory: how they may be divided and in which order they may run."""

from __future__ import annotations

import pytest

from autotune.errors import ScheduleError
from autotune.program.text import print_stmt
from autotune.schedule import Step, apply_schedule
from autotune.schedule.loops.nest import Parallel, Reorder, Split, Vectorize
from autotune.schedule.loops.partition_scatter import PartitionScatter
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

UPDATES = """program p
param u: float32[7, 6]
param p: int64[7, 1]
param y: float32[10, 6] written
for l in 7 serial:
  for w in 6 serial:
    y[int(p[l, 0], 10), w] {combine} u[l, w]
"""
CLAIM = PartitionScatter(loop="l", size=4, part="r")


def applied(*steps: Step, combine: str = "sum=") -> str:
    program = apply_schedule(parse_program(UPDATES.format(combine=combine)), steps)
    verify(program)
    return "\n".join(print_stmt(stmt) for stmt in program.body)


def test_every_part_takes_its_own_places() -> None:
    assert applied(CLAIM) == (
        "for r in 3 serial:\n"
        "  for l in 7 serial:\n"
        "    if 0 <= -4*r + int(p[l, 0], 10) < 4:\n"
        "      for w in 6 serial:\n"
        "        y[int(p[l, 0], 10), w] sum= u[l, w]"
    )


def test_all_updates_may_have_one_place() -> None:
    program = parse_program(UPDATES.format(combine="sum=").replace("p[l, 0]", "p[3, 0]"))
    program = apply_schedule(program, (CLAIM,))
    verify(program)
    assert print_stmt(program.body[0]) == (
        "for r in 3 serial:\n"
        "  for l in 7 serial:\n"
        "    for w in 6 serial:\n"
        "      if 0 <= -4*r + int(p[3, 0], 10) < 4:\n"
        "        y[int(p[3, 0], 10), w] sum= u[l, w]"
    )


def test_threads_may_take_parts() -> None:
    assert "for r in 3 parallel:" in applied(CLAIM, Parallel(loop="r"))


def test_threads_may_take_parts_of_parts() -> None:
    split = Split(loop="r", factor=2, outer="a", inner="b")
    assert "for a in 2 parallel:" in applied(CLAIM, split, Parallel(loop="a"))


def test_threads_may_take_columns() -> None:
    assert "for w in 6 parallel:" in applied(Reorder(loops=("w", "l")), Parallel(loop="w"))


def test_threads_may_not_take_updates() -> None:
    with pytest.raises(ScheduleError, match="iterations of l write the same y"):
        applied(Parallel(loop="l"))


def test_lanes_may_not_be_updates() -> None:
    with pytest.raises(ScheduleError, match="lanes of l may meet"):
        applied(Reorder(loops=("w", "l")), Vectorize(loops=("l",)))


def test_updates_that_replace_stay_in_order() -> None:
    split = Split(loop="l", factor=7, outer="a", inner="b")
    applied(split, Reorder(loops=("w", "a", "b")), combine="=")
    with pytest.raises(ScheduleError, match="written by several iterations"):
        applied(split, Reorder(loops=("b", "a", "w")), combine="=")


def test_only_the_outermost_loop_is_gone_through_again() -> None:
    with pytest.raises(ScheduleError, match="inside another loop"):
        applied(PartitionScatter(loop="w", size=4, part="r"))


def test_a_tensor_without_computed_places_has_no_parts() -> None:
    program = parse_program(UPDATES.format(combine="=").replace("int(p[l, 0], 10)", "l"))
    with pytest.raises(ScheduleError, match="one computed place"):
        CLAIM.apply(program)
