"""Speed and latency of memory over footprints, on one core. In: a target. Out: curves.

A footprint is gone through in order and over and over, in pieces that are timed one by one: most
fall between the times when somebody else has the core, and a cache that a neighbour fills for a
moment slows only some.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator

import numpy as np

from autotune.machine.curves import Curve, falling, rising
from autotune.machine.facts import Scattered
from autotune.measure.facts import texts
from autotune.measure.facts.arithmetic import instructions_of
from autotune.measure.facts.timing import Clock, Loop, Loops, least_s, low, overhead_s, rounded
from autotune.memory import physical_bytes, zeroed_block
from autotune.target import Target
from autotune.types import Array

PIECE_BYTES = 1 << 20
"""Timed at once: a hundred microseconds of memory, less of caches."""
SMALL_BYTES = 2 << 20
"""Footprints that are gone through within a sample."""
LEAST_BYTES, MOST_BYTES = 4 << 10, 512 << 20
"""Footprints of the curves: from within every innermost cache to beyond most last ones."""
OVER_CACHE = 4
"""Memory is what is so many times the last cache."""
PIECES = 48
"""Timed of a footprint, at least."""
SAMPLES = 24
"""Timings of which the shortest counts."""
CHASED_LINES = 8192
"""Places of a cycle of loads, at most."""
DENSE_BYTES = 32 << 20
"""Latencies of more are taken once an octave: they take long."""
PAGES = (64, 256, 1024, 2048, 4096)
"""Numbers of pages: within, about and beyond the translation buffers of present cores."""
PAGE_BYTES = 4096
"""Bytes of a small page."""
RUNS = 4096
"""Scattered runs, none of them met twice where they are to be far."""
BESIDE = 2
"""Times RUN_CHAINS multiply-adds beside a line that comes in order: a register tile's, about."""
RUNS_TIMED = 256
"""Runs that a sample times."""
FILL = 0x3F8000003F800000
"""Two float32 of 1.0."""
LOW = 0.2
"""Which of many times counts: the one that this share of them does not exceed."""
MIDDLE = 0.5
"""The same where the hardware itself is now fast and now slow."""


class MemoryProbe:
    """A block on huge pages, and loops that go through parts of it."""

    def __init__(self, target: Target, clock: Clock, rng: np.random.Generator) -> None:
        self._target, self._clock, self._rng = target, clock, rng
        width = target.vector_bytes
        self._piece = texts.BLOCK_VECTORS * width
        self._loops = Loops(self._texts(), target)
        two = ctypes.c_int64, ctypes.c_int64
        self._calls = {m: self._loops.call(m, *two) for m in ("load", "store", "copy")}
        self._over_s = overhead_s(clock)
        self.data = zeroed_block(largest_bytes(target))
        # Ones: pages of zeros could all be one page, and what is denormal is slow.
        self.data.view(np.uint64)[...] = FILL

    def load_curve(self) -> Curve:
        """Bytes a second of loads, by footprint."""
        return self._curve("load", sizes(self.data.nbytes))

    def store_curve(self) -> Curve:
        """The same of stores, at every other footprint."""
        return self._curve("store", sizes(self.data.nbytes)[::2])

    def copy_curve(self) -> Curve:
        """Bytes a second that are moved; half of a footprint is read, the other half written."""
        return self._curve("copy", sizes(self.data.nbytes)[::2])

    def _curve(self, moves: str, footprints: tuple[int, ...]) -> Curve:
        found = tuple((n, self._bytes_per_s(moves, n)) for n in footprints)
        return tuple((n, rounded(value)) for n, value in falling(found))

    def _bytes_per_s(self, moves: str, footprint: int) -> float:
        if footprint <= SMALL_BYTES:
            return self._all_at_once(moves, footprint)
        return self._in_pieces(moves, footprint)

    def _all_at_once(self, moves: str, footprint: int) -> float:
        call, start = self._calls[moves], self.data.ctypes.data
        moved = footprint // 2 if moves == "copy" else footprint
        blocks = max(1, moved // self._piece)
        loop = Loop(lambda address, passes: call(address, blocks, passes), start)
        loop.rounds = 1
        (each_s,) = least_s({moves: loop}, self._clock, SAMPLES).values()
        return blocks * self._piece / each_s

    def _in_pieces(self, moves: str, footprint: int) -> float:
        """One time through, then pieces until there are enough."""
        call, start = self._calls[moves], self.data.ctypes.data
        step = PIECE_BYTES // 2 if moves == "copy" else PIECE_BYTES
        blocks = step // self._piece
        count = footprint // PIECE_BYTES
        times = []
        for number in range(count + max(PIECES, min(count, 2 * PIECES))):
            begin = self._clock()
            call(start + (number % count) * PIECE_BYTES, blocks, 1)
            times.append(self._clock() - begin)
        return step / max(low(times[count:], LOW) - self._over_s, 1e-9)

    # ------------------------------------------------------------------------------- latency

    def latency_curve(self) -> Curve:
        """Seconds of a load whose address the one before has given, by footprint."""
        every = sizes(self.data.nbytes)[2:]
        wanted = [n for n in every if n <= DENSE_BYTES or n.bit_count() == 1]
        found = tuple((n, self._latency_s(n)) for n in wanted)
        return tuple((n, rounded(value)) for n, value in rising(found))

    def _latency_s(self, footprint: int) -> float:
        lines = footprint // texts.LINE_BYTES
        if lines <= CHASED_LINES:
            offsets = self._rng.permutation(lines) * texts.LINE_BYTES
            return self._chased_s(self.data, offsets)
        drawn = np.unique(self._rng.integers(0, lines, CHASED_LINES))
        offsets = self._rng.permutation(drawn) * texts.LINE_BYTES

        def through() -> None:
            """What lies in the caches is what a core that uses all of the footprint leaves."""
            self._calls["load"](self.data.ctypes.data, footprint // self._piece, 1)

        return self._chased_s(self.data, offsets, through)

    def _chased_s(
        self, block: Array, offsets: Array, before: Callable[[], None] | None = None
    ) -> float:
        """Seconds of a step along a cycle of places in a block. `before`: called before each time
        around, in which no place is met twice."""
        words = block.view(np.uint64)
        words[offsets // 8] = (block.ctypes.data + np.roll(offsets, -1)).astype(np.uint64)
        state = np.array([block.ctypes.data + offsets[0]], np.uint64)
        loop = Loop(self._loops.call("chase"), state.ctypes.data)
        loop.settle(self._clock)
        around = max(1, len(offsets) // texts.UNROLL)
        loop.rounds = min(loop.rounds, max(1, around // 8)) if before else loop.rounds
        if before:
            before()
        samples = around // loop.rounds if before else SAMPLES
        times = [loop.sample(self._clock) for _ in range(samples)]
        words[offsets // 8] = FILL
        share = LOW if before else LOW / 4  # what lies near is there again after a disturbance
        each_s = max(low(times, share) - self._over_s, 1e-9)
        return each_s / (loop.rounds * texts.UNROLL)

    # --------------------------------------------------------------------------------- pages

    def page_curve(self) -> Curve:
        """What a load takes longer on small pages, by how many of them are used in turn."""
        small = small_pages(PAGES[-1] * PAGE_BYTES)
        if small is None:
            return ()
        found = []
        for pages in PAGES:
            if pages * PAGE_BYTES > min(small.nbytes, self.data.nbytes):
                break
            # One line of each, another one from page to page: sets of caches are used alike.
            offsets = np.arange(pages) * PAGE_BYTES + np.arange(pages) % 61 * texts.LINE_BYTES
            order = self._rng.permutation(offsets)
            times = [self._chased_s(block, order) for block in (small, self.data)]
            found.append((pages, max(0.0, times[0] - times[1])))
        return tuple((n, rounded(value)) for n, value in rising(tuple(found)))

    # ------------------------------------------------------------------------------ prefetch

    def scattered(self) -> tuple[Scattered, ...]:
        """Runs of lines where nobody foresees them: in a cache beyond the second, and in
        memory."""
        if self._target.vector_bytes > texts.LINE_BYTES or not fuses(self._target):
            return ()
        wanted = [self.data.nbytes]
        if self._target.l3_bytes >= 4 * self._target.l2_bytes:
            middle = min(self._target.l3_bytes // 4, 8 * self._target.l2_bytes)
            wanted.insert(0, min(middle, self.data.nbytes))
        near = self._runs_s("plain", self._target.l1_bytes // 2)
        return tuple(
            Scattered(
                footprint=footprint,
                near_s=rounded(near),
                far_s=rounded(self._runs_s("plain", footprint)),
                prefetched_s=rounded(self._runs_s("asked", footprint)),
            )
            for footprint in wanted
        )

    def _runs_s(self, name: str, footprint: int) -> float:
        """Seconds of a line of a run."""
        run = texts.RUN_LINES * texts.LINE_BYTES
        fits = footprint // run
        far = fits > RUNS
        places = self._rng.permutation(fits)[:RUNS]
        first = self._listed(np.resize(places, RUNS + texts.AHEAD))
        if far:
            self._calls["load"](self.data.ctypes.data, footprint // self._piece, 1)
        return self._line_s(name, first, RUNS, LOW)

    def in_order(self) -> tuple[Scattered, ...]:
        """Lines one behind the other beside arithmetic, in every other octave beyond the second
        cache. Nothing else reads them between: what the hardware foresees depends on what it has
        seen."""
        if self._target.vector_bytes > texts.LINE_BYTES or not fuses(self._target):
            return ()
        near = rounded(self._in_order_s("beside", self._target.l1_bytes // 2))
        wanted = [n for n in sizes(self.data.nbytes) if n > 2 * self._target.l2_bytes]
        return tuple(
            Scattered(
                footprint=footprint,
                near_s=near,
                far_s=rounded(self._in_order_s("beside", footprint)),
                prefetched_s=rounded(self._in_order_s("beside_asked", footprint)),
            )
            for footprint in wanted[::-4][::-1]
        )

    def _in_order_s(self, name: str, footprint: int) -> float:
        """Seconds of a line, the second time that all of the footprint is gone through."""
        within = footprint // (texts.RUN_LINES * texts.LINE_BYTES)
        runs = max(within, RUNS)
        first = self._listed(np.arange(runs + texts.AHEAD_IN_ORDER) % within)
        self._loops.call(name)(first.ctypes.data, runs)
        return self._line_s(name, first, runs, MIDDLE)

    def _listed(self, runs: Array) -> Array:
        """Addresses of runs of lines, by their numbers."""
        run = np.uint64(texts.RUN_LINES * texts.LINE_BYTES)
        return runs.astype(np.uint64) * run + np.uint64(self.data.ctypes.data)

    def _line_s(self, name: str, listed: Array, runs: int, share: float) -> float:
        """Seconds of a line of so many listed runs, timed some at a time."""
        call, clock, first = self._loops.call(name), self._clock, listed.ctypes.data
        times = []
        for at in range(first, first + 8 * (runs // RUNS_TIMED * RUNS_TIMED), 8 * RUNS_TIMED):
            begin = clock()
            call(at, RUNS_TIMED)
            times.append(clock() - begin)
        return max(low(times, share) - self._over_s, 1e-9) / (RUNS_TIMED * texts.RUN_LINES)

    def _texts(self) -> Iterator[str]:
        for moves in ("load", "store", "copy"):
            yield texts.passes_text(moves, self._target.vector_bytes, moves)
        yield texts.chase_text("chase")
        if fuses(self._target):
            yield texts.PREFETCH
            for name, ahead in (("plain", 0), ("asked", texts.AHEAD)):
                yield texts.runs_text(name, self._target.lanes(), ahead=ahead)
            for name, ahead in (("beside", 0), ("beside_asked", texts.AHEAD_IN_ORDER)):
                yield texts.runs_text(name, self._target.lanes(), ahead=ahead, each=BESIDE)


def fuses(target: Target) -> bool:
    """Whether a fused multiply-add is an instruction."""
    return any(instructions_of(target))


def largest_bytes(target: Target) -> int:
    """The largest footprint: well beyond what is believed of the last cache, an eighth of the
    machine's memory at most."""
    last = max(target.l2_bytes, target.l3_bytes)
    wanted = min(max(OVER_CACHE * last, 64 << 20), MOST_BYTES, physical_bytes() // 8)
    return max(SMALL_BYTES, wanted // PIECE_BYTES * PIECE_BYTES)


def sizes(most: int) -> tuple[int, ...]:
    """Footprints from LEAST_BYTES on, each octave in two."""
    out = []
    size = LEAST_BYTES
    while size <= most:
        out += [size, size * 3 // 2]
        size *= 2
    return tuple(n for n in out if n <= most)


def small_pages(nbytes: int) -> Array | None:
    """A block on pages of the usual size; None where the system cannot be asked for that."""
    if not hasattr(mmap, "MADV_NOHUGEPAGE") or mmap.PAGESIZE != PAGE_BYTES:
        return None
    region = mmap.mmap(-1, nbytes + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        region.madvise(mmap.MADV_NOHUGEPAGE)
    except OSError:
        return None
    block: Array = np.frombuffer(region, np.uint8)[:nbytes]
    block[::PAGE_BYTES] = 1
    return block
