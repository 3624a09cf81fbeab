"""One program for all sizes. In: an OpenImage. Out: models at sizes, made in well under a
millisecond, which share code, weights and arenas.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock

from autotune.codegen.base import Library
from autotune.graph.int8.accuracy import Quantization
from autotune.graph.memory_limit import check_bytes
from autotune.memory import Bytes, address, physical_bytes, zeroed_block
from autotune.runtime.host import check_host
from autotune.runtime.model import CompiledModel
from autotune.runtime.native_session import NativeSession
from autotune.runtime.open_code import Arranged, OpenCalls, OpenCode
from autotune.runtime.open_image import OpenImage
from autotune.runtime.open_run import OpenRun, RunPointers
from autotune.runtime.pool import Pool, runs_at_once
from autotune.runtime.session import NOWHERE
from autotune.runtime.watched import WatchedWords
from autotune.types import Array

RESERVED_SHARE = 4
"""Divisor of this machine's memory that gives the most bytes reserved for an arena."""

COUNTABLE = 1 << 40
"""Product of sizes up to which native words hold what is counted of them."""

NO_BYTES = zeroed_block(0)
Turn = AbstractContextManager[object]


class Arenas:
    """Memory of runs. A run takes the block that was used last. Blocks have addresses for the
    largest sizes, and memory for what was run so far: a run larger than those before it waits for
    what it has more than they. One for which a block is still too small replaces it."""

    def __init__(self, reserved_bytes: int) -> None:
        self._free: list[Bytes] = []
        self._reserved = reserved_bytes

    def take(self, nbytes: int) -> Bytes:
        try:
            block = self._free.pop()
        except IndexError:
            return self._new(nbytes)
        return block if block.nbytes >= nbytes else self._new(nbytes)

    def _new(self, nbytes: int) -> Bytes:
        try:
            return zeroed_block(max(nbytes, self._reserved))
        except (MemoryError, OSError):  # addresses are counted here as memory is
            return zeroed_block(nbytes)

    def give(self, block: Bytes) -> None:
        self._free.append(block)


class OpenSession(NativeSession):
    """A model at one set of sizes, in an arena that it has as long as it runs."""

    def __init__(
        self,
        code: OpenCode,
        calls: OpenCalls,
        arenas: Arenas,
        turn: AbstractContextManager[object],
    ) -> None:
        """`turn`: of the one run at a time that a team of several threads makes; a signal's
        handler may take it within its thread's own, since no handler begins inside a run."""
        rows, width = calls.table.shape
        table, run = address(calls.table), code.run_table
        self._entry_words = (code.table_address, table, rows, width)

        def entry(bases: int) -> None:
            run(table, rows, width, bases)

        self._calls, self._arenas, self._turn = calls, arenas, turn
        further = (address(calls.counts), *[0] * calls.slots)
        super().__init__(calls.image, code.library, entry, further)

    @property
    def by_words(self) -> bool:
        return False  # its entry is a function of Python, which finds the run's arena

    @property
    def entry_words(self) -> tuple[int, int, int, int]:
        return self._entry_words

    @contextmanager
    def held(self) -> Iterator[None]:
        """An arena, and the turn, for as long as the caller runs the model by itself."""
        block = self._begin()
        try:
            with self._turn:
                yield
        finally:
            self._arenas.give(block)

    def run(
        self,
        inputs: Sequence[Array],
        numbers: Sequence[int] | None = None,
        into: Mapping[int, Array] = NOWHERE,
    ) -> list[Array]:
        block = self._begin()
        try:
            with self._turn:
                return super().run(inputs, numbers, into)
        finally:
            self._arenas.give(block)

    def run_at(self, addresses: Sequence[int], words: WatchedWords | None = None) -> bool:
        if words is not None and words.changed():
            return False
        block = self._begin()
        try:
            with self._turn:
                return super().run_at(addresses)
        finally:
            self._arenas.give(block)

    def bench(
        self, inputs: Sequence[Array], repeats: int, clock: Callable[[], float]
    ) -> tuple[tuple[float, ...], list[list[float]]]:
        block = self._begin()
        try:
            with self._turn:
                return super().bench(inputs, repeats, clock)
        finally:
            self._arenas.give(block)

    def _begin(self) -> Bytes:
        block = self._arenas.take(self._calls.image.arena_bytes)
        self._lie_in(block, block)
        return block

    def _own_blocks(self) -> tuple[Bytes, Bytes]:
        """Empty blocks: memory is taken for each run."""
        return NO_BYTES, NO_BYTES


class SharedRuns:
    """What runs at all sizes share."""

    def __init__(self, code: OpenCode, arenas: Arenas) -> None:
        image = code.image
        self.code, self.arenas = code, arenas
        self.turn: Turn = nullcontext() if image.target.threads == 1 else RLock()
        constants, count = address(image.constants), code.most_pointers
        limit = functools.partial(runs_at_once, image.target)
        self.pool = Pool(lambda: RunPointers(count, constants), limit, image.name)


class AnySizeProgram:
    """Models at sizes, which share code, weights and arenas."""

    def __init__(
        self, image: OpenImage, library: Library | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        """`library`: the image's objects where they are loaded already; otherwise the first run
        loads them. `notes`: what the compiler has to say about it."""
        self.image, self.notes = image, notes
        self.quantization: Quantization | None = None
        """How accurate it is, of one compiled for int8; the compiler sets it."""
        self._library, self._room = library, physical_bytes()
        self._runs: SharedRuns | None = None

    def at(self, sizes: Mapping[str, int]) -> CompiledModel:
        """The model at these sizes, as `run_at`."""
        return self.run_at(sizes).model

    def run_at(self, sizes: Mapping[str, int]) -> OpenRun:
        """Runs at these sizes, which are in its ranges. Raises ModelError where one takes more
        memory than there is, and ArtifactError for an image of another CPU."""
        runs = self._runs or self._loaded()
        arranged = runs.code.arranged(sizes)
        needed = arranged.arena_bytes + arranged.output_bytes
        if needed > self._room:
            said = ", ".join(f"{symbol}={size}" for symbol, size in sizes.items())
            check_bytes(f"a run at {said}", needed, self._room)
        return OpenRun(arranged, runs, self._model_of)

    def _model_of(self, arranged: Arranged) -> CompiledModel:
        runs = self._runs or self._loaded()
        calls = runs.code.calls(arranged)

        def session() -> OpenSession:
            return OpenSession(runs.code, calls, runs.arenas, runs.turn)

        return CompiledModel(calls.image, sessions=session)

    def close(self) -> None:
        """Refuse runs from now on, and wait for those of other threads to end."""
        if self._runs is not None:
            self._runs.pool.close()

    def _loaded(self) -> SharedRuns:
        if self._runs is None:
            check_host(self.image.target, f"model {self.image.name}")
            from autotune.codegen.loader import load  # a model only saved needs no code

            library = self._library or load(self.image.objects, self.image.target)
            code = OpenCode(self.image, library)
            self._runs = SharedRuns(code, Arenas(self._reserved_bytes(code)))
        return self._runs

    def _reserved_bytes(self, code: OpenCode) -> int:
        """Bytes that a run at the largest sizes works in, within what is reserved."""
        most = {name: allowed.most for name, allowed in self.image.types.ranges}
        share = self._room // RESERVED_SHARE
        if math.prod(most.values()) > COUNTABLE:
            return share
        plans = range(len(code.plans))
        wanted = max(code.arranged(most, number).arena_bytes for number in plans)
        return max(0, min(wanted, share))
