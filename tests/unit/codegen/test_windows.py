"""Lanes at constant distances come from vectors by shuffles; tiles are transposed in registers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from autotune.codegen.llvm.kernel import write_kernel
from autotune.codegen.llvm.transpose import ABSENT, transposed
from autotune.codegen.llvm.window import cover, lane_indices, picks, window_of
from autotune.program.ir import clamp, index
from autotune.target import host_target, load_target
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from tests.unit.codegen.kernels import node, run_kernel, task, value
from tests.unit.codegen.test_move import scheduled


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("item", [1, 2, 4, 8])
def test_rows_become_columns(size: int, item: int) -> None:
    vectors = {f"r{i}": [(i, j) for j in range(size)] for i in range(size)}

    def shuffle(a: str, b: str, order: Sequence[int]) -> str:
        both = [*vectors[a], *vectors[b]]
        vectors[f"t{len(vectors)}"] = [both[i] for i in order]
        return f"t{len(vectors) - 1}"

    columns = transposed([f"r{i}" for i in range(size)], item, shuffle)
    for j, name in enumerate(columns):
        assert vectors[name] == [(i, j) for i in range(size)]


def test_absent_rows_are_not_shuffled() -> None:
    made: list[Sequence[int]] = []

    def shuffle(_a: str, _b: str, order: Sequence[int]) -> str:
        made.append(order)
        return f"t{len(made)}"

    assert transposed([ABSENT] * 4, 4, shuffle) == [ABSENT] * 4
    transposed(["r0", *[ABSENT] * 15], 4, shuffle)
    assert len(made) < 64 / 2


def test_a_window_covers_what_lanes_read_and_nothing_beside_it() -> None:
    value = (index("v") * 2 + index("o") * 16 + 3) // 4 + 1
    lanes = lane_indices(value, {"v"}, 8, {}, {"v": 8, "o": 5})
    window = window_of(lanes)
    assert window is not None
    assert (window.first, window.lanes) == (index("o") * 4 + 1, (0, 1, 1, 2, 2, 3, 3, 4))
    found = cover(window, 8)
    assert found is not None
    assert (found.width, found.starts) == (4, (0, 1))
    assert picks(window, found) == [(0, 0), (0, 1), (0, 1), (0, 2), (0, 2), (0, 3), (0, 3), (1, 3)]


def test_lanes_that_a_clamp_may_hold_back_have_no_window() -> None:
    lanes = lane_indices(clamp(index("v") + index("o"), 0, 4), {"v"}, 4, {}, {"v": 4, "o": 5})
    assert window_of(lanes) is None


def test_lanes_far_apart_are_loaded_one_by_one() -> None:
    window = window_of([index("o") + 100 * lane for lane in range(8)])
    assert window is not None
    assert cover(window, 8) is None


def resize(mode: str, before: int, after: int, coordinate: str = "half_pixel") -> Task:
    return task(
        [node("resize", "i0", "o0", out_shape=(3, after), mode=mode, coordinate=coordinate)],
        value("i0", (3, before)),
        value("o0", (3, after)),
    )


def border(width: int, before: int, after: int, mode: str) -> Task:
    return task(
        [node("border", "i0", "o0", pads=(0, before, 0, after), mode=mode)],
        value("i0", (3, width)),
        value("o0", (3, before + width + after)),
    )


def pool(width: int, stride: int) -> Task:
    return task(
        [node("max_pool2d", "i0", "o0", kernel=(2, 3), strides=(1, stride), pads=(0, 1, 0, 1))],
        value("i0", (2, 4, width, 1)),
        value("o0", (2, 3, (width - 1) // stride + 1, 1)),
    )


WINDOWS = {
    "nearest x2": resize("nearest", 40, 80),
    "nearest x3": resize("nearest", 35, 105),
    "nearest by half": resize("nearest", 90, 45),
    "linear x2": resize("linear", 64, 128),
    "linear x8": resize("linear", 13, 104),
    "linear x1.5": resize("linear", 62, 93),
    "linear aligned": resize("linear", 33, 65, "align_corners"),
    "mirrored": border(70, 3, 5, "reflect"),
    "edges again": border(37, 2, 0, "edge"),
    "wrapped": border(64, 5, 7, "wrap"),
    "pool": pool(83, 2),
    "pool of neighbours": pool(50, 1),
}
TRANSPOSES = {
    "to channels last": ((2, 37, 5, 9), (0, 2, 3, 1)),
    "to channels first": ((2, 5, 9, 40), (0, 3, 1, 2)),
    "matrix": ((45, 67), (1, 0)),
    "whole tiles": ((64, 48), (1, 0)),
    "powers of two": ((64, 1024), (1, 0)),
    "blocks": ((7, 9, 2, 2, 20), (4, 0, 2, 1, 3)),
}


def transpose(name: str, dtype: str = "float32") -> Task:
    shape, perm = TRANSPOSES[name]
    result = tuple(shape[p] for p in perm)
    made = [node("transpose", "i0", "o0", perm=perm)]
    return task(made, value("i0", shape, dtype), value("o0", result, dtype))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_read_right(name: str, threads: int) -> None:
    made, target = WINDOWS[name], host_target(threads)
    arrays = random_inputs(made, 0)
    got = run_kernel(made, scheduled(made, target), target, arrays)
    np.testing.assert_allclose(got, evaluate_task(made, arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("name", TRANSPOSES)
def test_tiles_are_those_of_the_transpose(name: str, dtype: str) -> None:
    made, target = transpose(name, dtype), host_target(1)
    arrays = random_inputs(made, 0)
    got = run_kernel(made, scheduled(made, target), target, arrays)
    np.testing.assert_array_equal(got, evaluate_task(made, arrays))


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3", "cortex-a72"])
@pytest.mark.parametrize("name", [*(name for name in WINDOWS if name != "wrapped"), *TRANSPOSES])
def test_no_element_is_loaded_alone(name: str, target: str) -> None:
    """But where a row ends and begins again, in the middle of a vector."""
    made = WINDOWS[name] if name in WINDOWS else transpose(name)
    found = load_target(target)
    text = write_kernel(scheduled(made, found), found, "k").function
    assert not re.search(r"insertelement .*, i64 [1-9]", text)
