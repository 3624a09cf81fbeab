"""The executor: feeds checked, one native call per run, outputs that stay the caller's."""

from __future__ import annotations

import itertools
import threading
import weakref

import numpy as np
import pytest

from autotune.errors import ConfigError, FeedError
from autotune.graph.feeds import random_feeds
from autotune.memory import (
    ALIGNMENT,
    HUGE_PAGE_BYTES,
    LEAST_ALIGNED_BYTES,
    address,
    fresh_array,
    zeroed_block,
)
from autotune.runtime.model import CompiledModel
from autotune.types import Array, TensorType
from tests.unit.runtime import fakes

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def library() -> fakes.CallbackLibrary:
    return fakes.CallbackLibrary()


@pytest.fixture
def model(library: fakes.CallbackLibrary) -> CompiledModel:
    return CompiledModel(fakes.image(), library)


def test_run_is_one_native_call(model: CompiledModel, library: fakes.CallbackLibrary) -> None:
    out = model.run({"x": X})
    np.testing.assert_array_equal(out["y"], X * 3 + 1)
    assert library.runs == ["entry"]


def test_an_output_in_the_arena_is_copied_out(model: CompiledModel) -> None:
    first = model.run({"x": X})["t"]
    model.run({"x": X + 1})
    np.testing.assert_array_equal(first, X * 3)


def test_outputs_of_two_runs_do_not_share_memory(model: CompiledModel) -> None:
    first, second = model.run({"x": X})["y"], model.run({"x": X})["y"]
    assert not np.shares_memory(first, second)


def test_a_transposed_feed_is_copied(model: CompiledModel) -> None:
    feed = np.asfortranarray(X)
    np.testing.assert_array_equal(model.run({"x": feed})["y"], X * 3 + 1)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "expected inputs x; got none"),
        ({"x": X, "z": X}, "expected inputs x; got x, z"),
        ({"x": X[:1]}, r"expected shape \[2, 3\], got \[1, 3\]"),
        ([X], "expected a dict of arrays by input name, got list"),
        ({"x": X.astype(np.float64)}, r"expected float32, got float64.*astype\('float32'\)"),
    ],
)
def test_a_wrong_feed_is_refused(
    model: CompiledModel, feeds: dict[str, Array], message: str
) -> None:
    with pytest.raises(FeedError, match=message):
        model.run(feeds)


def test_no_runs_have_no_latency(model: CompiledModel) -> None:
    with pytest.raises(ConfigError, match="repeats must be at least 1, got 0"):
        model.bench(0)


def test_bench_times_every_kernel_in_order(
    model: CompiledModel, library: fakes.CallbackLibrary
) -> None:
    ticks = itertools.count()
    times = model.bench(repeats=3, clock=lambda: next(ticks) * 0.5)
    assert [k.kernel.symbol for k in times.kernels] == ["scale", "shift"]
    assert [k.time_s for k in times.kernels] == [0.5, 0.5]
    assert times.latency_s == (0.5, 0.5, 0.5)
    assert times.median_s == 0.5
    assert times.kernels[0].flops_per_s == 12
    assert library.runs[-6:] == ["scale", "shift"] * 3


def test_bench_keeps_its_output_buffers_alive(
    model: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Array]] = []
    alive: list[bool] = []

    def buffers() -> list[Array]:
        arrays = [np.empty(24, np.uint8)]
        made.extend(weakref.ref(a) for a in arrays)
        return arrays

    def clock() -> float:
        alive.append(made[-1]() is not None)
        return 0.0

    monkeypatch.setattr(fakes.session_of(model), "_output_buffers", buffers)
    model.bench(repeats=2, clock=clock)
    assert alive
    assert all(alive)


def test_threads_get_the_results_of_their_own_inputs(model: CompiledModel) -> None:
    results: dict[int, Array] = {}

    def work(number: int) -> None:
        for _ in range(20):
            results[number] = model.run({"x": X + number})["y"]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in results.items():
        np.testing.assert_array_equal(result, (X + number) * 3 + 1)


def test_random_feeds_depend_on_the_seed_alone() -> None:
    kinds = {
        "x": TensorType(dtype="float32", shape=(3,)),
        "ids": TensorType(dtype="int64", shape=(9,)),
    }
    first, again, other = (random_feeds(kinds, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])
    assert first["ids"].dtype == np.int64
    assert set(first["ids"].tolist()) <= {0, 1}


@pytest.mark.parametrize("nbytes", [0, 100, HUGE_PAGE_BYTES + 5])
def test_blocks_are_zeroed_and_aligned(nbytes: int) -> None:
    block = zeroed_block(nbytes)
    assert block.nbytes == nbytes
    assert block.ctypes.data % 64 == 0 or nbytes == 0
    assert not block.any()


@pytest.mark.parametrize("shape", [(3, 7), (LEAST_ALIGNED_BYTES,), (0, 5)])
def test_large_fresh_arrays_begin_at_a_cache_line(shape: tuple[int, ...]) -> None:
    array = fresh_array(shape, np.dtype(np.float32))
    assert (array.shape, array.dtype) == (shape, np.float32)
    assert array.flags.carray
    assert array.nbytes < LEAST_ALIGNED_BYTES or address(array) % ALIGNMENT == 0
