"""What zeroes halos in every run: all around a value, nothing of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.compiler.build import build_kernels
from autotune.compiler.link import link
from autotune.graph.feeds import random_feeds
from autotune.graph.pipeline import optimize
from autotune.placement.halo_clearing import halo_program
from autotune.placement.memory_plan import plan_memory
from autotune.placement.partition import partition
from autotune.placement.types import Storage
from autotune.runtime.model import CompiledModel
from autotune.target import Target, host_target, load_target
from tests.interpreter.interp import run
from tests.interpreter.verify import verify
from tests.needs import needs
from tests.unit.graph.nets import Net

SIDES = st.tuples(st.integers(0, 2), st.integers(0, 2))


def storage_of(shape: tuple[int, ...], halo: tuple[tuple[int, int], ...], dtype: str) -> Storage:
    elements = math.prod(e + b + a for e, (b, a) in zip(shape, halo, strict=True))
    return Storage(
        name="s", kind="arena", dtype=dtype, elements=elements, zeroed=True, sharing="one",
        shape=shape, halo=halo,
    )  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 4), SIDES), min_size=1, max_size=4),
    st.sampled_from(["float32", "uint8"]),
)
def test_all_around_a_value_is_zeroed_and_nothing_of_it(
    dims: list[tuple[int, tuple[int, int]]], dtype: str
) -> None:
    shape, halo = tuple(e for e, _ in dims), tuple(h for _, h in dims)
    assume(any(map(any, halo)))
    program = halo_program(storage_of(shape, halo, dtype), host_target())
    verify(program)
    written = run(program, {}) == 0  # what the interpreter finds is never zero
    np.testing.assert_array_equal(written, ~np.pad(np.ones(shape, bool), halo).reshape(-1))


@pytest.mark.parametrize(
    "target", [host_target(), pytest.param(load_target("c"), marks=needs("cc"))], ids=["llvm", "c"]
)
def test_a_model_whose_layers_share_memory_with_halos_is_right_again_and_again(
    target: Target,
) -> None:
    n = Net()
    x = n.feed("x", 1, 3, 12, 13)
    for channels in (5, 16, 7):
        x = n.op("relu", n.conv(n.op("relu", n.conv(x, channels, k=3)), channels, k=1))
    parts = partition(optimize(n.graph(x)))
    plans = [plan_memory(parts, lend=lend) for lend in (True, False)]
    assert plans[0].cleared
    assert plans[0].arena_bytes < plans[1].arena_bytes
    kernels = build_kernels(tuple(parts.weights()), target, None, processes=1)
    models = [CompiledModel(link(parts, plan, kernels, target, versions=())) for plan in plans]
    for seed in range(3):
        feeds = random_feeds(models[0].inputs, seed)
        (got,), (want,) = (model.run(feeds).values() for model in models)
        np.testing.assert_array_equal(got, want)
