"""A client's leases: as many boards of a key as it wants, for as long as it wants them.

In: the tracker's address, a key, how many boards. Out: a call for every board that is granted,
recalled or lost. One thread keeps the leases alive and hears of news; requests that end without a
board are made again. While the tracker is away the boards stay in use: they know their lease.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from autotune.errors import DeviceError
from rpc_server.tracker.link import Backoff, TrackerLink, asked
from rpc_server.tracker.types import Asked, Released
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire.farm import Grant, View
from rpc_server.wire.link import LinkLostError
from rpc_server.wire.refusals import LinkRefusedError

WATCH_S = 2.0
"""Seconds that a session's last message may take."""
QUICK_S = 10.0
"""Seconds until the tracker answers what it need not wait for."""
ASKS, RELEASES = 64, 12
"""In one message, which is small; what is left comes with the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Callbacks of a session, called on its own thread."""

    granted: Callable[[Grant], None]
    recalled: Callable[[int], None]
    lost: Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The request to the tracker for each board: one of this key, before clients of a lower
    priority, within so many seconds."""

    key: str
    priority: int
    queue_s: float


class LeaseSession:
    """Starts with no board wanted. Thread-safe."""

    def __init__(
        self,
        watch: TrackerLink,
        quick: TrackerLink,
        news: News,
        terms: LeaseTerms,
        *,
        backoff: Backoff,
        clock: Callable[[], float],
    ) -> None:
        self._watch, self._quick = watch, quick
        self._news = news
        self._terms = terms
        self._backoff = backoff
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._wanted = 0
        self._asked: dict[str, bool] = {}
        """Requests by name; whether the tracker has said that it has them."""
        self._sent: set[str] = set()
        """Requests in a message that is under way: sent again on the other link, one could be
        granted, given back, and granted once more."""
        self._held: dict[int, Grant] = {}
        self._recalled: set[int] = set()
        self._leaving: dict[int, Released] = {}
        self._tracker_run, self._version = "", -1
        self._answered_s = clock()
        self.trouble = ""
        """Why the tracker last refused or did not answer; '' when all is well."""
        self.refused = ""
        """Why the tracker does not want this client, as long as it does not."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="leases")
        self._thread.start()

    @property
    def silent_s(self) -> float:
        """How long the tracker has not answered."""
        with self._lock:
            return self._clock() - self._answered_s

    def want(self, boards: int) -> None:
        """Hold or wait for this many boards from now on; more than that are not given back."""
        with self._lock:
            self._wanted = boards
            missing = self._missing() > 0
        if missing:
            self._hurry()

    def release(self, fence: int, results: int, fault: str, *, unsound: bool = False) -> None:
        """Give a board back, and take another one if it is wanted. See Released."""
        with self._lock:
            if fence not in self._held:
                return
            del self._held[fence]
            self._recalled.discard(fence)
            self._leaving[fence] = Released(
                client="",
                fence=fence,
                results=results,
                fault=" ".join(fault.split()),
                unsound=unsound,
            )
        self._hurry()

    def close(self) -> None:
        """Give everything back; the tracker finds out by itself if it cannot be told."""
        self._closed.set()
        # What is asked on the other link must not come after what withdraws it.
        self._watch.close()
        self._thread.join(timeout=WATCH_S)
        with self._lock:
            self._wanted = 0
            for fence in list(self._held):
                self._leaving[fence] = Released(client="", fence=fence)
            self._held.clear()
            gone = tuple(self._asked)
            self._asked.clear()
        with contextlib.suppress(LinkLostError, DeviceError):
            while gone or self._leaving:
                with self._lock:
                    sync = self._message(0.0, withdrawn=gone[:ASKS])
                self._quick.call("sync", farm_wire.encode_sync(sync), WATCH_S)
                gone = gone[ASKS:]
                with self._lock:  # a board's thread may have told the same meanwhile
                    for release in sync.releases:
                        self._leaving.pop(release.fence, None)
        self._quick.close()

    # ------------------------------------------------------------------------------- messages

    def _run(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                sync = self._message(WATCH_S)
            if self._exchange(self._watch, sync):
                self._backoff.reset()
            else:
                self._closed.wait(self._backoff.pause_s())

    def _hurry(self) -> None:
        """Tell the tracker now, on the other link: the watching one may be waiting for news."""
        with self._lock:
            sync = self._message(0.0)
        self._exchange(self._quick, sync)

    def _missing(self) -> int:
        standing = len(self._held) - len(self._recalled)
        return self._wanted - standing - len(self._asked)

    def _message(self, wait_s: float, withdrawn: tuple[str, ...] = ()) -> farm_wire.Sync:
        for _ in range(self._missing()):
            self._asked[secrets.token_hex(8)] = False
        unknown = [n for n, known in self._asked.items() if not (known or n in self._sent)]
        self._sent.update(unknown[:ASKS])
        if len(unknown) > ASKS or len(self._leaving) > RELEASES:
            wait_s = 0.0
        return farm_wire.Sync(
            session=self._name,
            asks=tuple(
                Asked(
                    client="",
                    request=name,
                    key=self._terms.key,
                    priority=self._terms.priority,
                    queue_s=self._terms.queue_s,
                )
                for name in unknown[:ASKS]
            ),
            withdrawn=withdrawn,
            releases=tuple(self._leaving.values())[:RELEASES],
            renew=tuple(self._held),
            version=self._version if wait_s else -1,
            wait_s=wait_s,
        )

    def _exchange(self, link: TrackerLink, sync: farm_wire.Sync) -> bool:
        """Send and take in the answer; whether there was a good one."""
        asks = {ask.request for ask in sync.asks}
        try:
            reply = link.call("sync", farm_wire.encode_sync(sync), QUICK_S + sync.wait_s)
            view = farm_wire.decode_view(reply)
        except (LinkLostError, DeviceError) as error:
            self.trouble = str(error)
            if isinstance(error, LinkRefusedError):
                self.refused = str(error)
            with self._lock:
                self._sent -= asks
            return False
        self.refused = ""
        with self._lock:
            self._answered_s = self._clock()
            self._sent -= asks
            calls = self._take_in(view, sync)
        for call in calls:
            call()
        return not self.trouble

    def _take_in(self, view: View, sync: farm_wire.Sync) -> list[Callable[[], None]]:
        """Compare the tracker's truth with ours; what to call for the differences."""
        for release in sync.releases:
            self._leaving.pop(release.fence, None)
        late = view.run == self._tracker_run and view.version < self._version
        if late or self._closed.is_set():
            return []
        self._tracker_run, self._version = view.run, view.version
        self.trouble = ""
        calls: list[Callable[[], None]] = []
        sent = {ask.request for ask in sync.asks}
        granted = {grant.request: grant for grant in view.grants}
        answered = [n for n, known in self._asked.items() if known or n in sent or n in granted]
        for name in answered:  # a grant may come before the answer to the message that asked
            grant = granted.get(name)
            if grant is not None:
                del self._asked[name]
                self._held[grant.fence] = grant
                calls.append(lambda grant=grant: self._news.granted(grant))  # type: ignore[misc]
            elif name in view.waiting:
                self._asked[name] = True
            else:  # it ended without a board; the next message asks anew
                del self._asked[name]
                self.trouble = view.notes.get(name, "")
        fences = {grant.fence: grant for grant in view.grants}
        for fence in [f for f in self._held if f not in fences]:
            del self._held[fence]
            self._recalled.discard(fence)
            reason = view.notes.get(f"lease {fence}", "the tracker does not know the lease")
            calls.append(lambda f=fence, r=reason: self._news.lost(f, r))  # type: ignore[misc]
        for fence, grant in fences.items():
            if fence in self._held and grant.recalled and fence not in self._recalled:
                self._recalled.add(fence)
                calls.append(lambda f=fence: self._news.recalled(f))  # type: ignore[misc]
        strays = set(fences) - set(self._held) - set(self._leaving)
        for fence in strays:  # granted to a request that was given up
            self._leaving[fence] = Released(client="", fence=fence)
        return calls


def ask_key(link: TrackerLink, key: str) -> list[dict[str, object]]:
    """What the boards of a key say of themselves, those in service first. Raises FarmError."""
    advice = f"start one there with `rpc_server tracker --listen {link.address}`"
    return boards_of(asked(link, "key", farm_wire.encode_key(key), QUICK_S, advice))


def boards_of(reply: bytes) -> list[dict[str, object]]:
    """What the tracker passes on of its boards. Raises WireError."""
    boards = wire.decode("boards", reply).get("boards")
    if not isinstance(boards, list) or not all(isinstance(b, dict) for b in boards):
        raise wire.WireError("malformed boards message")
    return boards
