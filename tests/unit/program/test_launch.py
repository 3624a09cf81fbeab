"""Programs as launches, what is refused as one, and races between threads."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import VerifyError
from autotune.program.launch import launches, scratch_of
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify

HEAD = "program p\nparam x: float32[8]\nparam y: float32[8] written\n"
X = np.arange(8, dtype=np.float32)
REVERSED = """for b in 2 block.x:
  alloc s: float32[4] shared:
    for t in 4 thread.x:
      s[t] = x[4*b + t]
    barrier
    for u in 4 thread.x:
      y[4*b + u] = s[3 - u]
"""


def test_a_launch_has_a_grid_a_block_and_shared_memory() -> None:
    program = parse_program(HEAD + REVERSED)
    verify(program)
    (launch,) = launches(program)
    assert (launch.grid, launch.block, launch.threads) == ((2, 1, 1), (4, 1, 1), 4)
    assert launch.shared_bytes == 16


def test_blocks_share_nothing_and_threads_all() -> None:
    got = run(parse_program(HEAD + REVERSED), {"x": X})
    np.testing.assert_array_equal(got, [3, 2, 1, 0, 7, 6, 5, 4])


def test_every_top_level_statement_is_a_launch() -> None:
    body = "alloc g: float32[8] scratch:\n" + "".join(
        f"  for b{n} in 8 block.x:\n    {store}\n"
        for n, store in enumerate(("g[b0] = x[b0]", "y[b1] = g[7 - b1]"))
    )
    program = parse_program(HEAD + body)
    verify(program)
    assert len(launches(program)) == 2
    assert [b.name for b in scratch_of(program)] == ["g"]
    np.testing.assert_array_equal(run(program, {"x": X}), X[::-1])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("for t in 8 thread.x:\n  y[t] = x[t]\n", "outside a block loop"),
        ("for i in 2 serial:\n  for b in 4 block.x:\n    y[b] = x[b]\n", "outermost"),
        ("for b in 4 block.x:\n  for c in 2 block.x:\n    y[b] = x[b]\n", "two loops"),
        (
            "for b in 2 block.x:\n  for t in 4 thread.x:\n    y[t] = x[t]\n  y[b] = x[b]\n",
            "outside its thread loops",
        ),
        ("for b in 8 block.x:\n  for t in 1 thread.x:\n    barrier\n", "stand in a block"),
        ("for b in 8 block.x:\n  for t in 2 thread.x:\n    for u in 2 thread.x:\n"
         "      y[b] = x[b]\n", "inside a vector or thread.x loop"),
        ("for b in 8 block.x:\n  alloc s: float32[1] scratch:\n    y[b] = x[b]\n", "scratch s"),
        ("for b in 8 block.x:\n  for t in 1 thread.x:\n    alloc s: float32[1] shared:\n"
         "      y[b] = x[b]\n", "shared s"),
        ("for b in 8 block.x:\n  for q in 1 parallel:\n    y[b] = x[b]\n", "parallel loop q"),
    ],
)  # fmt: skip
def test_what_is_no_kernel(body: str, reason: str) -> None:
    with pytest.raises(VerifyError, match=reason):
        verify(parse_program(HEAD + body + "for z in 8 block.x:\n  y[z] = x[z]\n"))


def test_reading_what_another_thread_wrote_needs_a_barrier() -> None:
    with pytest.raises(VerifyError, match="before its writer is waited for"):
        run(parse_program(HEAD + REVERSED.replace("    barrier\n", "")), {"x": X})


def test_overwriting_what_another_thread_reads_needs_a_barrier() -> None:
    body = REVERSED + "    for v in 4 thread.x:\n      s[v] = x[v]\n"
    with pytest.raises(VerifyError, match="read and overwritten"):
        run(parse_program(HEAD + body), {"x": X})


def test_two_threads_may_not_write_one_element() -> None:
    body = "for b in 1 block.x:\n  for t in 4 thread.x:\n    y[0] = x[t]\n"
    with pytest.raises(VerifyError, match="written by two threads"):
        run(parse_program(HEAD + body), {"x": X})


def test_blocks_of_a_launch_may_not_exchange_anything() -> None:
    body = (
        "alloc g: float32[1] scratch:\n  for b in 2 block.x:\n    for t in 1 thread.x:\n"
        "      g[0] = x[b]\n      y[b] = g[0]\n"
    )
    with pytest.raises(VerifyError, match="race"):
        run(parse_program(HEAD + body), {"x": X})


def test_registers_around_thread_loops_are_each_thread_s_own() -> None:
    body = (
        "for b in 2 block.x:\n  alloc r: float32[1] register:\n"
        "    for t in 4 thread.x:\n      r[0] = x[4*b + t]\n"
        "    for u in 4 thread.x:\n      y[4*b + u] = r[0]\n"
    )
    np.testing.assert_array_equal(run(parse_program(HEAD + body), {"x": X}), X)
