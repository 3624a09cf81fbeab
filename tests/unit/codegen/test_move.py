"""Transposes of short dimensions: vectors read in runs and interleaved."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.codegen.llvm.kernel import write_kernel
from autotune.machine import Machine
from autotune.program.ir import Program
from autotune.schedule import apply_schedule
from autotune.target import Target, host_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Layout, Task
from search_spaces.rules import RULES
from tests.unit.codegen.kernels import node, run_kernel, task, value


def shuffle(points: int, groups: int, each: int, dtype: str = "float32") -> Task:
    """The channels of two groups interleaved, written between zeros."""
    shape = (2, points, each, groups)
    halo = ((0, 0), (1, 1), (0, 0), (0, 0))
    return task(
        [node("transpose", "i0", "o0", perm=(0, 1, 3, 2))],
        value("i0", (2, points, groups, each), dtype),
        value("o0", shape, dtype, pads=halo),
    )


def scheduled(made: Task, target: Target) -> Program:
    rule = RULES.get("nests")
    schedule = rule.schedule(made, target, cost_model.default(made, Machine.of(target), rule))
    return apply_schedule(build_program(made), schedule)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize(
    ("groups", "each"), [(2, 16), (2, 37), (3, 17), (4, 34), (5, 6), (6, 23), (7, 4), (4, 3)]
)
def test_interleaved_lanes_are_those_of_the_transpose(groups: int, each: int, dtype: str) -> None:
    made, target = shuffle(3, groups, each, dtype), host_target(1)
    arrays = random_inputs(made, 0)
    got = run_kernel(made, scheduled(made, target), target, arrays)
    np.testing.assert_array_equal(got, evaluate_task(made, arrays))


def test_images_become_channels_last() -> None:
    made = task(
        [node("transpose", "i0", "o0", perm=(0, 2, 3, 1))],
        value("i0", (1, 3, 5, 28)),
        value("o0", (1, 5, 28, 3)),
    )
    target, arrays = host_target(2), random_inputs(made, 0)
    got = run_kernel(made, scheduled(made, target), target, arrays)
    np.testing.assert_array_equal(got, evaluate_task(made, arrays))


def picked(points: int, groups: int, constant: bool = True) -> Task:
    """Rows of a matrix that lies by columns, in an order that is read when the kernel runs."""
    name = "c0" if constant else "i1"
    columns = dataclasses.replace(
        value("i0", (points, groups)), layout=Layout(strides=(1, points), halo=((0, 0),) * 2)
    )
    return task(
        [node("gather", f"i0 {name}", "o0", axis=1)],
        columns, value(name, (groups,), "int64"), value("o0", (points, groups)),
    )  # fmt: skip


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("order", [(3, 2, 1, 0), (0, 0, 2, -1), (2, -2, 0, -4), (1, 0)])
@pytest.mark.parametrize("points", [6, 16, 17, 35])
def test_every_run_begins_where_its_own_index_says(
    points: int, order: tuple[int, ...], constant: bool
) -> None:
    made, target = picked(points, len(order), constant), host_target(1)
    data = random_inputs(made, 0)["i0"]
    arrays = {"i0": data, "c0" if constant else "i1": np.array(order)}
    got = run_kernel(made, scheduled(made, target), target, arrays)
    np.testing.assert_array_equal(got, data[:, order])


def test_picked_runs_are_read_as_vectors() -> None:
    made, target = picked(16, 3), host_target(1)
    text = write_kernel(scheduled(made, target), target, "k").function
    assert "load <16 x float>" in text
    assert "insertelement" not in text


def test_no_element_is_moved_alone() -> None:
    made, target = shuffle(3, 4, 34), host_target(1)
    text = write_kernel(scheduled(made, target), target, "k").function
    assert "shufflevector" in text
    assert "insertelement" not in text


@pytest.mark.parametrize(("channels", "side"), [(32, 14), (48, 6), (16, 20), (19, 13)])
def test_tiles_that_go_on_in_the_next_row_of_an_image_are_turned(channels: int, side: int) -> None:
    # An image's rows are no multiple of a tile's; those that are written lie apart, for a border.
    halo = ((0, 0), (1, 1), (1, 1), (0, 0))
    made = task(
        [node("transpose", "i0", "o0", perm=(0, 2, 3, 1))],
        value("i0", (2, channels, side, side)),
        value("o0", (2, side, side, channels), pads=halo),
    )
    target, arrays = host_target(1), random_inputs(made, 0)
    program = scheduled(made, target)
    got = run_kernel(made, program, target, arrays)
    np.testing.assert_array_equal(got, evaluate_task(made, arrays))
    assert "insertelement" not in write_kernel(program, target, "k").function
