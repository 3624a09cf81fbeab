"""The threads that run a kernel, put to other work between its calls.

In: loaded code into which `team_code` is linked; both have one team of threads then. Out: data
that moves through those threads' caches, and threads that are awake, as in a model, where the
kernel before leaves every thread with what it has just made, waiting for the next one.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Protocol

from autotune.codegen.base import Library
from autotune.codegen.llvm.backend import compile_text
from autotune.codegen.llvm.team import OPEN, PUBLISH
from autotune.measure.kernels import SWEEP_VECTORS, read_all_text
from autotune.target import Target
from autotune.types import Array

WAKING_UP_S = 1e-3
"""A thread that does not wake up in this time gets no core."""
_LINE_BYTES = 64
"""Bytes of a cache line."""


@functools.cache
def team_code(target: Target) -> bytes:
    """Object code to load with a kernel."""
    return compile_text(read_all_text(target), target)


class Threads(Protocol):
    """What goes on between two calls of a kernel, done by its threads."""

    def gather(self) -> None:
        """Wait until every thread is awake: for a moment it looks for work."""
        ...

    def through(self, data: Array) -> None:
        """Data through the caches: each thread moves its part into its own."""
        ...


class Team:
    """The threads of a library."""

    def __init__(
        self, library: Library, target: Target, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._library = library  # addresses are valid while it is referenced
        self._clock = clock
        self._threads = target.threads
        self._block = SWEEP_VECTORS * target.vector_bytes
        self._read = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            library.address("read_all")
        )
        self._nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("nothing"))
        self._arrive = library.address("arrive")
        self.arrived = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("arrived"))
        """How often one of the other threads came when it was called together."""
        if self._threads > 1:
            self._open = ctypes.CFUNCTYPE(None)(library.address(OPEN))
            self._publish = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(
                library.address(PUBLISH)
            )

    def gather(self) -> None:
        if self._threads == 1:
            return
        wanted = self.arrived() + self._threads - 1
        self._open()
        self._publish(self._arrive)
        until_s = self._clock() + WAKING_UP_S
        while self.arrived() < wanted and self._clock() < until_s:
            continue

    def through(self, data: Array) -> None:
        """What is too little to be shared stays where it is."""
        skipped = -data.ctypes.data % _LINE_BYTES
        blocks = (data.nbytes - skipped) // self._block
        if blocks >= self._threads:
            self.gather()
            self._read(data.ctypes.data + skipped, blocks)

    def empty_call_s(self) -> float:
        """What a call takes besides its work."""
        call = functools.partial(self._nothing, 0)
        start = self._clock()
        call()
        return self._clock() - start
