"""When timing stops, with kernels that only pretend to take time."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.measure.timing import Sample, calls_per_sample, kept, spread, time_kernel
from autotune.measure.types import Timing

TIMING = Timing(min_repeats=3, max_repeats=20, min_repeat_s=0.002, budget_s=0.15)


class Pretended:
    """A kernel whose n-th run takes `call_s * factor(n)` per call."""

    def __init__(self, call_s: float, factor: Callable[[int], float] = lambda _: 1.0) -> None:
        self.call_s, self.factor = call_s, factor
        self.stolen: Callable[[int], float] = lambda _: 0.0
        self.runs: list[int] = []

    def __call__(self, calls: int) -> Sample:
        number = len(self.runs)
        self.runs.append(calls)
        return Sample(calls * self.call_s * self.factor(number), self.stolen(number))


def test_a_steady_kernel_gets_the_minimum() -> None:
    assert time_kernel(Pretended(1e-3), TIMING, 1e-3) == (1e-3,) * 3


def test_a_short_kernel_is_called_often_enough() -> None:
    kernel = Pretended(1e-6)
    time_kernel(kernel, TIMING, 1e-6)
    assert kernel.runs[1] == pytest.approx(2000, abs=1)


def test_a_noisy_kernel_gets_the_maximum() -> None:
    noisy = Pretended(1e-3, lambda n: 1 + (n * 7 % 5) / 10)
    assert len(time_kernel(noisy, TIMING, 1e-3)) == TIMING.max_repeats


def test_a_noisy_loser_gets_the_minimum() -> None:
    timing = dataclasses.replace(TIMING, best_s=1e-4)
    noisy = Pretended(1e-3, lambda n: 1 + (n * 7 % 5) / 10)
    assert len(time_kernel(noisy, timing, 1e-3)) == TIMING.min_repeats


def test_a_slow_loser_ends_with_the_budget() -> None:
    timing = dataclasses.replace(TIMING, best_s=1e-3)
    assert len(time_kernel(Pretended(0.2), timing, 0.2)) == 1


def test_a_kernel_that_would_miss_its_deadline_is_timed_once() -> None:
    kernel = Pretended(3.0)
    assert time_kernel(kernel, TIMING, 3.0) == (3.0,)
    assert kernel.runs == [1]


def test_disturbed_samples_do_not_count() -> None:
    kernel = Pretended(1e-3, lambda n: 9.0 if n % 2 else 1.0)
    kernel.stolen = lambda n: 0.8 if n % 2 else 0.0
    assert set(time_kernel(kernel, TIMING, 1e-3)) == {1e-3}


def test_without_undisturbed_samples_the_least_disturbed_are_kept() -> None:
    samples = [Sample(5.0, 0.9), Sample(1.0, 0.1), Sample(2.0, 0.5)]
    assert kept(samples, 2) == (1.0, 2.0)


def test_of_disturbed_samples_the_processor_time_counts_where_it_is_known() -> None:
    samples = [Sample(5.0, 0.9, running_s=0.5), Sample(1.0, 0.4, running_s=0.6)]
    assert kept(samples, 2) == (0.6, 0.5)


@settings(max_examples=50)
@given(st.floats(1e-8, 0.4), st.lists(st.floats(1.0, 3.0), min_size=30, max_size=30))
def test_timing_ends_near_its_budget(call_s: float, noise: list[float]) -> None:
    kernel = Pretended(call_s, lambda n: noise[n % 30])
    samples = time_kernel(kernel, TIMING, call_s)
    assert 1 <= len(samples) <= TIMING.max_repeats
    longest = 3 * max(call_s, TIMING.min_repeat_s * 3)
    assert sum(n * call_s for n in kernel.runs) <= TIMING.budget_s + longest * TIMING.min_repeats


@settings(max_examples=50)
@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=40))
def test_the_spread_is_within_the_range_of_the_samples(samples: list[float]) -> None:
    assert 0 <= spread(samples) * median(samples) <= (max(samples) - min(samples)) / 2 + 1e-12


def test_calls_per_sample_is_bounded() -> None:
    assert calls_per_sample(0.0, 1.0) < 1 << 25
    assert calls_per_sample(1.0, 0.002) == 1


LIMITED = """
import resource, sys, threading
from autotune.measure.timing import processor_clock
resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))
release = threading.Event()
threading.Thread(target=release.wait).start()
clock = processor_clock(int(sys.argv[1]))
print(len({clock() for _ in range(2000)}))
release.set()
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_processor_time_is_exact_under_a_limit_too(threads: int) -> None:
    command = [sys.executable, "-c", LIMITED, str(threads)]
    readings = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(readings) > 1000  # these take 0.1 s at most, in which a clock of ticks gives 100


CONTENDED = """
import os, subprocess, sys, threading, time
from autotune.measure.timing import processor_clock
core = {min(os.sched_getaffinity(0))}
release = threading.Event()
threading.Thread(target=release.wait).start()
os.sched_setaffinity(0, core)
clock = processor_clock(2)
for _ in range(20):  # where others use the core too, this thread waits for it when it wakes
    before, start = clock(), time.perf_counter()
    time.sleep(0.8)
    asleep = (clock() - before) / (time.perf_counter() - start)
    if asleep > 0.9: break
print(asleep)
rival = subprocess.Popen(
    [sys.executable, "-c", "print(flush=True); any(iter(int, 1))"], stdout=subprocess.PIPE
)
rival.stdout.readline()
before, start = clock(), time.perf_counter()
while time.perf_counter() < start + 0.5: pass
print((clock() - before) / (time.perf_counter() - start))
rival.kill()
release.set()
"""


def test_threads_that_sleep_lack_nothing_and_one_that_shares_its_core_does() -> None:
    command = [sys.executable, "-c", CONTENDED]
    read = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    asleep, contended = map(float, read)
    assert asleep > 0.9
    assert contended < 0.9
