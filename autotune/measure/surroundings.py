"""What a kernel finds in the caches when its model calls it, made before every timed call.

In: a target, the pieces of memory that the kernel touches, and when its model touched them last.
Out: caches in that state. What is used goes through the caches in the model's order, with as much
other data between as the model moves meanwhile. Where others share the last cache (cores, other
machines of the same host), a share of what is old is in memory again: it is flushed.
"""

from __future__ import annotations

import ctypes
import functools
import statistics
import time
from collections.abc import Callable, Sequence

from autotune.codegen.base import Library
from autotune.codegen.llvm_team import OPEN, PUBLISH
from autotune.codegen.loader import load_text
from autotune.measure.kernels import SWEEP_VECTORS, flush_text, read_all_text
from autotune.measure.pieces import Piece, moved
from autotune.measure.storage import aligned_bytes
from autotune.measure.types import Timing
from autotune.target import Target
from autotune.types import Array

_EMPTY_CALLS = 200
OVER_CACHE = 1.5
"""More foreign data than this times the last cache changes nothing: all of it is replaced."""
FALLING_ASLEEP_S, WAKING_UP_S = 1e-4, 1e-3
"""A thread without work sleeps after half of the first; who does not wake up in the second gets no
core."""
LONGEST_S = 0.02
"""What is still in a shared cache after this long stays for good."""
_PROBES = 5
_LINE_BYTES = 64


class Surroundings:
    """Other data, and what moves it through the caches."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self._library = load_text(read_all_text(target), target)
        self._read = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            self._library.address("read_all")
        )
        self._flush = _flush(target)
        self._nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._library.address("nothing"))
        self._arrive = self._library.address("arrive")
        self.arrived = ctypes.CFUNCTYPE(ctypes.c_int64)(self._library.address("arrived"))
        """How often a thread came to a job of `awaken` so far."""
        self._threads = target.threads
        self._gather = self._summons(self._library)
        self._block = SWEEP_VECTORS * target.vector_bytes
        self._near = target.l2_bytes * target.threads
        self._last = max(self._near, target.l3_bytes)
        self._limit = int(OVER_CACHE * self._last)
        self._data: Array = aligned_bytes(0, 0)
        self._at = 0
        self._clock = clock
        self._lost: dict[tuple[int, float], float] = {}
        self.overhead_s = min(self._empty_call_s(clock) for _ in range(_EMPTY_CALLS))
        """What a call takes besides its work."""

    def _empty_call_s(self, clock: Callable[[], float]) -> float:
        call = functools.partial(self._nothing, self._data.ctypes.data)
        start = clock()
        call()
        return clock() - start

    def lost(self, piece: Piece, timing: Timing) -> float:
        """Share of a piece that is in memory again: measured once for each age; 0 where nothing
        can be flushed, and of what fits the cores' own caches."""
        if self._flush is None or not timing.apart_s or piece.age_bytes <= self._near:
            return 0.0
        key = min(piece.age_bytes, timing.foreign_bytes), min(piece.age_s, LONGEST_S)
        if key not in self._lost:
            self._lost[key] = self._measure_lost(*key)
        return self._lost[key]

    def _measure_lost(self, between_bytes: int, age_s: float) -> float:
        """If the model fills the cache by itself, nothing stays."""
        if between_bytes >= self._last:
            return 1.0
        block = aligned_bytes(between_bytes // 2, 1)
        busy = aligned_bytes(self._near // 4, 1)
        self._provide(between_bytes - block.nbytes)

        def reading_s() -> float:
            start = self._clock()
            self._through(block)
            return self._clock() - start

        def flushed_s() -> float:
            self._out(block, 1.0)
            return reading_s()

        def later_s() -> float:
            until_s = self._clock() + age_s
            self._pass(between_bytes - block.nbytes)
            while self._clock() < until_s:  # at work: after a rest memory is slow for a while
                self._through(busy)
            return reading_s()

        flushed = statistics.median(flushed_s() for _ in range(_PROBES))
        cached = statistics.median(reading_s() for _ in range(_PROBES))
        later = statistics.median(later_s() for _ in range(_PROBES))
        return min(1.0, max(0.0, (later - cached) / max(flushed - cached, 1e-9)))

    def between_calls(self, pieces: Sequence[Piece], timing: Timing) -> None:
        """Move the pieces, oldest first, through the caches, and the data of other kernels between
        them: what others took away meanwhile is then in memory."""
        wanted = min(timing.foreign_bytes, self._limit)
        self._provide(wanted)
        for step in moved(pieces, wanted):
            if isinstance(step, int):
                self._pass(step)
                continue
            lost = self.lost(step, timing)
            if lost < 1.0:
                self._touch(step)
            if lost:
                self._out(step.block, lost)

    def awaken(self, library: Library) -> None:
        """The other threads of a kernel's code, which have slept meanwhile: in a model the kernel
        before has left them waiting. Those that moved the data go to sleep first."""
        if self._threads == 1:
            return
        summon = self._summons(library)
        self._wait_for(lambda: False, FALLING_ASLEEP_S)
        summon()

    def _summons(self, library: Library) -> Callable[[], None]:
        """A function that waits until all threads of loaded code are awake."""
        if self._threads == 1:
            return lambda: None
        begin = ctypes.CFUNCTYPE(None)(library.address(OPEN))
        publish = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(library.address(PUBLISH))

        def summon() -> None:
            wanted = self.arrived() + self._threads - 1
            begin()
            publish(self._arrive)
            self._wait_for(lambda: self.arrived() >= wanted, WAKING_UP_S)

        return summon

    def _wait_for(self, done: Callable[[], bool], longest_s: float) -> None:
        until_s = self._clock() + longest_s
        while not done() and self._clock() < until_s:
            continue

    def _touch(self, piece: Piece) -> None:
        if piece.sparse is None:
            self._through(piece.block)
        else:
            piece.sparse.max(initial=0)

    def _provide(self, wanted: int) -> None:
        if len(self._data) < wanted:
            self._data = aligned_bytes(wanted, 1)  # pages of zeros could all be one page

    def _pass(self, nbytes: int) -> None:
        """So many bytes of other data, each time those that were moved least recently."""
        while nbytes > 0:
            part = self._data[self._at : self._at + nbytes]
            self._through(part)
            nbytes -= len(part)
            self._at = (self._at + len(part)) % len(self._data)

    def _through(self, data: Array) -> None:
        skipped = -data.ctypes.data % _LINE_BYTES
        blocks = (data.nbytes - skipped) // self._block
        if blocks >= self._threads:
            self._gather()  # each thread moves its part into its own caches
            self._read(data.ctypes.data + skipped, blocks)

    def _out(self, data: Array, share: float) -> None:
        """The first share of it out of the caches, in whole lines."""
        assert self._flush is not None
        lines = round(share * data.nbytes / _LINE_BYTES)
        if lines:
            self._flush(data.ctypes.data & -_LINE_BYTES, lines)


def _flush(target: Target) -> Callable[[int, int], None] | None:
    """A function of an address and a count of lines; None where no instruction does it."""
    if not target.triple.startswith("x86_64"):
        return None
    library = load_text(flush_text(), target)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("flush"))

    def flush(address: int, lines: int) -> None:
        call(address, lines)
        _ = library  # addresses are valid while it is referenced

    return flush
