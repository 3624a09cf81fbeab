"""A client's leases, over a tracker without sockets."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rpc_server.client.leases import ASKS, LeaseSession, LeaseTerms, News
from rpc_server.security.auth import Peer, Role
from rpc_server.tracker.link import Backoff, TrackerLink
from rpc_server.tracker.service import Tracker
from rpc_server.tracker.store import StateStore
from rpc_server.tracker.types import FarmRules, Registered
from rpc_server.wire import farm as farm_wire
from rpc_server.wire.link import LinkLostError
from tests.patience import PATIENCE_S

BOARD = Peer(name="rpi", role=Role.BOARD)
ALICE = Peer(name="alice", role=Role.CLIENT)


class Trackers:
    """One after the other, each with the state of the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.now: Tracker | None = None

    def start(self, behind_s: float) -> None:
        """The next one, whose clock is behind."""
        self.stop()
        store = StateStore(self._path)
        self.close = store.close
        clock = lambda: time.time() - behind_s  # noqa: E731
        self.now = Tracker(FarmRules(), store, version="1", clock=clock)
        event = Registered(board="rpi", key="k", address="h:1", secret="s")
        self.now.enter(BOARD)[0]["register"](farm_wire.encode_register(event))

    def stop(self) -> None:
        if self.now is not None:
            self.now.stop()
            self.close()


class Link(TrackerLink):
    """To whichever tracker there is."""

    def __init__(self, trackers: Trackers) -> None:
        super().__init__("tracker", 1)
        self._trackers = trackers

    def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
        del timeout_s
        assert self._trackers.now is not None
        return self._trackers.now.enter(ALICE)[0][name](payload)


def leased(
    watch: TrackerLink, quick: TrackerLink, granted: Callable[[farm_wire.Grant], None]
) -> LeaseSession:
    """A session for boards of key k, over two links."""
    return LeaseSession(
        watch,
        quick,
        News(granted=granted, recalled=lambda _: None, lost=lambda *_: None),
        LeaseTerms("k", 0, 60.0),
        backoff=Backoff(0.01, 0.01, random.Random(0)),
        clock=time.monotonic,
    )


def test_a_tracker_whose_clock_was_set_back_is_heard(tmp_path: Path) -> None:
    trackers = Trackers(tmp_path / "farm.db")
    trackers.start(behind_s=0.0)
    granted: queue.SimpleQueue[farm_wire.Grant] = queue.SimpleQueue()
    session = leased(Link(trackers), Link(trackers), granted.put)
    session.want(1)
    first = granted.get(timeout=PATIENCE_S)
    trackers.start(behind_s=3600.0)
    session.release(first.fence, 1, "")
    assert granted.get(timeout=PATIENCE_S).fence > first.fence
    session.close()
    trackers.stop()


def test_many_requests_go_out_in_small_messages(tmp_path: Path) -> None:
    trackers = Trackers(tmp_path / "farm.db")
    trackers.start(behind_s=0.0)
    sizes: list[int] = []

    class Measured(Link):
        def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
            sizes.append(len(payload))
            return super().call(name, payload, timeout_s)

    granted: queue.SimpleQueue[farm_wire.Grant] = queue.SimpleQueue()
    session = leased(Measured(trackers), Measured(trackers), granted.put)
    session.want(100)
    for _ in range(ASKS + 6):  # one board, which all of them get in turn
        session.release(granted.get(timeout=PATIENCE_S).fence, 1, "")
    session.close()
    assert max(sizes) < 16 << 10
    trackers.stop()


def test_a_grant_that_overtakes_the_answer_to_its_request_is_kept(tmp_path: Path) -> None:
    """The watching link hears of it first: it was taken for one that nobody wants any more, given
    back at once and then used."""
    trackers = Trackers(tmp_path / "farm.db")
    trackers.start(behind_s=0.0)
    watching, used = threading.Semaphore(0), threading.Event()
    heard: list[bool] = []
    released: list[int] = []

    class Watch(Link):
        def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
            watching.release()
            return super().call(name, payload, timeout_s)

    class Quick(Link):
        def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
            reply = super().call(name, payload, timeout_s)
            heard.append(used.wait(timeout=PATIENCE_S))
            released.extend(r.fence for r in farm_wire.decode_sync(payload, "alice").releases)
            return reply

    session = leased(Watch(trackers), Quick(trackers), lambda _: used.set())
    assert watching.acquire(timeout=PATIENCE_S)
    assert watching.acquire(timeout=PATIENCE_S)  # the first is answered at once, the second waits
    session.want(1)
    assert heard == [True]
    session.close()
    assert released == [1], "at the end only"
    trackers.stop()


def test_a_request_is_under_way_on_one_link_at_a_time(tmp_path: Path) -> None:
    """The copy on the slower link was granted once more, after the first board was given back."""
    trackers = Trackers(tmp_path / "farm.db")
    trackers.start(behind_s=0.0)
    sent: list[str] = []
    granted: queue.SimpleQueue[farm_wire.Grant] = queue.SimpleQueue()
    held, again = threading.Event(), threading.Semaphore(0)

    class Watch(Link):
        def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
            sent.extend(a.request for a in farm_wire.decode_sync(payload, "alice").asks)
            if held.is_set():
                again.release()
            return super().call(name, payload, timeout_s)

    class Quick(Link):
        def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
            sent.extend(a.request for a in farm_wire.decode_sync(payload, "alice").asks)
            if not held.is_set():  # not before the other link has sent another message
                held.set()
                assert again.acquire(timeout=PATIENCE_S)
            return super().call(name, payload, timeout_s)

    session = leased(Watch(trackers), Quick(trackers), granted.put)
    session.want(1)
    granted.get(timeout=PATIENCE_S)
    session.close()
    assert len(sent) == len(set(sent))
    trackers.stop()


def test_what_a_thread_gives_back_while_the_session_ends_is_given_back_twice(
    tmp_path: Path,
) -> None:
    """The board's thread and the end tell the tracker the same: who hears last finds it told."""
    trackers = Trackers(tmp_path / "farm.db")
    trackers.start(behind_s=0.0)
    granted: queue.SimpleQueue[farm_wire.Grant] = queue.SimpleQueue()
    ending = threading.Event()

    class Watch(Link):
        """Lost from then on: it would give back what the other two are to give back."""

        def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
            if farm_wire.decode_sync(payload, "alice").releases:
                raise LinkLostError("the tracker is gone")
            return super().call(name, payload, timeout_s)

    class Quick(Link):
        def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
            reply = super().call(name, payload, timeout_s)
            if farm_wire.decode_sync(payload, "alice").releases:
                if threading.current_thread() is giving:
                    assert ending.wait(timeout=PATIENCE_S)
                else:
                    ending.set()
                    giving.join(timeout=PATIENCE_S)
            return reply

    session = leased(Watch(trackers), Quick(trackers), granted.put)
    session.want(1)
    fence = granted.get(timeout=PATIENCE_S).fence
    giving = threading.Thread(target=session.release, args=(fence, 1, ""))
    giving.start()
    session.close()
    assert not giving.is_alive()
    trackers.stop()
