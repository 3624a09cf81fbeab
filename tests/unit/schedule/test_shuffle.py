"""Reductions by exchange of registers, and whole tensors: shuffle, once."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError, VerifyError
from autotune.program.ir import Barrier, Program, Shuffle, walk
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

X = np.random.default_rng(0).normal(size=(3, 200)).astype(np.float32)
ROWS = """program p
param x: float32[3, 200]
param y: float32[3] written
for m in 3 serial:
  y[m] = float32(0.0)
  for k in 200 serial:
    y[m] sum= x[m, k]
"""


def shuffled(threads: int, *, text: str = ROWS) -> Program:
    steps = [
        {"step": "split", "loop": "k", "factor": threads, "outer": "kc", "inner": "kt"},
        {"step": "reorder", "loops": ["kt", "kc"]},
        {"step": "bind", "loop": "m", "axis": "block.x"},
        {"step": "shuffle", "buffer": "y", "loop": "kt"},
        {"step": "single_thread", "loop": "m"},
    ]
    return apply_schedule(parse_program(text), schedule_from_json(steps))


@pytest.mark.parametrize(("threads", "widths"), [(8, [8]), (32, [32]), (128, [32, 4])])
def test_threads_add_up_what_they_have(threads: int, widths: list[int]) -> None:
    program = shuffled(threads)
    verify(program)
    assert parse_program(print_program(program)) == program
    assert [s.width for s in walk(program.body) if isinstance(s, Shuffle)] == widths
    np.testing.assert_allclose(run(program, {"x": X}), X.sum(axis=1), rtol=1e-5, atol=1e-5)


def test_registers_of_all_threads_get_the_result_without_waiting() -> None:
    text = ROWS.replace("  y[m] = f", "  alloc r: float32[] register:\n    r[] = f")
    text = text.replace("  for k", "    for k")
    text = text.replace("    y[m] sum= x[m, k]", "      r[] sum= x[m, k]")
    text += "    y[m] = r[]\n"
    steps = [
        {"step": "split", "loop": "k", "factor": 32, "outer": "kc", "inner": "kt"},
        {"step": "reorder", "loops": ["kt", "kc"]},
        {"step": "bind", "loop": "m", "axis": "block.x"},
        {"step": "shuffle", "buffer": "r", "loop": "kt"},
        {"step": "single_thread", "loop": "m"},
    ]
    program = apply_schedule(parse_program(text), schedule_from_json(steps))
    verify(program)
    waits = [s for s in walk(program.body) if isinstance(s, Barrier)]
    assert len(waits) == 1, "for the store of y alone"
    np.testing.assert_allclose(run(program, {"x": X}), X.sum(axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("threads", "reason"), [(12, "not a power of two"), (2048, "more than a warp of warps")]
)
def test_what_cannot_be_exchanged(threads: int, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        shuffled(threads)


def test_a_shuffle_stands_outside_of_thread_loops() -> None:
    lines = print_program(shuffled(32)).split("\n")
    at = next(n for n, line in enumerate(lines) if "shuffle" in line)
    lines[at] = "  " + lines[at]
    with pytest.raises(VerifyError, match="outside its thread loops"):
        verify(parse_program("\n".join(lines)))


def test_a_shuffle_needs_all_its_threads() -> None:
    text = print_program(shuffled(8)).replace("shuffle sum 8", "shuffle sum 16")
    with pytest.raises(VerifyError, match="no 16 threads side by side"):
        verify(parse_program(text))


def test_what_has_no_loop_gets_one() -> None:
    text = ROWS.replace("y: float32[3]", "y: float32[]").replace("[m]", "[]")
    text = text.replace("[m, k]", "[1, k]").replace("for m in 3 serial:\n", "")
    text = text.replace("\n  ", "\n")
    once = schedule_from_json([{"step": "unit_loop", "loop": "one"}])
    program = apply_schedule(parse_program(text), once)
    assert "for one in 1 serial:\n  y[] = float32(0.0)\n  for k" in print_program(program)
    np.testing.assert_allclose(run(program, {"x": X}), X[1].sum(), rtol=1e-5)
    with pytest.raises(ScheduleError, match="computed in a loop"):
        apply_schedule(parse_program(ROWS), once)
