"""Kernels that write over their input compute the same as kernels that do not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler.build import build_kernels
from autotune.compiler.link import link
from autotune.graph.feeds import random_feeds
from autotune.graph.pipeline import optimize
from autotune.placement.memory_plan import plan_memory
from autotune.placement.partition import partition as parts_of
from autotune.placement.types import Partition
from autotune.runtime.model import CompiledModel
from autotune.target import host_target
from autotune.types import Array
from tests.unit.graph.nets import Net
from tests.unit.runtime.partitions import partition_of

CALLS = [
    ("abs", ("x",), "a"),
    ("add", ("a", "y"), "b"),
    ("mul", ("b", "x"), "c"),
    ("mul", ("c", "c"), "d"),
    ("add", ("row", "d"), "e"),
    ("neg", ("e",), "out"),
]


def outputs(partition: Partition, threads: int, in_place: bool) -> tuple[Array, int]:
    """The model's output, and how many calls write over an input."""
    target = host_target(threads)
    plan = plan_memory(partition, in_place=in_place)
    kernels = build_kernels(tuple(partition.weights()), target, None, processes=1)
    model = CompiledModel(link(partition, plan, kernels, target, versions=()))
    (result,) = model.run(random_feeds(model.inputs, seed=0)).values()
    return result, len(plan.in_place)


@pytest.mark.parametrize("threads", [1, 2])
@settings(max_examples=6)
@given(shape=st.tuples(st.integers(1, 5), st.integers(1, 70)), haloed=st.booleans())
def test_writing_in_place_changes_nothing(
    threads: int, shape: tuple[int, int], haloed: bool
) -> None:
    names = ["a", "b", "c", "d", "e"] if haloed else []
    partition = partition_of(
        CALLS, shape=shape, shapes={"row": (1, shape[1])}, haloed=names, halo=2
    )
    got, count = outputs(partition, threads, in_place=True)
    want, _ = outputs(partition, threads, in_place=False)
    assert count == 4
    np.testing.assert_array_equal(got, want)


FAST = ((1, 1, 16), (1, 3, 5), (2, 1, 33), (2, 3, 16))
"""Each number of threads, side of windows, and remainder of channels."""
ALL = itertools.product((1, 2), (1, 3), (5, 16, 33))


@pytest.mark.parametrize(
    ("threads", "kernel", "channels"),
    [pytest.param(*case, marks=() if case in FAST else pytest.mark.slow) for case in ALL],
)
def test_a_residual_is_written_over(threads: int, kernel: int, channels: int) -> None:
    """Blocks of two convolutions, each adding its input to its result, direct and tiled."""
    n = Net()
    x = n.op("relu", n.conv(n.feed("x", 1, 3, 9, 12), channels, k=1))
    for _ in range(3):
        inner = n.op("relu", n.conv(x, channels, k=kernel))
        x = n.op("relu", n.op("add", n.conv(inner, channels, k=kernel), x))
    partition = parts_of(optimize(n.graph(n.conv(x, 4, k=kernel))))
    got, count = outputs(partition, threads, in_place=True)
    want, _ = outputs(partition, threads, in_place=False)
    assert count == 3
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("spreading", ["matmul", "softmax"])
def test_what_other_elements_need_is_not_written_over(spreading: str) -> None:
    """x + x @ w and x + softmax(|x|): an element of the sum needs a whole row of x."""
    n = Net()
    x = n.op("relu", n.linear(n.feed("x", 6, 8), 8))
    if spreading == "matmul":
        spread = n.op("matmul", x, n.weights(8, 8), transpose_b=False)
    else:
        spread = n.op("softmax", n.op("abs", x), axis=1)
    partition = parts_of(optimize(n.graph(n.linear(n.op("add", spread, x), 4))))
    assert len(partition.calls) == 3
    assert plan_memory(partition).in_place == ()
