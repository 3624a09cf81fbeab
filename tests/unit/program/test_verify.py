"""Every invariant of a program, broken once."""

from __future__ import annotations

import itertools

import pytest

from autotune.errors import VerifyError
from autotune.program.ir import Bound, index
from autotune.tasks.build import build_program
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import guarded_interval, verify
from tests.unit.program import tasks

HEAD = (
    "program p\n"
    "param i0: float32[4] halo [1:2]\n"
    "param i1: int64[2]\n"
    "param c0: float32[6] constant\n"
    "param o0: float32[4] halo [1:1] written\n"
)


def _verify(body: str, head: str = HEAD) -> None:
    verify(parse_program(head + body))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for x in 2 serial:\n  for x in 2 serial:\n    o0[x] = i0[x]\n", "name x is used twice"),
        ("for x in 2 odd:\n  o0[x] = i0[x]\n", "a loop needs a kind"),
        ("for x in 0 serial:\n  o0[x] = i0[x]\n", "positive extent"),
        ("alloc i0: float32[2] scratch:\n  o0[0] = i0[0]\n", "name i0 is used twice"),
        ("alloc t: float32[2] heap:\n  o0[0] = i0[0]\n", "an alloc needs a scope"),
        ("alloc t: float32[0] scratch:\n  o0[0] = i0[0]\n", "positive extents"),
        ("o0[0] = t[0]\n", "buffer t is not declared here"),
        ("o0[0] = i0[0, 0]\n", "i0 has 1 dimensions, got 2 indices"),
        ("o0[x] = i0[0]\n", "loop variable x does not exist here"),
        ("i0[0] = o0[0]\n", "param i0 is read-only"),
        ("o0[4] = i0[0]\n", "o0 dimension 0 is accessed at 4..4, allowed is 0..3"),
        ("for x in 4 serial:\n  o0[x] = i0[x + 3]\n", "i0 dimension 0 is accessed at 3..6"),
        ("o0[0] = i0[int(i1[2], 4)]\n", "i1 dimension 0 is accessed at 2..2"),
        ("o0[0] = i0[int(i1[0], 9)]\n", "i0 dimension 0 is accessed at 0..8"),
        ("o0[0] = table [[1.0, 2.0]][0, 2]\n", "a table is read at 2..2, its extent is 2"),
    ],
)
def test_a_broken_invariant_is_named(body: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        _verify(body)


def test_the_message_shows_the_statement() -> None:
    with pytest.raises(VerifyError, match=r"in: o0\[9\] = float32\(0.0\)"):
        _verify("o0[9] = float32(0.0)\n")


@pytest.mark.parametrize(
    "body",
    [
        "for x in 4 serial:\n  o0[x] = add(i0[x - 1], i0[x + 2])\n",
        "for x in 2 serial:\n  for y in 3 serial:\n    if 0 <= 3*x + y < 4:\n"
        "      o0[3*x + y] = c0[3*x + y]\n",
        "for x in 6 serial:\n  if 1 <= x < 5:\n    o0[x - 1] = c0[x]\n",
        "for x in 4 serial:\n  o0[x] = select(0 <= x - 1 < 2, i1[x - 1], i0[x])\n",
        "for x in 4 serial:\n  o0[x] = select(0 <= x < 2, c0[x], i1[x - 2])\n",
        "for x in 20 serial:\n  o0[clamp(x, 0, 3)] = c0[(x // 4)]\n",
        "for x in 20 serial:\n  o0[(x % 4)] = i0[int(i1[(x % 2)], 4)]\n",
        "for x in 9 serial:\n  if 0 <= x < 8:\n    o0[(x // 2)] = i0[0]\n",
        "alloc t: float32[2] scratch halo [1:1]:\n  t[-1] = i0[0]\n  o0[0] = t[-1]\n",
    ],
)
def test_guards_make_accesses_legal(body: str) -> None:
    _verify(body)


def test_guards_are_needed() -> None:
    with pytest.raises(VerifyError, match=r"accessed at 0..5"):
        _verify("for x in 2 serial:\n  for y in 3 serial:\n    o0[3*x + y] = c0[3*x + y]\n")


def test_a_multiple_of_a_guarded_index_is_limited_too() -> None:
    x, y = index("x"), index("y")
    guards = (Bound(x * 4 + y, 0, 7),)
    assert guarded_interval((x * 4 + y) * 2 + 1, {"x": 2, "y": 4}, guards) == (1, 13)


def test_guards_limit_rows_that_a_blocks_threads_divide() -> None:
    block, thread = index("b"), index("t")
    loops, place = {"b": 3, "t": 32}, block * 32 + thread
    rows = block * 2 + thread // 4 // 2 // 2
    assert guarded_interval(rows, loops, (Bound(place, 0, 48),)) == (0, 2)
    images = (block * 8 + thread // 2 // 2) // 5
    assert guarded_interval(images, loops, (Bound(place, 0, 80),)) == (0, 3)
    images = (block * 8 + thread // 2 // 2 - 3) // 5
    assert guarded_interval(images, loops, (Bound(place, 0, 80),)) == (-1, 3)


def test_guards_limit_strided_places_of_a_thread_s_quotient() -> None:
    """32 b + t < 60 ends at a t of which a quarter is whole; what it limits is found exactly."""
    b, t = index("b"), index("t")
    for end, step, last in itertools.product(range(33, 65, 3), (1, 2, 3), (0, 2)):
        value = b * (8 * step) + t // 4 * step + index("k") - 1
        guards = (Bound(b * 32 + t, 0, end),)
        loops = {"b": 2, "t": 32, "k": last + 1}
        assert guarded_interval(value, loops, guards) == (-1, (end - 1) // 4 * step + last - 1)


def test_contradicting_guards_leave_nothing() -> None:
    x = index("x")
    for guards in (
        (Bound(x, 0, 3), Bound(x, 5, 9)), (Bound(index(-1), 0, 1),), (Bound(x, 1, 1),),
    ):  # fmt: skip
        low, high = guarded_interval(x, {"x": 9}, guards)
        assert low > high


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("program p\nparam i0: float32[4]\n", "exactly one param must be written"),
        ("program p\nparam o0: float32[4] written\nparam o0: float32[4]\n", "declared twice"),
        (HEAD + "pack i0: [4] splits [] order [0]\n", "is packed but is not constant"),
        (HEAD + "pack z: [4] splits [] order [0]\n", "packs of buffers that are no params: z"),
    ],
)
def test_params_are_checked(head: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        _verify("", head)


def test_packed_weights_are_indexed_as_packed() -> None:
    head = HEAD.replace("c0: float32[6]", "c0: float32[2, 4]")
    head += "pack c0: [6] splits [0:4] order [0, 1]\n"
    _verify("o0[0] = c0[1, 3]\n", head)
    with pytest.raises(VerifyError, match=r"c0 dimension 1 is accessed at 4..4"):
        _verify("o0[0] = c0[1, 4]\n", head)


def test_naive_loops_are_legal() -> None:
    for made in (tasks.conv_relu(), tasks.conv_conv(), tasks.attention_scores()):
        verify(build_program(made))
