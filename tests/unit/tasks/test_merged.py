"""Leading dimensions of a task as one: where every place is treated alike, and nowhere else."""

from __future__ import annotations

import pytest

from autotune.sizes import symbol
from autotune.tasks.merged import merged
from autotune.types import Task
from tests.unit.codegen.kernels import node, task, value

B, S = symbol("B", 1, 8), symbol("S", 1, 64)


def product(*extra: int) -> Task:
    """Rows times weights, a bias, and an operand of another shape added."""
    made = (B, S, 8)
    return task(
        [
            node("matmul", "i0 c0", "t0"),
            node("add", "t0 c1", "t1"),
            node("add", "t1 i1", "o0"),
        ],
        value("i0", (B, S, 4)), value("i1", extra or made), value("c0", (4, 8)),
        value("c1", (8,)), value("t0", made), value("t1", made), value("o0", made),
    )  # fmt: skip


def pointwise(stride: int, pad: int) -> Task:
    """A convolution by 1x1; `pad`: zeros around the input in memory."""
    rows = (S + stride - 1) // stride
    halo = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    return task(
        [node("conv2d", "i0 c0", "o0", strides=(stride, stride), pads=(0,) * 4)],
        value("i0", (B, S, S, 4), pads=halo), value("c0", (1, 1, 4, 8)),
        value("o0", (B, rows, rows, 8)),
    )  # fmt: skip


@pytest.mark.parametrize("found", [product(), product(1, 1, 8), product(8)])
def test_rows_are_one_dimension(found: Task) -> None:
    shapes = {v.name: v.type.shape for v in merged(found).values}
    assert shapes["o0"] == (1, B * S, 8)
    assert shapes["i0"] == (1, B * S, 4)
    assert shapes["c0"] == (4, 8)


def test_the_places_of_an_image_are_rows() -> None:
    assert merged(pointwise(1, 0)).value("o0").type.shape == (1, 1, B * S * S, 8)


@pytest.mark.parametrize(
    "found", [product(1, S, 8), product(B, 1, 8), pointwise(2, 0), pointwise(1, 1)]
)
def test_what_differs_from_place_to_place_is_left(found: Task) -> None:
    """Other operands for rows of one batch, strides, zeros between rows in memory."""
    assert merged(found) is found
