"""The interface of a model in memory, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from autotune.runtime.watched import WatchedWords
from autotune.types import Array

NOWHERE: Mapping[int, Array] = MappingProxyType({})
"""No array of the caller's to write to."""


class Session(Protocol):
    """A model in the memory of what runs it."""

    def run(
        self,
        inputs: Sequence[Array],
        numbers: Sequence[int] | None = None,
        into: Mapping[int, Array] = NOWHERE,
    ) -> list[Array]:
        """One inference: an array per output, or per output of these `numbers`. A fresh one, or
        that of `into`, by the output's number, where the model can write to it."""
        ...

    def bench(
        self, inputs: Sequence[Array], repeats: int, clock: Callable[[], float]
    ) -> tuple[tuple[float, ...], list[list[float]]]:
        """Seconds of whole runs, and per kernel call of `repeats` calls in its place."""
        ...


@runtime_checkable
class AddressedSession(Protocol):
    """A session that can run where its caller's memory lies."""

    words_address: int

    @property
    def by_words(self) -> bool: ...

    def run_at(self, addresses: Sequence[int], words: WatchedWords | None = None) -> bool: ...
