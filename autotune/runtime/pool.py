"""Sessions of one model, each lent to one run at a time. In: how to make one, and how many runs
may go on at once. Out: slots, taken before a run and given back after it.

A session has an arena of its own, so runs in different ones do not meet. Sessions are made when
runs first overlap, and kept until the pool is closed. Runs beyond the limit wait, first come first
served.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from autotune.codegen.base import DEVICE_KINDS
from autotune.errors import ClosedError
from autotune.target import Target

RUNS_PER_CORE = 4
"""Runs of one thread that may share a core. The scheduler takes a core from one to another, while
a run that is handed its session wakes up late, and its core idles: of four clients on two cores,
those that waited kept 1.2 to 1.6 cores busy, those that ran side by side 1.9."""
LOST_SLOT_CHECK_S = 1.0
"""Seconds after which a waiting run looks for room again: a signal's exception that strikes
between taking a slot and using it loses the slot, and nobody is told."""


S = TypeVar("S")
"""What a run has to itself: a session, as a rule."""
RunsSession = Callable[[Any, Any, int], bool]


class Slot(Generic[S]):
    """A session, and the identifier of the thread whose run it is in (0: of none)."""

    __slots__ = ("__weakref__", "holder", "session")

    def __init__(self, session: S, holder: int) -> None:
        self.session, self.holder = session, holder


class Pool(Generic[S]):
    """Safe to use from several threads. A signal's handler may close it during a run of its own
    thread, whose session then goes when the run ends."""

    def __init__(self, make: Callable[[], S], limit: Callable[[], int], model: object) -> None:
        """`limit`: asked where a run finds no free session, since a process's cores may change.
        `model`: what a ClosedError calls it."""
        self._make: Callable[[], S] | None = make  # None: closed
        self._limit, self._model = limit, model
        # Of slots that no run is in, the one used last is taken first: it is still in caches.
        self._free: list[Slot[S]] = []
        self._all: weakref.WeakSet[Slot[S]] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._queue: list[threading.Condition] = []
        """Who waits, the next to be served first. One who closes is before those who run."""

    def __len__(self) -> int:
        """The sessions that there are."""
        return len(self._all)

    def take(self) -> Slot[S]:
        """A slot for one run of this thread. Raises ClosedError, and what making a session does.
        In a free slot there is no waiting and no lock: a list's `pop` and `append` are atomic."""
        if not self._queue:
            try:
                slot = self._free.pop()
            except IndexError:
                return self._waited()
            slot.holder = threading.get_ident()
            if self._make is not None:
                return slot
            self.give(slot)
        return self._waited()

    def give(self, slot: Slot[S]) -> None:
        """The run has ended."""
        slot.holder = 0
        self._free.append(slot)
        if self._queue:
            with self._lock:
                self._wake()

    def through(self, enter: RunsSession, given: object, made: object) -> bool:
        """One run by a native function that places inputs and outputs itself: it takes what is
        given and made, and the address of a session's words. Gives what it gives. Raises what
        `take` does."""
        slot = self.take()
        try:
            return enter(given, made, slot.session.words_address)  # type: ignore[attr-defined]
        finally:
            self.give(slot)

    def close(self) -> None:
        """Refuse runs from now on, and wait for those of other threads to end."""
        with self._lock, self._queued(0) as turn:
            self._make = None
            for other in self._queue:
                other.notify()
            me = threading.get_ident()
            while any(slot.holder not in (0, me) for slot in self._all):
                turn.wait(LOST_SLOT_CHECK_S)
            self._free.clear()

    def another(self) -> S:
        """A session that is never lent. Raises ClosedError, and what making a session does."""
        make = self._make
        if make is None:
            raise self.refusal()
        return make()

    def refusal(self) -> ClosedError:
        return ClosedError(f"the model {self._model} is closed; load or compile it again")

    def _waited(self) -> Slot[S]:
        """A slot, when it is this thread's turn and there is one."""
        with self._lock:
            if not self._queue and self._make is not None:
                slot = self._found(self._make)
                if slot is not None:
                    return slot
        with self._lock, self._queued(len(self._queue)) as turn:
            while (make := self._make) is not None:
                slot = self._found(make) if self._queue[0] is turn else None
                if slot is not None:
                    return slot
                turn.wait(LOST_SLOT_CHECK_S)
        raise self.refusal()

    def _found(self, make: Callable[[], S]) -> Slot[S] | None:
        """A free slot or a new one, if there is room. A handler that runs the model while its
        thread is in a run would wait for itself: it gets one beyond the limit."""
        me = threading.get_ident()
        if self._free:
            slot = self._free.pop()
            slot.holder = me
            return slot
        there = len(self._all)  # the first one has room whatever the limit, which is asked for
        if not there or there < self._limit() or any(slot.holder == me for slot in self._all):
            slot = Slot(make(), me)
            self._all.add(slot)
            return slot
        return None

    @contextlib.contextmanager
    def _queued(self, place: int) -> Iterator[threading.Condition]:
        """A place in the queue, and what it is woken by. With the lock."""
        turn = threading.Condition(self._lock)
        self._queue.insert(place, turn)
        try:
            yield turn
        finally:
            self._queue.remove(turn)
            self._wake()

    def _wake(self) -> None:
        """Whoever is next looks whether there is room. With the lock."""
        if self._queue:
            self._queue[0].notify()


def runs_at_once(target: Target) -> int:
    """How many runs of a model for that target may go on at the same time. The threads of a team
    need a core each; a device runs one after the other."""
    if target.kind in DEVICE_KINDS:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    runs = (cores or 1) // target.threads
    return max(1, runs) if target.threads > 1 else runs * RUNS_PER_CORE
