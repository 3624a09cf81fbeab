"""Accesses under a mask that are wider than a register are cut here: LLVM reads, with AVX2, halves
that are off."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.target import Target, host_target, load_target
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from tests.unit.codegen.kernels import node, run_kernel, task, value
from tests.unit.codegen.test_move import scheduled

AVX2 = load_target("x86-64-v3", 1)
WIDE = dataclasses.replace(AVX2, vector_bytes=64)
"""Vectors of two registers."""
ODD = [((3, 67), ((4, 0), (1, 1))), ((3, 90), ((0, 2), (4, 3))), ((3, 99), ((4, 4), (1, 3)))]


def padded(shape: tuple[int, int], pads: tuple[tuple[int, int], ...], dtype: str) -> Task:
    begin, end = zip(*pads, strict=True)
    out = tuple(n + sum(p) for n, p in zip(shape, pads, strict=True))
    made = node("pad", "i0", "o0", pads=(*begin, *end))
    return task([made], value("i0", shape, dtype), value("o0", out, dtype))


@pytest.mark.parametrize("target", [AVX2, WIDE, host_target(1)], ids=["a register", "two", "host"])
@pytest.mark.parametrize("dtype", ["int64", "float64", "float32"])
@pytest.mark.parametrize(("shape", "pads"), ODD)
def test_nothing_beside_a_row_is_read(
    shape: tuple[int, int], pads: tuple[tuple[int, int], ...], dtype: str, target: Target
) -> None:
    made = padded(shape, pads, dtype)
    arrays = random_inputs(made, 0)
    got = run_kernel(made, scheduled(made, target), target, arrays)
    np.testing.assert_array_equal(got, evaluate_task(made, arrays))
