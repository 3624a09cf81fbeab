"""Neighbouring dimensions of a task as one: where all that reads them goes through them together,
and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.sizes import symbol
from autotune.tasks.joined import in_one_shape, joined
from autotune.types import Layout, Task
from tests.unit.codegen.kernels import node, task, value

N, H, W = symbol("N", 1, 8), symbol("H", 1, 64), symbol("W", 1, 64)
IMAGE = (N, 3, H, W)


def reduced(axes: tuple[int, ...], keepdims: bool, made: tuple[int, ...], **input_: Any) -> Task:
    """The mean of squares."""
    return task(
        [
            node("mul", "i0 i0", "t0"),
            node("reduce_mean", "t0", "o0", axes=axes, keepdims=keepdims),
        ],
        value("i0", IMAGE, **input_), value("t0", IMAGE), value("o0", made),
    )  # fmt: skip


def along(op: str, axis: int) -> Task:
    return task([node(op, "i0", "o0", axis=axis)], value("i0", IMAGE), value("o0", IMAGE))


def scaled(*other: int) -> Task:
    shapes = value("i0", IMAGE), value("i1", other), value("o0", IMAGE)
    return task([node("mul", "i0 i1", "o0")], *shapes)


@pytest.mark.parametrize(
    ("found", "image", "made"),
    [
        (reduced((2, 3), False, (N, 3)), (N, 3, 1, H * W), (N, 3)),
        (reduced((2, 3), True, (N, 3, 1, 1)), (1, 3 * N, 1, H * W), (1, 3 * N, 1, 1)),
        (reduced((1, 2, 3), False, (N,)), (N, 1, 1, 3 * H * W), (N,)),
        (along("softmax", 1), (N, 3, 1, H * W), (N, 3, 1, H * W)),
        (scaled(N, 3, 1, 1), (1, 3 * N, 1, H * W), (1, 3 * N, 1, H * W)),
        (scaled(3, 1, 1), (N, 3, 1, H * W), (N, 3, 1, H * W)),
    ],
)
def test_what_is_gone_through_together_is_one_dimension(
    found: Task, image: tuple[int, ...], made: tuple[int, ...]
) -> None:
    one = joined(found)
    assert one.value("i0").type.shape == image
    assert one.value("o0").type.shape == made
    assert one.value("i0").layout.strides[-1] == 1
    assert one.nodes == found.nodes


@pytest.mark.parametrize(
    "found",
    [
        reduced((1, 3), False, (N, H)),
        reduced((2, 3), False, (N, 3), pads=((0, 0), (0, 0), (1, 1), (1, 1))),
        along("softmax", -1),
        scaled(N, 1, H, 1),
    ],
)
def test_what_is_apart_is_left(found: Task) -> None:
    """Rows that are summed up but whose channels are not, zeros between rows in memory, one
    dimension in a sum and the other not, factors of rows."""
    assert joined(found).value("i0").type.shape[-1] == W


@pytest.mark.parametrize("around", ["what is read", "what is made", "nothing", "both"])
def test_a_reshape_is_a_copy_where_one_side_lies_side_by_side(around: str) -> None:
    """Its indices are divided by no size; memory is the same."""
    halo = {"pads": ((0, 0), (0, 0), (1, 1), (1, 1))}
    shapes = {"i0": IMAGE, "o0": (3 * N, 1, H, W)}
    if around in ("what is read", "nothing"):
        shapes["o0"] = (3 * H * N * W,)
    apart = {"i0": around in ("what is read", "both"), "o0": around in ("what is made", "both")}
    values = [
        value(name, shape, **(halo if apart[name] else {})) for name, shape in shapes.items()
    ]
    found = task([node("reshape", "i0", "o0", shape=shapes["o0"])], *values)
    one = in_one_shape(found)
    if around == "both":
        assert one is found
        return
    assert [each.op for each in one.nodes] == ["copy"]
    assert one.value("i0").type.shape == one.value("o0").type.shape
    for name, here in apart.items():
        assert not here or one.value(name) == found.value(name)
        assert here or one.value(name).layout == Layout.dense(one.value(name).type.shape)
