"""Small tasks for tasks of open sizes: lengths that no size of the model makes."""

from __future__ import annotations

import pytest

from autotune.errors import ScheduleError
from autotune.sizes import symbol
from autotune.tasks.samples import sample_task
from autotune.types import Task
from tests.unit.codegen.kernels import node, task, value

H = symbol("H", 40, 200)
ROWS = 4 * ((H + 2) // 4) - 20
"""Rows of an image that was halved twice without pads and doubled again: every fourth number."""


def filtered(rows: int) -> Task:
    """Windows of three over an image of so many rows."""
    made = rows - 2
    return task(
        [node("conv2d", "i0 c0", "o0", strides=(1, 1), pads=(0, 0, 0, 0))],
        value("i0", (1, rows, 16, 8)), value("c0", (3, 3, 8, 8)), value("o0", (1, made, 14, 8)),
    )  # fmt: skip


@pytest.mark.parametrize("length", [1, 7, 32])
def test_an_output_in_steps_has_samples_of_any_length(length: int) -> None:
    small = sample_task(filtered(ROWS), (length,), {"H": 120})
    assert [v.type.shape[1] for v in small.values] == [length + 2, 3, length]


def test_what_else_depends_on_the_size_keeps_the_steps() -> None:
    """Rows of a whole image, of which the output has every fourth number: seven are none."""
    cut = task(
        [node("slice", "i0", "o0", starts=(0, 0), stops=(ROWS, 8), steps=(1, 1))],
        value("i0", (H, 8)), value("o0", (ROWS, 8)),
    )  # fmt: skip
    with pytest.raises(ScheduleError, match="no sizes make"):
        sample_task(cut, (7,), {"H": 120})


def test_one_extent_twice_has_samples_of_two_lengths() -> None:
    """Squared distances of all points from all: each operand says which of the two it has."""
    points = symbol("N", 1, 500)
    pairs = (2, points, points, 3)
    distances = task(
        [
            node("sub", "i0 i1", "t0"), node("mul", "t0 t0", "t1"),
            node("reduce_sum", "t1", "o0", axes=(3,), keepdims=False),
        ],
        value("i0", (2, points, 1, 3)), value("i1", (2, 1, points, 3)),
        value("t0", pairs), value("t1", pairs), value("o0", pairs[:3]),
    )  # fmt: skip
    small = sample_task(distances, (4, 48), {"N": 100})
    shapes = {v.name: v.type.shape for v in small.values}
    assert shapes["i0"] == (2, 4, 1, 3)
    assert shapes["i1"] == (2, 1, 48, 3)
    assert shapes["o0"] == (2, 4, 48)
    assert small.value("i0").layout.strides[1] == 3
