"""One pass for a mean and a variance: what shift and jam make, their results, what they refuse."""

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

VARIANCE = """program p
param x: float32[3, 8]
param y: float32[3] written
alloc s: float32[3] scratch:
  alloc m: float32[3] scratch:
    alloc q: float32[3] scratch:
      for i in 3 serial:
        s[i] = float32(0.0)
        for k in 8 serial:
          s[i] sum= x[i, k]
      for a in 3 serial:
        m[a] = mul(s[a], float32(0.125))
      for j in 3 serial:
        q[j] = float32(0.0)
        for l in 8 serial:
          q[j] sum= mul(sub(x[j, l], m[j]), sub(x[j, l], m[j]))
      for b in 3 serial:
        y[b] = add(q[b], m[b])
"""
SHIFT = {"step": "shift", "buffer": "q"}
ROWS = {"step": "jam", "loop": "i", "other": "j"}
WITHIN = {"step": "jam", "loop": "k", "other": "l"}


def changed(*steps: dict[str, Any], text: str = VARIANCE) -> Program:
    program = apply_schedule(parse_program(text), schedule_from_json(list(steps)))
    verify(program)
    return program


def rows() -> np.ndarray[Any, np.dtype[np.float32]]:
    found = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    found[1] += 1000
    found[2, 0], found[0, 7] = 1e4, -1e5
    return found


@pytest.mark.parametrize("steps", [(SHIFT,), (SHIFT, ROWS), (SHIFT, ROWS, WITHIN)])
def test_variances_stay_the_same(steps: tuple[dict[str, Any], ...]) -> None:
    x = rows()
    wide = x.astype(np.float64)
    want = ((wide - wide.mean(1, keepdims=True)) ** 2).sum(1) + wide.mean(1)
    np.testing.assert_allclose(run(changed(*steps), {"x": x}), want, rtol=4e-7)


def test_equal_elements_have_no_variance() -> None:
    x = np.full((3, 8), 0.1, np.float32)
    np.testing.assert_array_equal(run(changed(SHIFT), {"x": x}), x[:, 0])


def test_both_sums_are_added_in_one_loop() -> None:
    lines = [line.strip() for line in print_program(changed(SHIFT, ROWS, WITHIN)).splitlines()]
    at = lines.index("for k in 8 serial:")
    assert lines[at - 2 : at] == ["s[i] = float32(0.0)", "q[i] = float32(0.0)"]
    middling = "max(min(x[i, 0], x[i, 4]), min(max(x[i, 0], x[i, 4]), x[i, 7]))"
    assert lines[at + 1] == f"s[i] sum= sub(x[i, k], {middling})"
    assert lines[at + 2].startswith(f"q[i] sum= mul(sub(x[i, k], {middling})")
    assert lines[at + 3] == "for a in 3 serial:"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.125", "0.25", "is no mean of 8"),
        ("m[j]), sub(x[j, l], m[j])", "m[j]), sub(x[j, l], s[j])", "no squares"),
        ("mul(s[a], float32(0.125))", "mul(s[a], s[a])", "not a sum times a number"),
        ("add(q[b], m[b])", "add(q[b], s[b])", "read by more than a mean"),
        ("s[i] sum= x[i, k]", "s[i] sum= neg(x[i, k])", "not of the same elements"),
        ("s[i] sum= x", "s[i] max= x", "not one sum"),
        ("in 8 serial", "in 1 serial", "rows of 1 elements"),
        ("for l in 8", "for l in 7", "rows of 7 elements"),
    ],
)
def test_what_is_not_shifted(old: str, new: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        changed(SHIFT, text=VARIANCE.replace(old, new))


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        ("i", "j", "needs what is computed"),
        ("j", "i", "not beside"),
        ("k", "l", "not beside"),
        ("i", "k", "not of the same form"),
    ],
)
def test_what_does_not_run_side_by_side(one: str, two: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        changed({"step": "jam", "loop": one, "other": two})


SUMS = """program p
param x: float32[12, 8]
param y: float32[12, 8] written
for o in 2 serial:
  for i in 5 serial:
    for k in 4 serial:
      y[{written}, 4*o + k] = x[i, 4*o + k]
  for j in 5 serial:
    for l in 4 serial:
      y[{other}, 4*o + l] sum= y[{read}, 4*o + l]
"""
PLACES = ("2*i", "2*i + 1", "2*i + 2", "-2*i + 8", "i", "0", "i + 6")


@pytest.mark.parametrize("written", PLACES)
@pytest.mark.parametrize("other", PLACES)
@pytest.mark.parametrize("read", PLACES)
def test_loops_over_the_same_elements_run_together_if_none_comes_early(
    written: str, other: str, read: str
) -> None:
    moved = {"other": other.replace("i", "j"), "read": read.replace("i", "j")}
    text = SUMS.format(written=written, **moved)
    x = np.arange(96, dtype=np.float32).reshape(12, 8)
    y = np.full((12, 8), 1000.0, np.float32)
    try:
        together = changed(ROWS, text=text)
    except ScheduleError:
        return  # which are taken, the next test says
    want = run(parse_program(text), {"x": x, "y": y.copy()})
    np.testing.assert_array_equal(run(together, {"x": x, "y": y.copy()}), want)


@pytest.mark.parametrize(
    ("written", "other", "read"),
    [("2*i", "2*j", "2*j"), ("2*i + 2", "2*j + 2", "2*j"), ("2*i + 1", "2*j + 1", "2*j + 1")],
)
def test_a_sum_goes_into_the_loop_that_makes_its_terms(
    written: str, other: str, read: str
) -> None:
    text = SUMS.format(written=written, other=other, read=read)
    assert "for j" not in print_program(changed(ROWS, text=text))
