"""Told to stop: by Ctrl-C, or by whoever supervises the process."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def until_told() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, inside."""
    stopping = threading.Event()
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda *_: stopping.set()) for n in wanted}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
