"""Fetching ahead and tensor cores: what the steps make of a small program, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError, VerifyError
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

HEAD = "program p\nparam x: float32[8, 20]\nparam y: float32[8] written\n"
SUMS = (
    HEAD
    + """for b in 2 block.x:
  alloc r: float32[1] register:
    for t in 4 thread.x:
      r[0] = float32(0.0)
    for k in 5 serial:
      alloc s: float32[4, 4] shared strides [5, 1]:
        for c in 4 thread.x:
          for v in 4 vector:
            s[c, v] = x[4*b + c, 4*k + v]
        barrier
        for u in 4 thread.x:
          for i in 4 serial:
            r[0] sum= s[u, i]
        barrier
    for o in 4 thread.x:
      y[4*b + o] = r[0]
"""
)
GUARDED = SUMS.replace(
    "s[c, v] = x[4*b + c, 4*k + v]",
    "s[c, v] = select(0 <= k < 4, x[4*b + c, 4*k + v], float32(0.0))",
)
X = np.arange(160, dtype=np.float32).reshape(8, 20)
ASYNCHRONOUS = {"step": "asynchronous", "loop": "v"}


def pipeline(stages: int) -> dict[str, object]:
    return {"step": "pipeline", "loop": "k", "stages": stages}


def applied(text: str, *steps: dict[str, object]) -> Program:
    program = apply_schedule(parse_program(text), schedule_from_json(list(steps)))
    verify(program)
    return program


def refused(text: str, *steps: dict[str, object]) -> str:
    with pytest.raises(ScheduleError) as caught:
        applied(text, *steps)
    return str(caught.value)


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("first", [(), (ASYNCHRONOUS,)])
def test_a_pipeline_computes_the_same(first: tuple[dict[str, object], ...], stages: int) -> None:
    program = applied(SUMS, *first, pipeline(stages))
    text = print_program(program)
    assert f"alloc s: float32[{stages}, 4, 4] shared" in text
    assert text.count("commit") == (stages if first else 0)
    np.testing.assert_allclose(run(program, {"x": X}), X.sum(axis=1))


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_the_only_fetch_of_a_loop_knows_its_slot(stages: int) -> None:
    """ptxas takes the wrong one where it has to find out."""
    text = SUMS.replace("for k in 5", f"for k in {stages}")
    program = applied(text, ASYNCHRONOUS, pipeline(stages))
    last = stages - 1
    assert f"copy 4 s[{last}, c, 0] from x[4*b + c, {4 * last}]" in print_program(program)
    np.testing.assert_allclose(run(program, {"x": X}), X[:, : 4 * stages].sum(axis=1))


def test_waiting_for_too_little_is_found() -> None:
    text = print_program(applied(SUMS, ASYNCHRONOUS, pipeline(3))).replace("wait 1", "wait 2")
    assert np.isnan(run(parse_program(text), {"x": X})).any()


def test_a_pipeline_without_its_barrier_is_a_race() -> None:
    text = SUMS.replace("s[u, i]", "s[3 - u, i]")
    lines = print_program(applied(text, pipeline(2))).split("\n")
    lines.remove(next(line for line in lines if line.strip() == "barrier"))
    with pytest.raises(VerifyError, match="race"):
        run(parse_program("\n".join(lines)), {"x": X})


def test_zeros_are_stored_where_nothing_is_copied() -> None:
    program = applied(GUARDED, ASYNCHRONOUS, pipeline(2))
    text = print_program(program)
    assert "copy 4 s[" in text
    np.testing.assert_allclose(run(program, {"x": X}), X[:, :16].sum(axis=1))


def test_elements_apart_are_copied_one_by_one() -> None:
    text = SUMS.replace("s[c, v] =", "s[v, c] =").replace("s[u, i]", "s[i, u]")
    program = applied(text, ASYNCHRONOUS, pipeline(2))
    assert "copy 1 s[" in print_program(program)
    np.testing.assert_allclose(run(program, {"x": X}), X.sum(axis=1))


@pytest.mark.parametrize(
    ("text", "steps", "reason"),
    [
        (SUMS, [pipeline(1)], "1 stages in 5 iterations"),
        (SUMS, [pipeline(6)], "6 stages in 5 iterations"),
        (SUMS.replace("        barrier\n", "", 1), [pipeline(2)], "does not copy, wait"),
        (SUMS, [{"step": "asynchronous", "loop": "i"}], "does not copy to shared memory"),
        (SUMS.replace("= x[4*b + c, 4*k + v]", "= neg(x[4*b + c, 4*k + v])"), [ASYNCHRONOUS],
         "not what lies in a buffer"),
        (GUARDED.replace("0 <= k < 4", "0 <= 4*k + v < 17"), [ASYNCHRONOUS], "goes through"),
    ],
)  # fmt: skip
def test_what_cannot_be_fetched_ahead(
    text: str, steps: list[dict[str, object]], reason: str
) -> None:
    assert reason in refused(text, *steps)


MATRICES = """program p
param x: float32[16, 8]
param w: float32[8, 8]
param y: float32[16, 8] written
for b in 1 block.x:
  alloc r: float32[16, 8] register:
    for w0 in 1 warp:
      for m0 in 16 serial:
        for n0 in 8 serial:
          r[m0, n0] = float32(0.0)
    alloc a: float32[16, 8] shared:
      alloc c: float32[8, 8] shared:
        for t in 16 thread.x:
          for i in 8 serial:
            a[t, i] = x[t, i]
        for u in 8 thread.x:
          for j in 8 serial:
            c[u, j] = w[u, j]
        barrier
        for w1 in 1 warp:
          for k in 8 serial:
            for m in 16 serial:
              for n in 8 serial:
                r[m, n] sum= mul(a[m, k], c[n, k])
    for w2 in 1 warp:
      for m1 in 16 serial:
        for n1 in 8 serial:
          y[m1, n1] = r[m1, n1]
"""
TENSORIZE = {
    "step": "tensorize", "buffer": "r", "loops": ["m", "n", "k"], "rows": ["m0", "m1"],
    "columns": ["n0", "n1"],
}  # fmt: skip


def test_a_product_of_matrices_is_one_instruction() -> None:
    program = applied(MATRICES, TENSORIZE)
    assert "mma r[0, 0], a[0, 0], c[0, 0]" in print_program(program)
    x, w = (np.arange(n, dtype=np.float32).reshape(-1, 8) for n in (128, 64))
    np.testing.assert_allclose(run(program, {"x": x, "w": w}), x @ w.T)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("c[n, k])", "c[k, n])", "columns of float32 lie side by side"),
        ("mul(a", "add(a", "not a product"),
        ("sum= mul", "max= mul", "do not add to r alone"),
        ("for k in 8", "for k in 4", "a product of float32 is"),
        ("r[m1, n1]\n", "r[15 - m1, n1]\n", "than a thread's own"),
    ],
)
def test_what_no_tensor_core_computes(old: str, new: str, reason: str) -> None:
    text = MATRICES.replace(old, new)
    assert text != MATRICES
    assert reason in refused(text, TENSORIZE)
