"""What is asked for early, and loops written out: programs made, and what is refused."""

from __future__ import annotations

import pytest

from autotune.errors import ScheduleError
from autotune.schedule import STEPS
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.schedule.test_steps import COPY, lines, step

VECTOR = """program p
param x: float32[17, 16]
param y: float32[17, 16] written
for m in 17 serial:
  for l in 16 vector:
    y[m, l] = x[m, l]
"""


def test_prefetch_takes_the_next_panel_a_few_lines_an_iteration() -> None:
    text = """program p
param w: float32[4, 8, 64] constant
param y: float32[4, 2, 64] written
for b in 4 serial:
  for t in 2 serial:
    for k in 8 serial:
      for l in 64 vector:
        y[b, t, l] sum= w[b, k, l]
"""
    made = STEPS.get("prefetch")(buffer="w", panel="b", loop="k")
    program = made.apply(parse_program(text))
    verify(program)
    # 512 elements of 4 bytes are 32 lines, in 16 iterations.
    assert lines(program)[3:5] == [
        "prefetch w[b + 1, 0, 32*k + 256*t]",
        "prefetch w[b + 1, 0, 32*k + 256*t + 16]",
    ]


def test_prefetch_of_a_panel_that_many_iterations_meet_is_asked_for_once() -> None:
    text = """program p
param w: float32[2, 4, 8, 16] constant
param y: float32[2, 4, 3, 16] written
for i in 2 serial:
  for b in 4 serial:
    for t in 3 serial:
      for k in 8 serial:
        for l in 16 vector:
          y[i, b, t, l] sum= w[i, b, k, l]
"""
    program = STEPS.get("prefetch")(buffer="w", panel="b", loop="k").apply(parse_program(text))
    verify(program)
    # 8 lines of the panel behind this one, by the first 8 of 24 iterations.
    assert lines(program)[4:6] == ["if 0 <= k + 8*t < 8:", "prefetch w[i, b + 1, 0, 16*k + 128*t]"]


def test_prefetch_counts_panels_where_a_tile_has_one_channel() -> None:
    text = """program p
param w: float32[4, 8, 1] constant
param y: float32[4, 1] written
for b in 4 serial:
  for k in 8 serial:
    for lane in 1 serial:
      y[b + lane, 0] sum= w[b + lane, k, 0]
"""
    program = STEPS.get("prefetch")(buffer="w", panel="b", loop="k").apply(parse_program(text))
    verify(program)
    assert lines(program)[2:4] == ["if 0 <= k < 1:", "prefetch w[b + 1, 0, 16*k]"]


def test_prefetch_of_a_part_that_is_used_next() -> None:
    text = """program p
param w: float32[4, 2, 2, 8, 64] constant
param y: float32[4, 2, 64] written
for b in 4 serial:
  for t in 2 serial:
    for k in 8 serial:
      for l in 64 vector:
        y[b, t, l] sum= sub(w[b, 0, 0, k, l], w[b, 1, 1, k, l])
"""
    fields = {"first": "t", "loop": "k", "fixed": ((1, 0), (2, 1)), "ahead": (0,)}
    program = STEPS.get("prefetch_part")(buffer="w", **fields).apply(parse_program(text))
    verify(program)
    assert lines(program)[3:5] == [
        "prefetch w[b + 1, 0, 1, 0, 32*k + 256*t]",
        "prefetch w[b + 1, 0, 1, 0, 32*k + 256*t + 16]",
    ]
    with pytest.raises(ScheduleError, match="w is read at several places in loop k"):
        STEPS.get("prefetch_part")(buffer="w", first="t", loop="k").apply(parse_program(text))


ROWS = """program p
param x: float32[4, 2, 40]
param y: float32[4, 2, 40] written
for n in 4 serial:
  alloc s: float32[2] scratch:
    for i in 2 serial:
      s[i] = float32(0.0)
      for k in 40 serial:
        s[i] sum= x[n, i, k]
    for r in 2 serial:
      for c in 5 serial:
        for l in 8 vector:
          y[n, r, 8*c + l] = sub(x[n, r, 8*c + l], s[r])
"""


def test_prefetch_of_what_the_next_iteration_reads() -> None:
    made = STEPS.get("prefetch_next")(buffer="x", outer="n", first="r", loop="c")
    program = made.apply(parse_program(ROWS))
    verify(program)
    # 80 elements of 4 bytes are 5 lines, in 10 iterations.
    assert "prefetch x[n + 1, 0, 16*c + 80*r]" in lines(program)


def test_write_out_decides_what_depends_on_the_number() -> None:
    text = """program p
param x: float32[3, 4]
param y: float32[4] written
for i in 3 serial:
  if 0 <= i < 2:
    for j in 4 serial:
      y[j] = select(0 <= i < 1, x[0, j], add(x[i, j], y[j]))
"""
    program = STEPS.get("peel_all")(loop="i").apply(parse_program(text))
    verify(program)
    assert lines(program) == [
        "for j.i0 in 4 serial:",
        "y[j.i0] = x[0, j.i0]",
        "for j.i1 in 4 serial:",
        "y[j.i1] = add(x[1, j.i1], y[j.i1])",
    ]


@pytest.mark.parametrize(
    ("program", "name", "fields", "message"),
    [
        (COPY, "prefetch", {"buffer": "w", "panel": "j", "loop": "i"}, "is not inside loop j"),
        (COPY, "prefetch", {"buffer": "w", "panel": "i", "loop": "j"}, "has no panel"),
        (COPY, "prefetch_part", {"buffer": "x", "first": "j", "loop": "i"},
         "is not inside loop j"),
        (COPY, "prefetch_part", {"buffer": "x", "first": "i", "loop": "j", "ahead": (1,)},
         "has no such part"),
        (ROWS, "prefetch_next", {"buffer": "x", "outer": "r", "first": "n", "loop": "c"},
         "is not inside"),
        (ROWS, "prefetch_next", {"buffer": "s", "outer": "n", "first": "r", "loop": "c"},
         "n does not go forward in s"),
        (ROWS, "prefetch_next", {"buffer": "z", "outer": "n", "first": "r", "loop": "c"}, "z"),
        (VECTOR, "prefetch_next", {"buffer": "y", "outer": "m", "first": "l", "loop": "l"},
         "must be serial"),
        (VECTOR, "peel_all", {"loop": "l"}, "loop l is vector"),
        (VECTOR, "peel_all", {"loop": "m"}, "loop m has 17 iterations; up to 16 are"),
    ],
)  # fmt: skip
def test_refusals(program: str, name: str, fields: dict[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        step(program, name, **fields)
