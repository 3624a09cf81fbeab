"""Scratch buffers whose every n-th elements lie side by side: program, results, refusals."""

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

WINDOWS = """program p
param x: float32[4, 15]
param y: float32[4, 7] written
for i in 4 serial:
  alloc t: float32[15] scratch:
    for k in 15 serial:
      t[k] = x[i, k]
    for j in 7 serial:
      y[i, j] = float32(0.0)
      for a in 3 serial:
        y[i, j] sum= t[2*j + a]
"""


def split(buffer: str = "t", dim: int = 0, factor: int = 2) -> Program:
    step = {"step": "split_dimension", "buffer": buffer, "dim": dim, "factor": factor}
    program = apply_schedule(parse_program(WINDOWS), schedule_from_json([step]))
    verify(program)
    return program


def test_every_second_element_lies_beside_the_next_one_of_its_kind() -> None:
    text = [line.strip() for line in print_program(split()).splitlines()]
    assert "alloc t: float32[2, 8] scratch:" in text
    assert "t[(k % 2), (k // 2)] = x[i, k]" in text
    assert "y[i, j] sum= t[(a % 2), j + (a // 2)]" in text


@pytest.mark.parametrize("factor", [2, 3, 15])
def test_results_stay_the_same(factor: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, 15), np.float32)
    want, got = (run(p, {"x": x}) for p in (parse_program(WINDOWS), split(factor=factor)))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buffer": "x"}, "x is no scratch buffer"),
        ({"dim": 1}, r"dimension 1 of t\[15\] cannot be split by 2"),
        ({"factor": 1}, r"dimension 0 of t\[15\] cannot be split by 1"),
        ({"factor": 16}, r"dimension 0 of t\[15\] cannot be split by 16"),
    ],
)
def test_what_cannot_be_split_is_refused(changes: dict[str, str | int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        split(**changes)  # type: ignore[arg-type]
