"""A client's leases, over a tracker without sockets."""

from __future__ import annotations

import queue
import random
import time
from pathlib import Path

from rpc_server import farm_wire
from rpc_server.auth import Peer, Role
from rpc_server.farm_client import LeaseSession, News
from rpc_server.farm_types import Registered, Rules
from rpc_server.state_store import StateStore
from rpc_server.tracker import Tracker
from rpc_server.tracker_link import Backoff, TrackerLink

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
        self.now = Tracker(Rules(), store, version="1", clock=clock)
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


def test_a_tracker_whose_clock_was_set_back_is_heard(tmp_path: Path) -> None:
    trackers = Trackers(tmp_path / "farm.db")
    trackers.start(behind_s=0.0)
    granted: queue.SimpleQueue[farm_wire.Grant] = queue.SimpleQueue()
    session = LeaseSession(
        Link(trackers),
        Link(trackers),
        News(granted=granted.put, recalled=lambda _: None, lost=lambda *_: None),
        key="k",
        priority=0,
        queue_s=60.0,
        backoff=Backoff(0.01, 0.01, random.Random(0)),
        clock=time.monotonic,
    )
    session.want(1)
    first = granted.get(timeout=10)
    trackers.start(behind_s=3600.0)
    session.release(first.fence, 1, "")
    assert granted.get(timeout=10).fence > first.fence
    session.close()
    trackers.stop()
