"""The slow interpreter: what it computes and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import VerifyError
from autotune.program.packing import apply_pack
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program

HEAD = "program p\nparam i0: float32[4] halo [1:2]\nparam o0: float32[4] written\n"
INPUT = {"i0": np.asarray([1, 2, 3, 4], np.float32)}


def _run(body: str, arrays: dict[str, np.ndarray] = INPUT, head: str = HEAD) -> np.ndarray:
    return run(parse_program(head + body), arrays)


@pytest.mark.parametrize("kind", ["serial", "parallel", "unroll", "vector"])
def test_every_kind_of_loop_runs_all_iterations(kind: str) -> None:
    got = _run(f"for x in 4 {kind}:\n  o0[x] = add(i0[x], value(2*x, float32))\n")
    np.testing.assert_array_equal(got, [1, 4, 7, 10])


def test_a_halo_holds_zeros() -> None:
    got = _run("for x in 4 serial:\n  o0[x] = add(i0[x - 1], i0[x + 2])\n")
    np.testing.assert_array_equal(got, [3, 5, 2, 3])


@pytest.mark.parametrize(
    ("combine", "want"), [("sum", 10), ("max", 4), ("min", 0.5), ("prod", 12)]
)
def test_stores_combine(combine: str, want: float) -> None:
    body = (
        "o0[0] = float32(0.5)\n"
        "for x in 4 serial:\n"
        f"  o0[0] {combine}= i0[x]\n"
        "for y in 3 serial:\n"
        "  o0[y + 1] = float32(0.0)\n"
    )
    assert _run(body)[0] == pytest.approx(want + (0.5 if combine == "sum" else 0))


def test_new_memory_holds_nothing_to_rely_on() -> None:
    body = "alloc t: float32[4] register:\n  for x in 4 serial:\n    o0[x] = t[x]\n"
    assert np.isnan(_run(body)).all()


def test_the_branch_not_taken_is_not_loaded() -> None:
    body = "for x in 4 serial:\n  o0[x] = select(0 <= x - 3 < 9, float32(7.0), i0[x + 3])\n"
    np.testing.assert_array_equal(_run(body), [4, 0, 0, 7])


def test_a_guard_stops_its_body() -> None:
    body = (
        "for x in 4 serial:\n"
        "  o0[x] = i0[x]\n"
        "for y in 9 serial:\n"
        "  if 0 <= y - 2 < 2 and 1 <= y < 3:\n"
        "    o0[y] = float32(0.0)\n"
    )
    np.testing.assert_array_equal(_run(body), [1, 2, 0, 4])


def test_packed_weights_are_indexed_as_packed() -> None:
    head = (
        "program p\nparam c0: float32[2, 3, 2] constant\nparam o0: float32[2, 3, 2] written\n"
        "pack c0: [3, 3] splits [1:2] order [1, 0, 2]\n"
    )
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    body = (
        "for a in 2 serial:\n  for b in 3 serial:\n    for c in 2 serial:\n"
        "      o0[a, b, c] = c0[a, b, c]\n"
    )
    program = parse_program(head + body)
    got = run(program, {"c0": weights})
    np.testing.assert_array_equal(got, apply_pack(program.packs[0], weights))
    assert got[1, 2, 1] == 0
    assert got[1, 2, 0] == 8


def test_indices_are_read_from_memory() -> None:
    head = "program p\nparam i0: float32[4]\nparam i1: int64[3]\nparam o0: float32[3] written\n"
    arrays = INPUT | {"i1": np.asarray([-1, 0, 99])}
    got = _run("for x in 3 serial:\n  o0[x] = i0[int(i1[x], 4)]\n", arrays, head)
    np.testing.assert_array_equal(got, [4, 1, 4])


def test_arithmetic_has_the_precision_of_its_type() -> None:
    got = _run("for x in 4 serial:\n  o0[x] = add(float32(16777216.0), float32(1.0))\n")
    assert got[0] == 16777216


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("o0[0] = i0[6]\n", r"i0\[6\] is outside -1..5"),
        ("o0[0] = i0[-2]\n", r"i0\[-2\] is outside"),
        ("o0[4] = i0[0]\n", "is written outside its extents"),
        ("i0[4] = float32(0.0)\n", "is written outside its extents"),
        ("o0[0] = int64(1)\n", "holds float32, got int64"),
        ("o0[0] = nowhere[0]\n", "buffer nowhere is used where it does not exist"),
        ("o0[0] = table [[1.0]][0, 1]\n", "table.* is outside"),
    ],
)
def test_wrong_programs_are_refused(body: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        _run(body)
