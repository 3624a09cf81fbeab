"""Limits of kernels: operations at the peak, bytes at the bandwidth of where they lie."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.runtime.image import LinkedKernel
from autotune.runtime.model import KernelTime
from autotune.runtime.roofline import kernel_profiles, model_limit_s
from autotune.target import load_target
from tests.unit.runtime.fakes import image

V4 = load_target("x86-64-v4")
MACHINE = DeviceProfile(
    device="paper",
    target=dataclasses.replace(V4, features=f"{V4.features},+avx512bf16"),
    peak_flops=1e9,
    levels=(
        CacheLevel(name="L1", size_bytes=1000, load_bytes_per_s=1e9, store_bytes_per_s=5e8),
        CacheLevel(name="L2", size_bytes=10_000, load_bytes_per_s=1e8, store_bytes_per_s=1e8),
        CacheLevel(name="memory", size_bytes=0, load_bytes_per_s=1e7, store_bytes_per_s=1e7),
    ),
    parallel_region_s=0.0,
)


def limits(threads: int = 1, **facts: int | str) -> tuple[float, str]:
    """Least time and bound of a kernel with such facts."""
    whole = image(target=MACHINE.target)
    kernel: LinkedKernel = dataclasses.replace(whole.kernels[0], **facts)  # type: ignore[arg-type]
    target = dataclasses.replace(whole.target, threads=threads)
    model = dataclasses.replace(whole, kernels=(kernel,), target=target)
    rows = kernel_profiles(model, [KernelTime(kernel=kernel, time_s=1.0)], MACHINE)
    assert model_limit_s(rows) == rows[0].limit.time_s
    return rows[0].limit.time_s, rows[0].limit.bound


def test_many_operations_are_bound_by_the_peak() -> None:
    assert limits(work_flops=2_000_000, input_bytes=100) == (pytest.approx(2e-3), "compute")


def test_the_work_of_the_algorithm_counts_not_that_of_the_model() -> None:
    assert limits(work_flops=1_000_000, flops=4_000_000)[0] == pytest.approx(1e-3)


def test_reads_and_writes_have_their_own_bandwidth() -> None:
    seconds, bound = limits(input_bytes=500, output_bytes=500)
    assert (seconds, bound) == (pytest.approx(500 / 1e9 + 500 / 5e8), "activations")


def test_what_outgrows_a_cache_comes_from_the_next_and_no_more_than_that() -> None:
    assert limits(input_bytes=20_000)[0] == pytest.approx(1e3 / 1e9 + 9e3 / 1e8 + 1e4 / 1e7)
    half = limits(input_bytes=10_000, output_bytes=10_000)[0]
    assert half == pytest.approx(500 / 1e9 + 500 / 5e8 + 9e3 / 1e8 + 1e4 / 1e7)


def test_weights_come_from_where_all_of_them_fit() -> None:
    assert limits(weight_bytes=500) == (pytest.approx(500 / 1e9), "weights")


def test_threads_share_the_work() -> None:
    assert limits(threads=2, work_flops=2_000_000)[0] == pytest.approx(1e-3)


def test_narrow_algorithms_have_a_higher_peak() -> None:
    assert limits(work_flops=2_000_000, algorithm="bf16")[0] == pytest.approx(1e-3)
