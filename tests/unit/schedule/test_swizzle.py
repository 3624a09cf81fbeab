"""The step that lays shared memory out without bank conflicts."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError, VerifyError
from autotune.program.ir import Alloc, Buffer, Program, walk
from autotune.program.launch import storage_size
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

TEXT = """program p
param x: float32[8, 32]
param y: float32[32, 8] written
for b in 1 block.x:
  alloc s: float32[8, 32] shared:
    for t in 8 thread.x:
      for i in 32 serial:
        s[t, i] = x[t, i]
    barrier
    for u in 8 thread.x:
      for j in 32 serial:
        y[j, u] = s[u, j]
"""


def swizzled(text: str = TEXT) -> Program:
    steps = schedule_from_json([{"step": "swizzle", "buffer": "s"}])
    return apply_schedule(parse_program(text), steps)


def shared(program: Program) -> Buffer:
    return next(s.buffer for s in walk(program.body) if isinstance(s, Alloc))


def test_elements_are_found_where_they_lie() -> None:
    program = swizzled()
    verify(program)
    assert "s: float32[8, 32] shared swizzle [3, 2, 3]:" in print_program(program)
    assert parse_program(print_program(program)) == program
    x = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    np.testing.assert_array_equal(run(program, {"x": x}), x.T)


@pytest.mark.parametrize("columns", [8, 16, 32, 64, 128])
def test_every_element_has_a_place_and_columns_lie_in_all_banks(columns: int) -> None:
    buffer = shared(swizzled(TEXT.replace("32] shared", f"{columns}] shared")))
    places = [[buffer.place(row * columns + i) for i in range(columns)] for row in range(8)]
    assert sorted(p for row in places for p in row) == list(range(storage_size(buffer)))
    for chunk in range(0, columns, 4):
        assert len({row[chunk] // 4 % 8 for row in places}) == 8


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("8, 32] shared", "8, 32] shared strides [36, 1]", "are 36 elements apart"),
        ("8, 32] shared", "8, 32] shared strides [1, 8]", "elements side by side"),
        ("] shared", "] register", "not in shared memory"),
        (" shared:", " shared swizzle [1, 2, 3]:", "swizzled already"),
        ("alloc s:", "alloc r:", "no local buffer s"),
    ],
)
def test_what_cannot_be_swizzled(old: str, new: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        swizzled(TEXT.replace(old, new))


@pytest.mark.parametrize("bits", ["[3, 2, 2]", "[3, 2]"])
def test_a_swizzle_that_loses_elements_is_refused(bits: str) -> None:
    with pytest.raises(VerifyError, match="swizzled"):
        verify(parse_program(TEXT.replace("shared:", f"shared swizzle {bits}:")))
