"""Profile, calibration and cache states by numpy, for boards that have no compiler of their own.

In: a target. Out: a profile, a calibration, caches in a known state. The same as
`autotune.measure.profile` and `autotune.measure.cache_state` make with generated code, less
exactly: peaks are what numpy reaches, and data passes through the caches of one core only.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from autotune.codegen.base import Library
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.cache_footprint import Piece, moved
from autotune.measure.storage import aligned_bytes
from autotune.measure.team import Threads
from autotune.measure.types import Timing
from autotune.target import Target
from autotune.types import Array

OVER_CACHE = 1.5
"""Other data that pass through the caches, in sizes of the largest of them, at most."""
REGION_S = 5e-6
"""Cost of a parallel region, which numpy cannot tell: a usual one."""
_CELLS = 4096
"""Elements of the calibration."""
_ROUNDS = 60
"""Rounds of it in a run."""
_SIDE = 192
"""Rows of the matrices whose product shows the peak: 147 KB each."""
_SAMPLES = 15
"""Timings of which the shortest counts."""
_EMPTY_CALLS = 200
"""Calls of nothing, the shortest of which is the overhead of a call."""
_LARGEST_BYTES = 64 << 20
"""Bytes of a sweep, at most: boards have little memory."""


class PlainCalibration:
    """Fixed work that tells a disturbed moment from a quiet one."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._cells = np.ones(_CELLS, np.float32)
        self.best_s = float("inf")
        self.read()

    def read(self) -> float:
        """Seconds of the work now, the faster of two."""
        taken_s = min(_seconds(self._work, self._clock) for _ in range(2))
        self.best_s = min(self.best_s, taken_s)
        return taken_s

    def _work(self) -> None:
        for _ in range(_ROUNDS):
            np.multiply(self._cells, self._cells, out=self._cells)


class PlainTeam:
    """Without a compiler a kernel's threads do no other work: the caller does it."""

    def gather(self) -> None:
        """Nobody can be called."""

    def through(self, data: Array) -> None:
        data.max(initial=0)


class PlainCacheState:
    """Other data, and what moves it through the caches."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self.helpers: tuple[bytes, ...] = ()
        self._limit = int(OVER_CACHE * max(target.l2_bytes * target.threads, target.l3_bytes))
        self._data: Array = aligned_bytes(0, 0)
        nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            ("labs", ctypes.CDLL(None))  # takes a number and has no effect
        )
        empty = lambda: nothing(0, 1)  # noqa: E731
        self.overhead_s = min(_seconds(empty, clock) for _ in range(_EMPTY_CALLS))
        """What a call takes besides its work."""

    def team(self, _library: Library) -> PlainTeam:
        return PlainTeam()

    def between_calls(self, pieces: Sequence[Piece], timing: Timing, team: Threads) -> None:
        """As that of `cache_state`, with a last cache of one's own: numpy can take nothing out of
        it."""
        wanted = min(timing.foreign_bytes, self._limit)
        if len(self._data) < wanted:
            self._data = aligned_bytes(wanted, 1)  # pages of zeros could all be one page
        for step in moved(pieces, wanted):
            team.through(self._data[:step] if isinstance(step, int) else step.touched)


def plain_profile(
    target: Target, device: str, clock: Callable[[], float] = time.perf_counter
) -> DeviceProfile:
    """What numpy reaches on one core."""
    peak_flops = _peak_flops(clock)
    return DeviceProfile(
        device=device,
        target=target,
        peak_flops=peak_flops,
        levels=tuple(_levels(target, clock)),
        parallel_region_s=REGION_S if target.threads > 1 else 0.0,
        width_peaks=((target.vector_bytes, peak_flops),),
    )


def _peak_flops(clock: Callable[[], float]) -> float:
    """FLOP/s of a matrix product: in a worker numpy takes one core."""
    a = np.ones((_SIDE, _SIDE), np.float32)
    out = np.empty_like(a)
    best_s = min(_seconds(lambda: np.matmul(a, a, out=out), clock) for _ in range(_SAMPLES))
    return 2 * _SIDE**3 / best_s


def _levels(target: Target, clock: Callable[[], float]) -> Iterator[CacheLevel]:
    tiny_s = min(_seconds(lambda: _EMPTY.max(initial=0), clock) for _ in range(_EMPTY_CALLS))
    for name, size, wanted in swept_sizes(target, 16 << 20, _LARGEST_BYTES):
        data, other = aligned_bytes(wanted, 1), aligned_bytes(wanted, 1)

        def rate(work: Callable[[], object], moved: int) -> float:
            best_s = min(_seconds(work, clock) for _ in range(_SAMPLES))
            return moved / max(best_s - tiny_s, best_s / 8)

        yield CacheLevel(
            name=name,
            size_bytes=size,
            load_bytes_per_s=rate(lambda d=data: d.max(initial=0), wanted),  # type: ignore[misc]
            store_bytes_per_s=rate(lambda d=data: d.fill(1), wanted),  # type: ignore[misc]
            copy_bytes_per_s=rate(
                lambda d=data, o=other: np.copyto(o[: len(o) // 2], d[: len(d) // 2]),  # type: ignore[misc]
                wanted // 2,
            ),
        )


def swept_sizes(target: Target, least: int, most: int) -> Iterator[tuple[str, int, int]]:
    """(level, its size, bytes to move): half of each cache, and more than the last for memory, in
    these bounds."""
    last = max(target.l2_bytes, target.l3_bytes)
    yield "L1", target.l1_bytes, target.l1_bytes // 2
    yield "L2", target.l2_bytes, target.l2_bytes // 2
    if target.l3_bytes > target.l2_bytes:
        yield "L3", target.l3_bytes, min(target.l3_bytes // 2, _LARGEST_BYTES)
    yield "memory", 0, min(max(4 * last, least), most)


_EMPTY = np.zeros(64, np.uint8)


def _seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return max(clock() - start, 1e-9)
