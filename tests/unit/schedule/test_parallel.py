"""Which loops may be parallel: no two iterations write one element."""

from __future__ import annotations

import pytest

from autotune.errors import ScheduleError
from autotune.program.ir import Bound, Buffer, Const, For, If, Index, Program, Stmt, Store, index
from autotune.schedule.loops.nest import Parallel

Y = Buffer.dense("y", "float32", (4,), "param")
FIXED = Store("y", (Index((), 3),), Const(1.0))
MOVING = Store("y", (index("i"),), Const(1.0))


def parallel(*body: Stmt, extent: int = 4) -> Program:
    program = Program("p", (Y,), (For("i", extent, "serial", body),))
    return Parallel(loop="i").apply(program)


def kind(program: Program) -> str:
    loop = program.body[0]
    assert isinstance(loop, For)
    return loop.kind


def test_iterations_that_write_their_own_element_are_parallel() -> None:
    assert kind(parallel(MOVING)) == "parallel"


def test_iterations_that_write_one_element_are_refused() -> None:
    with pytest.raises(ScheduleError, match="iterations of i write the same y"):
        parallel(FIXED)


def test_an_element_that_one_iteration_writes_is_allowed() -> None:
    assert kind(parallel(If((Bound(index("i"), 0, 3),), (MOVING,)),
                         If((Bound(index("i"), 3, 4),), (FIXED,)))) == "parallel"  # fmt: skip


def test_guards_over_parts_of_a_fused_index_count_together() -> None:
    guards = (Bound(index("i") // 2, 1, 2), Bound(index("i") % 2, 1, 2))
    assert kind(parallel(If(guards, (FIXED,)))) == "parallel"


def test_a_guard_that_two_iterations_pass_is_refused() -> None:
    with pytest.raises(ScheduleError, match="iterations of i write the same y"):
        parallel(If((Bound(index("i"), 2, 4),), (FIXED,)))
