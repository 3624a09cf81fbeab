"""What a kernel finds in the caches when its model calls it, made before every timed call.

In: a target, how much other data the model moves between two calls. Out: caches in that state.
The weights and the code were last used a whole run of the model ago: the data of the other
kernels has passed through the caches since, and where others share the last cache (cores, other
machines of the same host), theirs. The inputs were just written, and what the kernel writes takes
the place of values that were used shortly before.
"""

from __future__ import annotations

import ctypes
import functools
import statistics
import time
from collections.abc import Callable, Sequence

from autotune.codegen.loader import load_text
from autotune.measure.kernels import SWEEP_VECTORS, flush_text, read_all_text
from autotune.measure.storage import aligned_bytes
from autotune.target import Target
from autotune.types import Array

_EMPTY_CALLS = 200
OVER_CACHE = 1.5
"""More foreign data than this times the last cache changes nothing: all of it is replaced."""
BEFORE = 0.5
"""What the kernel before moved, of the second cache."""
LONGEST_S = 0.02
"""What is still in a shared cache after this long stays for good."""
PROBE = 0.25
"""Of the last cache, what is left there to see how much of it stays."""
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
        self._threads = target.threads
        self._block = SWEEP_VECTORS * target.vector_bytes
        self._last = max(target.l2_bytes * target.threads, target.l3_bytes)
        self._limit = int(OVER_CACHE * self._last)
        self._before = int(BEFORE * target.l2_bytes * target.threads)
        self._data: Array = aligned_bytes(0, 0)
        self._clock = clock
        self._lost: dict[tuple[int, float], float] = {}
        self.overhead_s = min(self._empty_call_s(clock) for _ in range(_EMPTY_CALLS))
        """What a call takes besides its work."""

    def _empty_call_s(self, clock: Callable[[], float]) -> float:
        call = functools.partial(self._nothing, self._data.ctypes.data)
        start = clock()
        call()
        return clock() - start

    def lost(self, foreign_bytes: int, apart_s: float) -> float:
        """Share of what a kernel used that others have taken out of the last cache when it is
        called again, `apart_s` later: measured once, 0 where nothing can be flushed."""
        key = foreign_bytes, apart_s
        if self._flush is None or not apart_s:
            return 0.0
        if key not in self._lost:
            self._lost[key] = self._measure_lost(foreign_bytes, min(apart_s, LONGEST_S))
        return self._lost[key]

    def _measure_lost(self, foreign_bytes: int, apart_s: float) -> float:
        """If the model fills the cache by itself, nothing stays."""
        if foreign_bytes >= self._last:
            return 1.0
        block = aligned_bytes(int(PROBE * self._last), 1)

        def reading_s(wait_s: float) -> float:
            until_s = self._clock() + wait_s
            while self._clock() < until_s:
                continue
            start = self._clock()
            self._through(block, block.nbytes)
            return self._clock() - start

        def flushed_s() -> float:
            self._out(block, 1.0)
            return reading_s(0.0)

        flushed = statistics.median(flushed_s() for _ in range(_PROBES))
        cached = statistics.median(reading_s(0.0) for _ in range(_PROBES))
        waited = statistics.median(reading_s(apart_s) for _ in range(_PROBES))
        return min(1.0, max(0.0, (waited - cached) / max(flushed - cached, 1e-9)))

    def between_calls(
        self,
        foreign_bytes: int,
        written: Sequence[Array],
        read: Sequence[Array],
        far: Sequence[Array] = (),
        apart_s: float = 0.0,
    ) -> None:
        """Move the data of other kernels through the caches, and the blocks of bytes that the next
        one writes and reads: what it read last; between them, the data of the kernel before. `far`
        was last used `apart_s` ago: what others took away of it comes from memory."""
        wanted, lost = min(foreign_bytes, self._limit), self.lost(foreign_bytes, apart_s)
        for block in far if lost else ():
            self._out(block, lost)
        if len(self._data) < wanted:
            self._data = aligned_bytes(wanted, 1)  # pages of zeros could all be one page
        self._through(self._data, wanted)
        for block in written:
            self._through(block, block.nbytes)
        self._through(self._data, min(wanted, self._before))
        for block in read:
            self._through(block, block.nbytes)

    def _through(self, data: Array, count: int) -> None:
        blocks = count // self._block
        if blocks >= self._threads:
            self._read(data.ctypes.data, blocks)

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
