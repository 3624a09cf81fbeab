"""Kernels made for a small size run at any: right at all of them, or refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import cost_model
from autotune.errors import ScheduleError
from autotune.machine import Machine
from autotune.sizes import symbol, value_at
from autotune.target import host_target
from autotune.tasks.apart import together
from autotune.tasks.at_sizes import task_at
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.tasks.strips import in_strips
from autotune.types import Layout, Task
from tests.unit.codegen.kernels import node, run_kernel, task, value

H, W, N = symbol("H", 8, 64), symbol("W", 8, 64), symbol("N", 1, 8)
TARGET = host_target()
PLACES = ({"H": 8, "W": 9, "N": 1}, {"H": 13, "W": 31, "N": 2}, {"H": 24, "W": 16, "N": 1})


def convolution(stride: int = 1, kernel: int = 3, channels: int = 5) -> Task:
    pad = kernel // 2
    halo = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    rows, columns = (H + stride - 1) // stride, (W + stride - 1) // stride
    made = (N, rows, columns, 19)
    return task(
        [
            node("conv2d", "i0 c0", "t0", pads=(pad,) * 4, strides=(stride, stride)),
            node("add", "t0 c1", "t1"),
            node("add", "t1 i1", "t2"),
            node("relu", "t2", "o0"),
        ],
        value("i0", (N, H, W, channels), pads=halo),
        value("i1", made),
        value("c0", (kernel, kernel, channels, 19)),
        value("c1", (19,)),
        value("t0", made),
        value("t1", made),
        value("t2", made),
        value("o0", made),
    )


def pool() -> Task:
    """Its windows are limited to the image."""
    return task(
        [node("max_pool2d", "i0", "o0", kernel=(3, 3), strides=(2, 2), pads=(1,) * 4)],
        value("i0", (N, H, W, 16)),
        value("o0", (N, (H + 1) // 2, (W + 1) // 2, 16)),
    )


def rows() -> Task:
    return task(
        [node("matmul", "i0 c0", "o0")],
        value("i0", (N, W, 24)),
        value("c0", (24, 40)),
        value("o0", (N, W, 40)),
    )


def broadcast_sum() -> Task:
    return task(
        [node("add", "i0 i1", "o0")],
        value("i0", (N, H, W, 8)),
        value("i1", (1, W, 1)),
        value("o0", (N, H, W, 8)),
    )


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("made", "sample"),
    [
        (lambda: convolution(channels=48), {"H": 4, "W": 8, "N": 1}),  # in three stages
        (convolution, {"H": 4, "W": 8, "N": 1}),
        (lambda: convolution(2), {"H": 7, "W": 3, "N": 1}),
        (lambda: convolution(1, 1), {"H": 1, "W": 6, "N": 1}),
        (pool, {"H": 3, "W": 7, "N": 1}),
        (rows, {"W": 8, "N": 1}),
        (broadcast_sum, {"H": 2, "W": 8, "N": 1}),
    ],
)
def test_a_kernel_for_a_strip_is_right_at_any_size(
    made: Callable[[], Task], sample: dict[str, int], apart: bool
) -> None:
    """Strip after strip, or stage by stage."""
    sized = made()
    small = task_at(sized, sample)
    _, _, scheduled = cost_model.default_of(small, Machine.of(TARGET))
    program = in_strips(scheduled.program, sized, small, apart=apart)
    for sizes in PLACES:
        there = task_at(sized, sizes)
        arrays = random_inputs(there, 3)
        wanted = evaluate_task(there, arrays)
        found = run_kernel(there, program, TARGET, arrays, sizes)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def refused(sized: Task, sample: dict[str, int], because: str) -> None:
    small = task_at(sized, sample)
    with pytest.raises(ScheduleError, match=because):
        in_strips(build_program(small), sized, small)


def test_a_sum_over_a_size_has_no_strips() -> None:
    mean = task(
        [node("reduce_sum", "i0", "o0", axes=(1,), keepdims=False)],
        value("i0", (N, W, 8)),
        value("o0", (N, 8)),
    )
    refused(mean, {"N": 1, "W": 8}, "no strip cuts")


def test_zeros_that_lie_nowhere_cannot_be_read() -> None:
    made = (N, H, W, 4)
    bare = task(
        [node("conv2d", "i0 c0", "o0", pads=(1,) * 4)],
        value("i0", made),
        value("c0", (3, 3, 4, 4)),
        value("o0", made),
    )
    refused(bare, {"N": 1, "H": 4, "W": 4}, "do not lie in memory")


def test_the_last_strip_of_a_pool_must_end_in_the_image() -> None:
    """With an even image the sample's windows never reach its border, where an odd one's do."""
    refused(pool(), {"N": 1, "H": 4, "W": 8}, "may end beyond")


def test_sizes_of_a_task_are_values_of_its_symbols() -> None:
    there = task_at(convolution(2), {"H": 9, "W": 12, "N": 2})
    assert there.value("o0").type.shape == (2, 5, 6, 19)
    assert value_at(convolution().value("i0").layout.strides[1], {"W": 10}) == 12 * 5


def test_places_that_other_places_lie_between_are_no_run() -> None:
    """Steps of sequences, written as the batch's: the next step of one is a batch away."""
    made = (N, W, 8)
    whole = task(
        [node("relu", "i0", "o0")],
        value("i0", made),
        value("o0", made),
    )
    turned = Layout(strides=(8, 8 * N, 1), halo=((0, 0),) * 3)
    output = dataclasses.replace(whole.value("o0"), layout=turned)
    values = tuple(output if v.name == "o0" else v for v in whole.values)
    assert together(dataclasses.replace(whole, values=values)) is None
