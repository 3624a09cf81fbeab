"""Sums carried down a column, and what is kept in registers meanwhile: programs, results, what is
refused."""

from __future__ import annotations

import numpy as np
import pytest

import cost_model
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.program.text import print_stmt
from autotune.schedule import apply_schedule, schedule_from_json
from autotune.target import host_target
from autotune.tasks.build import build_program
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.unit.codegen.kernels import node, run_kernel, task, value

HOST = host_target()
DOWN = """program p
param x: float32[11, 4]
param w: float32[3, 4] constant
param y: float32[5, 4] written
for i in 5 serial:
  for c in 4 serial:
    y[i, c] = float32(0.0)
    for k in 3 serial:
      y[i, c] sum= mul(x[2*i + k, c], w[k, c])
"""
CACHE = {"step": "cache_write", "buffer": "y", "loops": ["c"]}
REPLACE = {"step": "scalar_replacement", "buffer": "w", "loop": "i"}
ROLLING = {"step": "rolling_window", "loop": "i", "over": "k"}


def rolled(text: str = DOWN, *steps: dict[str, object]) -> Program:
    """The program after the steps: by default its sums rolled down the loop i."""
    program = apply_schedule(parse_program(text), schedule_from_json(steps or (CACHE, ROLLING)))
    verify(program)
    return program


def results(program: Program) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    draw = np.random.default_rng(0)
    shapes = {p.name: p.shape for p in program.params if not p.written}
    return run(program, {n: draw.standard_normal(s, np.float32) for n, s in shapes.items()})


def test_the_next_sums_begin_with_the_row_that_both_read() -> None:
    text = print_stmt(rolled().body[0])
    assert "y.reg.next[c_first] sum= mul(x[k_first, c_first], w[k_first, c_first])" in text
    assert "y.reg[c] sum= mul(x[2*i + k + 2, c], w[k + 2, c])" in text
    assert "y.reg.next[c] sum= mul(x[2*i + k + 2, c], w[k, c])" in text


@pytest.mark.parametrize("step", [1, 2])
def test_sums_stay_the_same(step: int) -> None:
    text = DOWN.replace("2*i + k", f"{step}*i + k" if step > 1 else "i + k")
    np.testing.assert_allclose(results(rolled(text)), results(parse_program(text)), rtol=1e-6)


def test_what_is_kept_is_read_ahead_of_the_loop() -> None:
    program = rolled(DOWN, CACHE, REPLACE, ROLLING)
    text = [line.strip() for line in print_stmt(program.body[0]).splitlines()]
    assert text[0] == "alloc w.kept: float32[3, 4] register:"
    assert text[3] == "w.kept[k_w_kept, c_w_kept] = w[k_w_kept, c_w_kept]"
    assert not any("w[" in line for line in text[4:])
    np.testing.assert_allclose(results(program), results(parse_program(DOWN)), rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[2*i + k, c], w", "[2*i + k, c], w", "not the outermost"),
        ("x[2*i + k, c]", "x[k, c]", "read nothing in common"),
        ("2*i + k", "3*i + k", "read nothing in common"),
    ],
)
def test_what_does_not_roll(old: str, new: str, message: str) -> None:
    text = DOWN.replace(old, new).replace("float32[11, 4]", "float32[15, 4]")
    over = "c" if old == new else "k"
    with pytest.raises(ScheduleError, match=message):
        rolled(text, CACHE, ROLLING | {"over": over})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("i in 5 serial", "i in 5 parallel", "holds more than sums"),
        ("y[i, c] = float32(0.0)", "y[i, c] = w[0, c]", "begin with the same value"),
        ("mul(x[2*i + k, c], w[k, c])", "mul(x[2*i + k, c], y[0, c])", "several elements"),
    ],
)
def test_sums_that_do_not_roll(old: str, new: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        rolled(DOWN.replace(old, new), CACHE, ROLLING)


def test_a_loop_without_sums_in_registers_does_not_roll() -> None:
    with pytest.raises(ScheduleError, match="holds more than sums in registers"):
        rolled(DOWN, ROLLING)


def test_what_is_read_under_a_guard_that_changes_is_not_kept() -> None:
    row = "      y[i, c] sum= mul(x[2*i + k, c], w[k, c])"
    guarded = f"      if 0 <= k - i < 3:\n  {row}"
    with pytest.raises(ScheduleError, match="w is read under a guard that changes"):
        rolled(DOWN.replace(row, guarded), REPLACE)


def test_what_is_in_registers_is_not_kept_there_again() -> None:
    with pytest.raises(ScheduleError, match="cannot be read ahead of loop c"):
        rolled(DOWN, REPLACE, REPLACE | {"buffer": "w.kept", "loop": "c"})


@pytest.mark.parametrize(
    ("buffer", "message"), [("x", "changes along loop i"), ("y", "not read at one place")]
)
def test_what_cannot_be_kept(buffer: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        rolled(DOWN, CACHE, REPLACE | {"buffer": buffer})


@pytest.mark.parametrize("channels", [16, 24, 37])
@pytest.mark.parametrize(
    "config",
    [
        {"tile_w": 4, "tile_h": 1, "down": 7},
        {"tile_w": 7, "tile_h": 1, "down": 14},
        {"tile_w": 1, "tile_h": 7, "along": 1},
        {"tile_w": 1, "tile_h": 4, "along": 1, "order": "channels_first"},
    ],
)
def test_a_rolled_convolution_is_right(channels: int, config: dict[str, int | str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 29, 29, channels), np.float32)
    w = rng.standard_normal((3, 3, 1, channels), np.float32)
    attrs = {"strides": (2, 2), "pads": (0, 0, 0, 0), "groups": channels}
    made = task(
        [node("conv2d", "i0 c0", "o0", **attrs)],
        value("i0", x.shape), value("c0", w.shape), value("o0", (1, 14, 14, channels)),
    )  # fmt: skip
    rule = rule_for(made, HOST)
    items = dict(cost_model.default(made, Machine.of(HOST), rule).items)
    items |= {"vectors": 1, "down": 1, "along": 0} | config
    schedule = rule.schedule(made, HOST, Config(tuple(items.items())))
    program = apply_schedule(build_program(made), schedule)
    got = run_kernel(made, program, HOST, {"i0": x, "c0": w})
    views = [x[:, i : i + 27 : 2, j : j + 27 : 2] * w[i, j] for i in range(3) for j in range(3)]
    np.testing.assert_allclose(got, sum(views), rtol=1e-4, atol=1e-5)
