"""What a kernel finds in the caches when its model calls it, made before every timed call.

In: a target, how much other data the model moves between two calls. Out: caches in that state.
The weights were last used a whole run of the model ago: the data of the other kernels has passed
through the caches since. The inputs were just written, and what the kernel writes takes the place
of values that were used shortly before.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Sequence

from autotune.codegen.loader import load_text
from autotune.measure.kernels import SWEEP_VECTORS, read_all_text
from autotune.measure.storage import aligned_bytes
from autotune.target import Target
from autotune.types import Array

_EMPTY_CALLS = 200
OVER_CACHE = 1.5
"""More foreign data than this times the last cache changes nothing: all of it is replaced."""
BEFORE = 0.5
"""What the kernel before moved, of the second cache."""


class Surroundings:
    """Other data, and what moves it through the caches."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self._library = load_text(read_all_text(target), target)
        self._read = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            self._library.address("read_all")
        )
        self._nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._library.address("nothing"))
        self._threads = target.threads
        self._block = SWEEP_VECTORS * target.vector_bytes
        self._limit = int(OVER_CACHE * max(target.l2_bytes * target.threads, target.l3_bytes))
        self._before = int(BEFORE * target.l2_bytes * target.threads)
        self._data: Array = aligned_bytes(0, 0)
        self.overhead_s = min(self._empty_call_s(clock) for _ in range(_EMPTY_CALLS))
        """What a call takes besides its work."""

    def _empty_call_s(self, clock: Callable[[], float]) -> float:
        call = functools.partial(self._nothing, self._data.ctypes.data)
        start = clock()
        call()
        return clock() - start

    def between_calls(
        self, foreign_bytes: int, written: Sequence[Array], read: Sequence[Array]
    ) -> None:
        """Move the data of other kernels through the caches, and the blocks of bytes that the next
        one writes and reads: what it read last; between them, the data of the kernel before."""
        wanted = min(foreign_bytes, self._limit)
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
