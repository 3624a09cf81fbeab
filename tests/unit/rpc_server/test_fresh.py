"""Messages that were recorded on a link without TLS, and are sent again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from autotune.errors import DeviceError
from rpc_server.security.auth import Role
from rpc_server.security.freshness import NONCE, of_one_link, seal
from rpc_server.tracker.link import TrackerLink
from rpc_server.tracker.service import Tracker, tracker_listener
from rpc_server.tracker.store import StateStore
from rpc_server.tracker.types import Asked, FarmRules, Registered
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire.link import connect
from rpc_server.wire.listener import Listener
from tests.patience import PATIENCE_S
from tests.unit.rpc_server.recorder import Recorder

NAMES = frozenset({"take"})


@dataclass
class Served:
    """Methods of one link, and what came through."""

    methods: dict[str, Callable[[bytes], bytes]]
    seen: list[bytes]

    def refuses(self, name: str, payload: bytes) -> bool:
        with pytest.raises(DeviceError, match="is not of this link, or not for the first time"):
            wire.decode("taken", self.methods[name](payload))
        return True


def link() -> Served:
    seen: list[bytes] = []

    def take(payload: bytes) -> bytes:
        seen.append(payload)
        return wire.encode("taken", {})

    return Served(of_one_link({"take": take, "ask": take}, NAMES), seen)


def test_a_message_is_taken_once_on_its_own_link() -> None:
    one, other = link(), link()
    nonce = one.methods[NONCE](b"")
    message = seal(nonce, 1, "take", b"{}")
    one.methods["take"](message)
    assert one.seen == [b"{}"]
    assert one.refuses("take", message)
    assert other.refuses("take", message)
    one.methods["take"](seal(nonce, 2, "take", b"{}"))
    assert (len(one.seen), other.seen) == (2, [])


@pytest.mark.parametrize("cut", [0, 1, 8, 9, 40])
def test_what_is_changed_or_cut_is_refused(cut: int) -> None:
    here = link()
    nonce = here.methods[NONCE](b"")
    message = bytearray(seal(nonce, 1, "take", b"{}"))
    assert here.refuses("take", bytes(message[: cut + 1]))
    message[-1] ^= 1
    assert here.refuses("take", bytes(message))
    assert here.refuses("take", seal(nonce, 1, "ask", b"{}"))
    assert here.seen == []


def test_what_is_not_sealed_gets_through_to_questions_only() -> None:
    here = link()
    assert here.refuses("take", b"{}")
    here.methods["ask"](b"{}")
    assert here.seen == [b"{}"]


@pytest.fixture
def listener() -> Iterator[tuple[Tracker, Listener]]:
    store = StateStore(None)
    tracker = Tracker(FarmRules(), store, version="1")
    listener = tracker_listener(tracker, "127.0.0.1", 0)
    thread = threading.Thread(target=listener.serve)
    thread.start()
    yield tracker, listener
    tracker.stop()
    listener.close()
    thread.join(timeout=PATIENCE_S)
    store.close()


def test_a_recorded_session_that_is_sent_again_is_granted_nothing(
    listener: tuple[Tracker, Listener],
) -> None:
    _, here = listener
    recorder = Recorder(here.port)
    client, board = TrackerLink("127.0.0.1", recorder.port), TrackerLink("127.0.0.1", here.port)
    event = Registered(board="b0", key="k", address="h:1", secret="s")
    board.call("register", farm_wire.encode_register(event), PATIENCE_S)
    asked = farm_wire.Sync(session="s", asks=(Asked(client="", request="r", key="k"),))
    view = farm_wire.decode_view(client.call("sync", farm_wire.encode_sync(asked), PATIENCE_S))
    (grant,) = view.grants
    recorded = b"".join(recorder.sent)  # before the board is given back
    gone = farm_wire.Sync(
        session="s", releases=(farm_wire.Released(client="", fence=grant.fence),)
    )
    client.call("sync", farm_wire.encode_sync(gone), PATIENCE_S)
    client.close()
    recorder.close()
    with socket.create_connection(("127.0.0.1", here.port), timeout=PATIENCE_S) as again:
        again.sendall(recorded)
        again.shutdown(socket.SHUT_WR)
        while again.recv(65536):
            continue
    status = wire.decode("farm", board.call("status", wire.encode("status", {}), PATIENCE_S))
    assert [b["state"] for b in status["boards"]] == ["idle"]
    board.close()


def test_a_tracker_takes_nothing_that_is_not_sealed(listener: tuple[Tracker, Listener]) -> None:
    _, here = listener
    plain = connect("127.0.0.1", here.port, PATIENCE_S, None, frozenset({Role.TRACKER}))
    event = Registered(board="b0", key="k", address="h:1", secret="s")
    with pytest.raises(DeviceError, match="is not of this link"):
        farm_wire.decode_board_status(
            plain.call("register", farm_wire.encode_register(event), PATIENCE_S)
        )
    plain.drop()
