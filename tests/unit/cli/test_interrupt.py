"""Ctrl-C while a run is going on."""

from __future__ import annotations

import gc
import signal

import pytest

from autotune.cli.interrupt import interruptible
from autotune.tuner.events import Event, Progress, Started

PROGRESS = Progress(
    trials=0, planned=1, failures=0, before_s=None, now_s=None, elapsed_s=0.0, left_s=None
)
EVENT = Started(tasks=(), device="here", target="cpu", progress=PROGRESS)


class Dropped:
    """An exception in its destructor is dropped by Python."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_ends_the_run_at_the_next_event() -> None:
    heard: list[Event] = []
    with interruptible(heard.append) as on_event:
        on_event(EVENT)
        Dropped()
        gc.collect()
        with pytest.raises(KeyboardInterrupt):
            on_event(EVENT)
    assert heard == [EVENT]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_after_the_last_event_ends_the_run_too() -> None:
    run = interruptible(lambda _: None)
    run.__enter__()
    Dropped()
    gc.collect()
    with pytest.raises(KeyboardInterrupt):
        run.__exit__(None, None, None)


def test_an_interrupt_elsewhere_is_raised_at_once_and_the_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible(lambda _: None):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
