"""Ctrl-C that is never lost. In: who listens to a run. Out: the same, ended by a Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from autotune.tuner.events import Event, OnEvent


@contextmanager
def interruptible(listener: OnEvent) -> Iterator[OnEvent]:
    """Python drops an exception that is raised in a destructor or in a callback from C, and that
    may be where an interrupt arrives: the run's next event, or its end, raises it again."""
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        signal.default_int_handler(number, frame)

    def raise_again() -> None:
        if arrived:
            arrived.clear()
            raise KeyboardInterrupt

    def on_event(event: Event) -> None:
        raise_again()
        listener(event)

    if threading.current_thread() is not threading.main_thread():
        yield listener  # signals are the main thread's
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield on_event
        raise_again()
    finally:
        signal.signal(signal.SIGINT, before)
