"""The distance between tasks that transfer goes by."""

from __future__ import annotations

import dataclasses
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.db.codec import distance
from tests.unit.db.samples import matmul

extents = st.integers(1, 4096)


@settings(max_examples=30)
@given(extents, extents, extents, extents)
def test_distance_is_symmetric_and_zero_on_itself(m: int, k: int, n: int, o: int) -> None:
    a, b = matmul(m=m, k=k, n=n), matmul(m=o, k=k, n=n)
    assert distance(a, a) == 0
    assert distance(a, b) == distance(b, a) >= 0


def test_twice_the_extent_counts_once_per_tensor_that_has_it() -> None:
    assert distance(matmul(m=8), matmul(m=16)) == 2.0


def test_an_attribute_that_differs_counts_one() -> None:
    task = matmul()
    flags = [dataclasses.replace(task.nodes[0], attrs=(("flag", v),)) for v in (1, 2)]
    a, b = (dataclasses.replace(task, nodes=(node,)) for node in flags)
    assert distance(a, b) == 1.0


def test_other_ranks_are_never_near() -> None:
    task = matmul()
    value = dataclasses.replace(
        task.values[0],
        type=dataclasses.replace(task.values[0].type, shape=(1, 8, 16)),
        layout=dataclasses.replace(
            task.values[0].layout, strides=(128, 16, 1), halo=((0, 0),) * 3
        ),
    )
    other = dataclasses.replace(task, values=(value, *task.values[1:]))
    assert distance(task, other) == math.inf
