"""Elementwise kernels that write over their input compute the same as kernels that do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.compiler.build import build_kernels
from autotune.compiler.link import link
from autotune.graph.plan import Partition
from autotune.runtime.executor import CompiledModel, random_feeds
from autotune.runtime.memory_plan import plan_memory
from autotune.target import host_target
from autotune.types import Array
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
    return model.run(random_feeds(model.inputs, seed=0))["out"], len(plan.in_place)


@pytest.mark.parametrize("threads", [1, 2])
@settings(deadline=None, max_examples=6)
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
