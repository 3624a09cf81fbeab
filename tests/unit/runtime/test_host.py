"""Keeping threads on cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from autotune.errors import ConfigError
from autotune.runtime.host import crowded, pin


def apart(action: Callable[[], object]) -> list[object]:
    """What `action` gives or raises, in a thread of its own: affinity belongs to threads."""
    out: list[object] = []

    def run() -> None:
        try:
            out.append(action())
        except ConfigError as error:
            out.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return out


def test_the_calling_thread_stays_on_the_cores() -> None:
    core = max(os.sched_getaffinity(0))

    def action() -> set[int]:
        pin([core])
        return os.sched_getaffinity(0)

    assert apart(action) == [{core}]
    assert os.sched_getaffinity(0) != {core} or len(os.sched_getaffinity(0)) == 1


@pytest.mark.parametrize("cores", [(), (100_000,)])
def test_cores_that_are_not_there_are_refused(cores: tuple[int, ...]) -> None:
    (message,) = apart(lambda: pin(cores))
    assert "expected cores out of" in str(message)


def test_more_threads_than_cores_are_refused() -> None:
    core = max(os.sched_getaffinity(0))
    (message,) = apart(lambda: pin([core], threads=2))
    assert "2 threads need as many cores, got 1" in str(message)


def test_more_threads_than_cores_are_mentioned() -> None:
    cores = len(os.sched_getaffinity(0))
    assert crowded(cores) == ""
    assert crowded(cores + 1).startswith(f"{cores + 1} threads share {cores} core")
