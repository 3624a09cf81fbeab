"""Repeated timing, until its confidence interval is tight. In: a function that runs a kernel n
times, and a Timing. Out: seconds.

Samples are taken until the confidence interval of their median is tight, the budget is spent, or
the candidate is clearly slower than the best one known, which then gets the minimum. Samples in
which the system gave the cores to somebody else do not count while there are enough others.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from autotune.measure.types import Timing

MAX_CALLS = 1 << 24
"""Calls of a sample, at most."""
SLOW_CALL_S = 0.5
"""Seconds of a first call from which one more call is the only sample."""
DISTURBED = 0.03
"""Share of a sample's time without a core from which on it is set aside."""


_THREADS = "/proc/self/task"

PATIENCE = 3
"""Times its budget a candidate may take where too few samples were undisturbed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: wall time, and the share of it (0-1) in which the kernel was not running.
    `beside_s`: what it took besides, to bring the caches into their state. `running_s`: processor
    time, where that tells how long the kernel takes; 0 where it does not (several threads)."""

    wall_s: float
    stolen: float = 0.0
    beside_s: float = 0.0
    running_s: float = 0.0


def time_kernel(
    run: Callable[[int], Sample], timing: Timing, first_call_s: float
) -> tuple[float, ...]:
    """Seconds per call, one per sample. `run(n)` calls the kernel n times; `first_call_s` is what
    a first, cold call took."""
    if first_call_s > max(SLOW_CALL_S, timing.run_timeout_s / 10):
        return (run(1).wall_s,)  # more samples would cost it its deadline
    warm = run(1)
    spent_s = warm.wall_s + warm.beside_s
    calls = calls_per_sample(spent_s, timing.min_repeat_s)
    samples: list[Sample] = []
    while True:
        sample = run(calls)
        spent_s += sample.wall_s + sample.beside_s
        samples.append(
            Sample(sample.wall_s / calls, sample.stolen, running_s=sample.running_s / calls)
        )
        if enough(samples, spent_s, timing):
            return kept(samples, timing.min_repeats)


def kept(samples: Sequence[Sample], least: int) -> tuple[float, ...]:
    """Undisturbed samples, in order. Where there are fewer than `least`, the least disturbed: the
    time in which they had their cores."""
    clean = tuple(s.wall_s for s in samples if s.stolen <= DISTURBED)
    if len(clean) >= least:
        return clean
    least_disturbed = sorted(samples, key=lambda s: s.stolen)[:least]
    return tuple(s.running_s or s.wall_s for s in least_disturbed)


def calls_per_sample(call_s: float, min_repeat_s: float) -> int:
    """Calls that together last at least `min_repeat_s`."""
    return min(MAX_CALLS, max(1, math.ceil(min_repeat_s / max(call_s, 1e-9))))


def enough(samples: Sequence[Sample], spent_s: float, timing: Timing) -> bool:
    """Whether another sample is not worth its time."""
    times_s = kept(samples, 1)
    loser = timing.best_s is not None and median(times_s) > timing.give_up_ratio * timing.best_s
    if spent_s >= timing.budget_s:
        undisturbed = sum(s.stolen <= DISTURBED for s in samples) >= timing.min_repeats
        taken = undisturbed or (
            len(samples) >= timing.min_repeats and spent_s >= PATIENCE * timing.budget_s
        )
        return taken or loser or spent_s >= timing.run_timeout_s / 4
    if len(times_s) < timing.min_repeats:
        return False
    tight = spread(times_s) <= timing.confidence
    return loser or tight or len(times_s) >= timing.max_repeats


def spread(samples: Sequence[float]) -> float:
    """Half the 95 % interval of the median over the median, from order statistics; with few
    samples the interval is their whole range."""
    ordered, count = sorted(samples), len(samples)
    reach = 0.98 * math.sqrt(count)
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach))
    return (ordered[high] - ordered[low]) / 2 / median(ordered)


def processor_clock(threads: int) -> Callable[[], float]:
    """Reads seconds that pass while the kernel's threads, on average, have what they want: a core,
    or nothing to do. Called by the thread that starts the kernel.

    The process's own clock advances in steps of a scheduler tick while a limit on processor time
    is set, as in a worker; those of threads never do. Several threads may sleep while they wait
    for one another: of these, what counts is how long they were ready without a core."""
    if threads == 1:
        return time.thread_time
    return (
        functools.partial(_undelayed_s, threads) if _delays_s() is not None else _busy_s(threads)
    )


def _undelayed_s(threads: int) -> float:
    return time.perf_counter() - (_delays_s() or 0.0) / threads


def _delays_s() -> float | None:
    """Seconds that this process's threads have been ready to run without a core, as Linux counts
    them; None where it does not."""
    total_ns, found = 0, False
    for thread in os.listdir(_THREADS) if os.path.isdir(_THREADS) else ():
        try:
            with open(f"{_THREADS}/{thread}/schedstat", "rb", 0) as file:
                total_ns += int(file.read().split()[1])
                found = True
        except (OSError, IndexError):  # the thread has ended since, or there is no such file
            continue
    return total_ns / 1e9 if found else None


def _busy_s(threads: int) -> Callable[[], float]:
    """Where delays are not known: processor time, as if no thread ever waited asleep."""
    return lambda: _all_threads_s() / threads


def _all_threads_s() -> float:
    try:
        threads = os.listdir("/proc/self/task")
        return sum(time.clock_gettime(_clock_of(int(t))) for t in threads)
    except OSError:  # a thread has just ended, or this is not Linux
        return time.process_time()


def _clock_of(thread: int) -> int:
    """The clock id of a thread's scheduled time, as pthread_getcpuclockid(3) makes it."""
    return ~thread << 3 | 6
