"""The state of the caches when a model calls a kernel, made anew before every timed call.

In: a target, the pieces of memory that the kernel touches, and when its model touched them last.
Out: caches in that state. What is used goes through the caches in the model's order, with as much
other data between as the model moves meanwhile. Where others share the last cache (cores, other
machines of the same host), a share of what is old is in memory again: it is flushed.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence

from autotune.codegen.base import Library
from autotune.codegen.llvm.backend import load_text
from autotune.codegen.loader import load
from autotune.measure.cache_footprint import Piece, moved
from autotune.measure.kernels import flush_text
from autotune.measure.storage import aligned_bytes
from autotune.measure.team import Team, Threads, team_code
from autotune.measure.types import Timing
from autotune.target import Target
from autotune.types import Array

_EMPTY_CALLS = 200
"""Calls of nothing, the shortest of which is the overhead of a call."""
OVER_CACHE = 1.5
"""More foreign data than this times the last cache changes nothing: all of it is replaced."""
LONGEST_S = 0.02
"""What is still in a shared cache after this long stays for good."""
_PROBES = 5
"""Probes of what stays in the caches; their median counts."""
_LINE_BYTES, _PAGE_BYTES = 64, 4096
"""Bytes of a cache line, and of a page."""


class CacheState:
    """Other data, and what moves it through the caches."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self._target, self._clock = target, clock
        self.helpers = (team_code(target),)
        """Object code to load with a kernel, for its threads."""
        self._own = self.team(load(self.helpers, target))
        self._flush = _flush(target)
        self._near = target.l2_bytes * target.threads
        self._last = max(self._near, target.l3_bytes)
        self._limit = int(OVER_CACHE * self._last)
        self._data: Array = aligned_bytes(0, 0)
        self._at = 0
        self._lost: dict[tuple[int, float], float] = {}
        self.overhead_s = min(self._own.empty_call_s() for _ in range(_EMPTY_CALLS))
        """What a call takes besides its work."""

    def team(self, library: Library) -> Team:
        """The threads of a library that was loaded with the helpers."""
        return Team(library, self._target, self._clock)

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

        def read_s(rest_s: float) -> float:
            until_s = self._clock() + rest_s
            self._pass(between_bytes - block.nbytes, self._own)
            self._own.through(busy)
            while self._clock() < until_s:  # at work: after a rest memory is slow for a while
                self._own.through(busy)
            start = self._clock()
            self._own.through(block)
            return self._clock() - start

        def flushed_s() -> float:
            self._out(block, 1.0)
            return read_s(0.0)

        read_s(0.0)
        probes = [(flushed_s(), read_s(0.0), read_s(age_s)) for _ in range(_PROBES)]
        flushed, cached, later = (statistics.median(p[i] for p in probes) for i in range(3))
        return min(1.0, max(0.0, (later - cached) / max(flushed - cached, 1e-9)))

    def between_calls(self, pieces: Sequence[Piece], timing: Timing, team: Threads) -> None:
        """Move the pieces, oldest first, through the caches, and the data of other kernels between
        them: what others took away meanwhile is then in memory."""
        wanted = min(timing.foreign_bytes, self._limit)
        self._provide(wanted)
        for step in moved(pieces, wanted):
            if isinstance(step, int):
                self._pass(step, team)
                continue
            lost = self.lost(step, timing)
            if lost < 1.0:
                _touch(step, team)
            if lost:
                self._out(step.block, lost)

    def _provide(self, wanted: int) -> None:
        if len(self._data) < wanted:
            self._data = aligned_bytes(wanted, 1)  # pages of zeros could all be one page

    def _pass(self, nbytes: int, team: Threads) -> None:
        """So many bytes of other data, each time those that were moved least recently."""
        while nbytes > 0:
            part = self._data[self._at : self._at + nbytes]
            team.through(part)
            nbytes -= len(part)
            self._at = (self._at + len(part)) % len(self._data)

    def _out(self, data: Array, share: float) -> None:
        """A share of it out of the caches, the first lines of every page: what is lost is lost
        here and there, to all threads alike."""
        assert self._flush is not None
        start = data.ctypes.data & -_LINE_BYTES
        pages, rest = divmod(data.ctypes.data + data.nbytes - start, _PAGE_BYTES)
        for first, count, nbytes in ((0, pages, _PAGE_BYTES), (pages, 1, rest)):
            lines = round(share * nbytes / _LINE_BYTES)
            if count and lines:
                self._flush(start + first * _PAGE_BYTES, count, lines)


def _touch(piece: Piece, team: Threads) -> None:
    if piece.sparse is None:
        team.through(piece.block)
    else:
        piece.sparse.max(initial=0)


def _flush(target: Target) -> Callable[[int, int, int], None] | None:
    """A function of an address, a count of pages and one of lines in each; None where no
    instruction does it."""
    if not target.triple.startswith("x86_64"):
        return None
    library = load_text(flush_text(), target)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        library.address("flush")
    )

    def flush(address: int, pages: int, lines: int) -> None:
        call(address, pages, lines)
        _ = library  # addresses are valid while it is referenced

    return flush
