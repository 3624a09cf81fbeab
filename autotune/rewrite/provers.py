"""Both proofs of many rewrites in processes beside this one, each with a wall of memory.

In: rewrites. Out: why a proof is missing, for each, in order. A derivation is bounded by what
egglog itself counts; a process that hits its wall all the same is the end of that process alone.
What it was at is tried again by halves, each in a fresh process; what fails alone has no proof. So
the outcome depends neither on what a process did before nor on the machine's speed.
"""

from __future__ import annotations

import functools
import multiprocessing
import resource
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Self, TypeVar

from autotune.rewrite.derive import Deriver, Effort, properties
from autotune.rewrite.parse import parse
from autotune.rewrite.prove import UnprovenError, prove
from autotune.rewrite.rule import Rewrite

In = TypeVar("In")
Out = TypeVar("Out")
EFFORT = Effort(
    helpers=(frozenset(), frozenset({"transpose"}), frozenset({"add", "neg"})),
    nodes=800, rounds=4, graphs=16, spare=True,
)  # fmt: skip
"""Less than for what is written by hand: most of what is asked for does not follow."""
WALL_BYTES = 3 << 30
"""Private memory of a process, at most. What follows within the effort takes a tenth of it."""
_KEPT = 256
"""Rewrites whose proofs share what derivations found; one deriver for all would take gigabytes."""


class Provers:
    """Processes that prove; a context manager. `prove`: (text of a rewrite, number of those that
    share a deriver) -> why a proof is missing, empty where none is."""

    def __init__(
        self,
        processes: int,
        prove: Callable[[str, int], str] | None = None,
        wall_bytes: int = WALL_BYTES,
    ) -> None:
        self.processes = processes
        self._prove = prove or unproven
        self._wall_bytes = wall_bytes
        self._pool = self._fresh(processes)
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._pool.shutdown(cancel_futures=True)

    def map(self, of: Callable[[In], Out], items: Iterable[In]) -> Iterable[Out]:
        """Anything else that the processes may compute."""
        return self._pool.map(of, items)

    def unproven(self, rewrites: Sequence[Rewrite]) -> list[str]:
        """Why a proof of each is missing; empty where both are there."""
        texts = list(map(str, rewrites))
        kept = self._count // _KEPT
        self._count += len(texts)
        size = -(-len(texts) // self.processes)
        chunks = [texts[at : at + size] for at in range(0, len(texts), size)]
        waiting = [self._pool.submit(_all_of, self._prove, chunk, kept) for chunk in chunks]
        found = [_result(future) for future in waiting]
        if None in found:
            self._pool.shutdown()
            self._pool = self._fresh(self.processes)
        return [
            why
            for chunk, whys in zip(chunks, found, strict=True)
            for why in (self._again(chunk) if whys is None else whys)
        ]

    def _again(self, texts: Sequence[str]) -> list[str]:
        """The same in a fresh process, and by halves where that ends too."""
        with self._fresh(1) as pool:
            found = _result(pool.submit(_all_of, self._prove, texts, 0))
        if found is not None:
            return found
        if len(texts) > 1:
            half = len(texts) // 2
            return [*self._again(texts[:half]), *self._again(texts[half:])]
        name = texts[0].partition("\n")[0].removeprefix("rewrite ")
        return [f"{name}: its proofs take more than {self._wall_bytes >> 20} MiB"]

    def _fresh(self, processes: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), _wall, (self._wall_bytes,)
        )


def _wall(wall_bytes: int) -> None:
    """Ends this process where it would take more: what is only reserved does not count, so that
    threads, of which there are more on larger machines, do not either."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    least = wall_bytes if hard == resource.RLIM_INFINITY else min(wall_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (least, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _all_of(prove: Callable[[str, int], str], texts: Sequence[str], kept: int) -> list[str]:
    return [prove(text, kept) for text in texts]


def _result(future: Future[list[str]]) -> list[str] | None:
    """What a process found; None where it ended."""
    try:
        return future.result()
    except (BrokenProcessPool, MemoryError):
        return None


def generated_deriver() -> Deriver:
    """A deriver of generated rewrites, as they were derived when they were generated."""
    return Deriver(properties(), EFFORT)


@functools.lru_cache(maxsize=1)
def _deriver(_kept: int) -> Deriver:
    return generated_deriver()


def unproven(text: str, kept: int) -> str:
    """Why one of the proofs is missing; empty where both are there. `kept`: those of the same
    number share a deriver."""
    try:
        (read,) = parse(text)
        prove(read)
        _deriver(kept).derive(read)
    except UnprovenError as error:
        return str(error)
    return ""
