"""The steps for GPUs: what they make of a small program, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import ScheduleError, VerifyError
from autotune.program.ir import Alloc, Barrier, For, Program, walk
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

HEAD = "program p\nparam x: float32[6, 8]\nparam w: float32[8, 5]\n"
PRODUCT = (
    HEAD
    + """param y: float32[6, 5] written
for m in 6 serial:
  for n in 5 serial:
    y[m, n] = float32(0.0)
    for k in 8 serial:
      y[m, n] sum= mul(x[m, k], w[k, n])
"""
)
ROWS = (
    HEAD
    + """param y: float32[6] written
for m in 6 serial:
  y[m] = float32(0.0)
  for k in 8 serial:
    y[m] sum= x[m, k]
"""
)
X = np.arange(48, dtype=np.float32).reshape(6, 8)
W = np.arange(40, dtype=np.float32).reshape(8, 5) - 20
TILES = [
    {"step": "split", "loop": "m", "factor": 4, "outer": "mb", "inner": "mt"},
    {"step": "split", "loop": "n", "factor": 4, "outer": "nb", "inner": "ni"},
    {"step": "reorder", "loops": ["mb", "nb", "mt", "ni"]},
    {"step": "split", "loop": "k", "factor": 3, "outer": "ko", "inner": "ki"},
    {"step": "cache_write", "buffer": "y", "loops": ["mt", "ni"]},
    {"step": "reorder", "loops": ["mt", "ki", "ni"]},
]
SHARED = {
    "step": "shared", "loop": "ko", "buffers": ["x", "w"],
    "axes": [[["ki"], ["mt"]], [["ki"], ["ni"]]], "pads": [1, 0],
}  # fmt: skip
BIND = [
    {"step": "bind", "loop": "mb", "axis": "block.y"},
    {"step": "bind", "loop": "nb", "axis": "block.x"},
]


def applied(text: str, *steps: dict[str, object]) -> Program:
    return apply_schedule(parse_program(text), schedule_from_json(list(steps)))


def refused(text: str, *steps: dict[str, object]) -> str:
    with pytest.raises(ScheduleError) as caught:
        applied(text, *steps)
    return str(caught.value)


def correct(program: Program) -> None:
    """Verified, and the product of X and W without a race."""
    verify(program)
    np.testing.assert_allclose(run(program, {"x": X, "w": W}), X @ W)


# ----------------------------------------------------------------------------------------- bind


def test_bound_loops_keep_their_iterations() -> None:
    program = applied(PRODUCT, *BIND_OF_ELEMENTS)
    assert "for m in 6 block.x:" in print_program(program)
    correct(program)


BIND_OF_ELEMENTS: tuple[dict[str, object], ...] = (
    {"step": "bind", "loop": "m", "axis": "block.x"},
    {"step": "bind", "loop": "n", "axis": "thread.x"},
)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([{"step": "bind", "loop": "m", "axis": "grid.x"}], "no axis 'grid.x'"),
        ([{"step": "bind", "loop": "n", "axis": "block.x"}], "not bound to blocks"),
        ([{"step": "bind", "loop": "n", "axis": "thread.x"}], "in no block loop"),
        ([BIND_OF_ELEMENTS[0], {"step": "bind", "loop": "n", "axis": "block.x"}], "already"),
        (
            [*BIND_OF_ELEMENTS, {"step": "bind", "loop": "k", "axis": "thread.x"}],
            "inside a loop of thread.x",
        ),
        ([BIND_OF_ELEMENTS[0], {"step": "bind", "loop": "k", "axis": "thread.x"}], "same y"),
    ],
)
def test_what_cannot_be_bound(steps: list[dict[str, object]], reason: str) -> None:
    assert reason in refused(PRODUCT, *steps)


# --------------------------------------------------------------------------------------- shared


def test_operands_are_copied_once_for_all_threads() -> None:
    program = applied(PRODUCT, *TILES, SHARED)
    text = print_program(program)
    assert "x.shared: float32[3, 4] shared strides [5, 1]" in text
    assert sum(isinstance(s, Barrier) for s in walk(program.body)) == 2
    assert "sum= mul(x.shared[ki, mt], w.shared[ki, ni])" in text
    correct(program.__class__(program.name, program.params, _bound(program).body))


def _bound(program: Program) -> Program:
    """Tiles as blocks, one thread for each row of them."""
    steps = [*BIND]
    for kind in ("_init", "", "_out"):
        steps.append({"step": "bind", "loop": f"mt{kind}", "axis": "thread.x"})
    for name in ("x_s0", "w_s0"):
        steps.append({"step": "bind", "loop": name, "axis": "thread.x"})
    return apply_schedule(program, schedule_from_json(steps))


def test_zeros_replace_guards_in_the_sum() -> None:
    program = applied(PRODUCT, *TILES, SHARED)
    text = print_program(program)
    assert "select(0 <= 4*mb + x_s1 < 6 and 0 <= 3*ko + x_s0 < 8, x[" in text
    sums = text.split("barrier")[1]
    assert "if" not in sums


def test_guards_stay_where_a_sum_is_no_product() -> None:
    text = PRODUCT.replace("mul(", "add(")
    sums = print_program(applied(text, *TILES, SHARED)).split("barrier")[1]
    assert "if 0 <= ki + 3*ko < 8:" in sums
    assert "mb" not in sums


def test_a_missing_barrier_is_a_race() -> None:
    program = _bound(applied(PRODUCT, *TILES, SHARED))
    lines = print_program(program).split("\n")
    lines.remove(next(line for line in lines if line.strip() == "barrier"))
    with pytest.raises(VerifyError, match="race"):
        run(parse_program("\n".join(lines)), {"x": X, "w": W})


def test_threads_keep_their_own_part_of_a_tile() -> None:
    program = applied(PRODUCT, *TILES, SHARED)
    program = apply_schedule(
        _bound(program), schedule_from_json([{"step": "privatize", "buffer": "y.reg"}])
    )
    found = [s.buffer for s in walk(program.body) if isinstance(s, Alloc)]
    assert next(b for b in found if b.name == "y.reg").shape == (4,)
    correct(program)


def test_what_no_thread_has_for_itself_stays_whole() -> None:
    assert "thread's own" in refused(
        PRODUCT, *TILES, *BIND, {"step": "privatize", "buffer": "y.reg"}
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pads": [0]}, "its padding"),
        ({"axes": [[["ki"], ["mb"]], [["ki"], ["ni"]]]}, "are not loops inside ko"),
        ({"axes": [[["ki"], []], [["ki"], ["ni"]]]}, "x depends on more loops"),
        ({"buffers": ["x", "v"]}, "v"),
    ],
)
def test_what_cannot_be_shared(changes: dict[str, object], reason: str) -> None:
    assert reason in refused(PRODUCT, *TILES, SHARED | changes)


# ------------------------------------------------------------------------ uniform, tree, solo


def test_bounds_in_vectors_are_those_of_the_vector() -> None:
    text = HEAD + (
        "param y: float32[8] written\n"
        "for i in 3 serial:\n  for v in 4 serial:\n"
        "    if 0 <= 4*i + v < 8:\n      y[4*i + v] = x[0, 4*i + v]\n"
    )
    assert "if 0 <= i < 2:" in print_program(
        applied(text, {"step": "uniform_bounds", "loops": ["v"]})
    )


def test_bounds_that_cut_through_a_vector_stay() -> None:
    text = HEAD + (
        "param y: float32[7] written\n"
        "for i in 2 serial:\n  for v in 4 serial:\n"
        "    if 0 <= 4*i + v < 7:\n      y[4*i + v] = x[0, 4*i + v]\n"
    )
    program = applied(text, {"step": "uniform_bounds", "loops": ["v"]})
    assert "if 0 <= 4*i + v < 7:" in print_program(program)


TREE = (
    {"step": "split", "loop": "k", "factor": 4, "outer": "kc", "inner": "kt"},
    {"step": "reorder", "loops": ["kt", "kc"]},
    {"step": "bind", "loop": "m", "axis": "block.x"},
    {"step": "tree", "buffer": "y", "loop": "kt", "lanes": ""},
    {"step": "single_thread", "loop": "m"},
)


def test_a_tree_adds_up_what_threads_have() -> None:
    program = applied(ROWS, *TREE)
    verify(program)
    np.testing.assert_allclose(run(program, {"x": X, "w": W}), X.sum(axis=1))
    threads = [s.extent for s in walk(program.body) if isinstance(s, For) and s.var[:2] == "kt"]
    assert threads == [4, 2, 1, 1]


def test_a_tree_needs_a_power_of_two() -> None:
    steps = (TREE[0] | {"factor": 3}, *TREE[1:])
    assert "not a power of two" in refused(ROWS, *steps)


def test_a_block_s_store_is_one_thread_s() -> None:
    program = applied(ROWS, *TREE)
    assert "for m_solo0 in 1 thread.x:" in print_program(program)
