"""Buffers that take the memory of others: what must be over before."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError
from autotune.program.ir import Alloc, walk
from autotune.schedule import apply_schedule
from autotune.schedule.memory.reuse import Reuse
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

CHAIN = """program p
param x: float32[4]
param y: float32[4] written
alloc a: float32[4] scratch:
  alloc b: float32[4] scratch:
    alloc c: float32[{extent}] scratch:
      for i in 4 serial:
        a[i] = neg(x[i])
      for j in 4 serial:
        b[j] = add(a[j], {one})
      for k in 4 serial:
        c[k] = mul(b[k], {other}[k])
      for l in 4 serial:
        y[l] = sub(c[l], b[3 - l])
"""


def chain(extent: int = 4, other: str = "b") -> str:
    return CHAIN.format(extent=extent, other=other, one="float32(1.0)")


def test_a_buffer_lies_where_one_was_that_is_done_with() -> None:
    program = parse_program(chain())
    made = apply_schedule(program, (Reuse(buffers=("c",), of=("a",)),))
    verify(made)
    assert {s.buffer.name for s in walk(made.body) if isinstance(s, Alloc)} == {"a", "b"}
    x = {"x": np.array([1, 2, 3, 5], np.float32)}
    assert np.array_equal(run(made, x), run(program, x))


def test_a_buffer_that_is_still_read_keeps_its_memory() -> None:
    with pytest.raises(ScheduleError, match="a is used beside, or after, c"):
        Reuse(buffers=("c",), of=("a",)).apply(parse_program(chain(other="a")))
    with pytest.raises(ScheduleError, match="b is used beside, or after, c"):
        Reuse(buffers=("c",), of=("b",)).apply(parse_program(chain()))


def test_only_equal_buffers_of_a_call_take_turns() -> None:
    with pytest.raises(ScheduleError, match="c does not fit where a is"):
        Reuse(buffers=("c",), of=("a",)).apply(parse_program(chain(extent=5)))
    with pytest.raises(ScheduleError, match="a and x are not two buffers"):
        Reuse(buffers=("a",), of=("x",)).apply(parse_program(chain()))
    with pytest.raises(ScheduleError, match="1 buffers for the memory of 2"):
        Reuse(buffers=("c",), of=("a", "b")).apply(parse_program(chain()))
