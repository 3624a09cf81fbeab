"""Changes of many threads on the disk together, and none answered before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpc_server.tracker.group_commit import GroupCommit
from rpc_server.tracker.state import FarmState
from rpc_server.tracker.store import Changes, StateStore
from rpc_server.tracker.types import FarmRules, Registered
from tests.patience import PATIENCE_S


class SlowDisk(StateStore):
    """A disk that writes when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.may_write = threading.Semaphore(0), threading.Semaphore(0)
        self.written: list[int] = []

    def write(self, changes: Changes) -> None:
        self.begun.release()
        assert self.may_write.acquire(timeout=PATIENCE_S)
        super().write(changes)
        self.written.append(len(changes.rows))


class Site:
    """A state, its disk, and threads that change it."""

    def __init__(self, path: Path) -> None:
        self.lock, self.state = threading.Lock(), FarmState(FarmRules())
        self.store = SlowDisk(path)
        self.disk = GroupCommit(self.store, self.state, self.lock)
        self.noted = threading.Semaphore(0)
        self.answered: list[str] = []
        self.threads: list[threading.Thread] = []

    def register(self, name: str) -> None:
        def work() -> None:
            with self.lock:
                self.state.apply(1.0, Registered(board=name, key="k", address="h:1", secret="s"))
                self.disk.note()
                self.noted.release()
                self.disk.settle()
                self.answered.append(name)

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()
        assert self.noted.acquire(timeout=PATIENCE_S)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(timeout=PATIENCE_S)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "farm.db")
    yield site
    site.join()
    site.store.close()


def test_what_comes_during_a_flush_is_flushed_together_after_it(site: Site) -> None:
    site.register("first")
    assert site.store.begun.acquire(timeout=PATIENCE_S)
    for number in range(8):
        site.register(f"later-{number}")
    assert site.answered == []
    site.store.may_write.release(2)
    site.join()
    assert site.store.written == [1, 8]
    assert len(site.answered) == 9


def test_nobody_is_answered_before_it_is_on_the_disk(site: Site) -> None:
    site.register("first")
    assert site.store.begun.acquire(timeout=PATIENCE_S)
    site.register("second")
    site.store.may_write.release()
    # The first is on the disk, the second is not.
    assert site.store.begun.acquire(timeout=PATIENCE_S)
    with site.lock:
        assert "second" not in site.answered
    site.store.may_write.release()
    site.join()
    assert sorted(site.answered) == ["first", "second"]


def test_what_could_not_be_written_is_written_with_the_next(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.store.may_write.release(9)
    site.store._database.execute("PRAGMA max_page_count = 1")
    site.store._database.execute("PRAGMA user_version = 1")
    long = "x" * 100_000
    with site.lock:
        site.state.apply(1.0, Registered(board=long, key="k", address="h:1", secret="s"))
        site.disk.note()
        site.disk.settle()
    assert "full" in site.disk.error
    assert capsys.readouterr().err.count("warning") == 1
    site.store._database.execute("PRAGMA max_page_count = 100000")
    site.register("next")
    site.join()
    assert (site.disk.error, site.store.written) == ("", [2])
