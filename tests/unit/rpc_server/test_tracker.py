"""The tracker's messages, without sockets: who may say what, and what is answered."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import DeviceError
from rpc_server.board.agent import Agent, Post
from rpc_server.board.lease_guard import LEASE_OVER, Gate, make_ticket
from rpc_server.security.auth import Peer, Role, local_peer
from rpc_server.tracker import service as tracker_module
from rpc_server.tracker.link import TrackerLink
from rpc_server.tracker.service import Tracker
from rpc_server.tracker.status import farm_text
from rpc_server.tracker.store import StateStore
from rpc_server.tracker.types import Asked, Beat, FarmError, FarmRules, Registered, Released
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire.farm import Sync, View
from tests.patience import PATIENCE_S

BOARD = Peer(name="rpi", role=Role.BOARD)
ALICE = Peer(name="alice", role=Role.CLIENT)
BOB = Peer(name="bob", role=Role.CLIENT)
ADMIN = Peer(name="tracker", role=Role.TRACKER)


@dataclass
class Subject:
    """A tracker whose time stands still unless moved."""

    path: Path | None = None
    now_s: float = 1000.0
    tracker: Tracker = field(init=False)
    store: StateStore = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.store = StateStore(self.path)
        self.tracker = Tracker(FarmRules(), self.store, version="1", clock=lambda: self.now_s)

    def stop(self) -> None:
        self.tracker.stop()
        self.store.close()

    def call(self, peer: Peer, name: str, payload: bytes) -> bytes:
        return self.tracker.enter(peer)[0][name](payload)

    def register(self, peer: Peer = BOARD, name: str = "rpi", secret: str = "s") -> None:
        event = Registered(board=name, key="k", address="h:1", secret=secret)
        payload = self.call(peer, "register", farm_wire.encode_register(event))
        farm_wire.decode_board_status(payload)

    def sync(self, peer: Peer = ALICE, session: str = "one", **fields: object) -> View:
        payload = farm_wire.encode_sync(Sync(session=session, **fields))  # type: ignore[arg-type]
        return farm_wire.decode_view(self.call(peer, "sync", payload))

    def ask(self, peer: Peer = ALICE, request: str = "r") -> View:
        return self.sync(peer, asks=(Asked(client="", request=request, key="k"),))


@pytest.fixture
def subject() -> Iterator[Subject]:
    subject = Subject()
    subject.register()
    yield subject
    subject.stop()


def test_a_granted_board_comes_with_address_and_ticket(subject: Subject) -> None:
    (grant,) = subject.ask().grants
    assert (grant.board, grant.address, grant.request) == ("rpi", "h:1", "r")
    Gate("s").admit(1, ALICE, grant.ticket)


def test_a_session_belongs_to_its_certificate(subject: Subject) -> None:
    (grant,) = subject.ask(ALICE).grants
    stolen = subject.sync(BOB, releases=(Released(client="", fence=grant.fence, results=1),))
    assert stolen.grants == ()
    assert subject.sync(ALICE).grants == (grant,)


def test_a_refused_request_is_a_note(subject: Subject) -> None:
    view = subject.sync(asks=(Asked(client="", request="r", key="other"),))
    assert "no board of key 'other'" in view.notes["r"]
    assert view.waiting == ()


def test_a_client_that_waits_hears_of_its_board(subject: Subject) -> None:
    (grant,) = subject.ask(ALICE).grants
    waiting = subject.ask(BOB)
    assert waiting.waiting == ("r",)
    views: list[View] = []
    thread = threading.Thread(
        target=lambda: views.append(subject.sync(BOB, version=waiting.version, wait_s=20.0))
    )
    thread.start()
    subject.sync(ALICE, releases=(Released(client="", fence=grant.fence),))
    thread.join(timeout=PATIENCE_S)
    assert [g.board for g in views[0].grants] == ["rpi"]


def test_leases_and_queue_outlive_the_tracker(tmp_path: Path) -> None:
    subject = Subject(tmp_path / "farm.db")
    subject.register()
    (grant,) = subject.ask(ALICE).grants
    subject.ask(BOB, "waiting")
    subject.stop()
    subject.start()
    assert subject.sync(ALICE).grants == (grant,)
    assert subject.sync(BOB).waiting == ("waiting",)
    subject.sync(ALICE, releases=(Released(client="", fence=grant.fence),))
    subject.register()
    (next_grant,) = subject.sync(BOB).grants
    assert next_grant.fence > grant.fence
    subject.stop()


def test_a_full_disk_stops_nothing_and_is_caught_up_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = Subject(tmp_path / "farm.db")
    resize = subject.store._database.execute
    resize("PRAGMA max_page_count = 1")
    count = 0
    while not (error := status(subject)["storage_error"]):
        subject.register(name=f"rpi-{count}")
        count += 1
    assert "full" in error
    (grant,) = subject.ask(ALICE).grants
    assert capsys.readouterr().err.count("warning") == 1
    resize("PRAGMA max_page_count = 100000")
    subject.ask(ALICE, "other")
    assert status(subject)["storage_error"] == ""
    subject.stop()
    subject.start()
    assert len(status(subject)["boards"]) == count
    assert grant in subject.sync(ALICE).grants
    subject.stop()


def status(subject: Subject) -> dict[str, Any]:
    return wire.decode("farm", subject.call(ADMIN, "status", wire.encode("status", {})))


def test_a_certificate_has_so_many_sessions(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "MAX_SESSIONS_OWN", 2)
    for session in ("one", "two"):
        subject.sync(ALICE, session)
    with pytest.raises(DeviceError, match="2 tuners of yours are at work"):
        subject.sync(ALICE, "three")
    subject.sync(BOB, "one")


def test_a_certificate_has_so_many_boards(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "MAX_BOARDS_OWN", 2)
    subject.register(name="second")
    with pytest.raises(DeviceError, match="2 boards of the certificate rpi are there"):
        subject.register(name="third")
    subject.register(name="second")
    subject.register(Peer(name="rpi5", role=Role.BOARD), name="third")


@pytest.mark.parametrize(
    ("peer", "name", "payload"),
    [
        (ALICE, "register", farm_wire.encode_register(
            Registered(board="x", key="k", address="a", secret="s"))),
        (ALICE, "beat", farm_wire.encode_beat(Beat(board="rpi", secret="s"))),
        (BOARD, "sync", farm_wire.encode_sync(Sync(session="x"))),
        (BOARD, "key", farm_wire.encode_key("k")),
        (ALICE, "command", farm_wire.encode_command("rpi", "drain")),
        (BOARD, "command", farm_wire.encode_command("rpi", "drain")),
    ],
)  # fmt: skip
def test_a_role_may_do_its_own_work_only(
    subject: Subject, peer: Peer, name: str, payload: bytes
) -> None:
    with pytest.raises(DeviceError, match=f"{name} is for a .*{peer.name} is none"):
        wire.decode("standing", subject.call(peer, name, payload))


def test_a_board_speaks_for_itself_only(subject: Subject) -> None:
    """A board with another certificate gets another name, however it calls itself."""
    subject.register(Peer(name="evil", role=Role.BOARD), name="rpi", secret="other")
    status = wire.decode("farm", subject.call(ADMIN, "status", wire.encode("status", {})))
    assert [b["name"] for b in status["boards"]] == ["evil/rpi", "rpi"]


def test_a_board_that_is_unknown_is_told_to_register(subject: Subject) -> None:
    reply = subject.call(BOARD, "beat", farm_wire.encode_beat(Beat(board="rpi", secret="old")))
    with pytest.raises(DeviceError, match="register it again"):
        farm_wire.decode_board_status(reply)


def test_decisions_of_an_operator(subject: Subject) -> None:
    reply = subject.call(ADMIN, "command", farm_wire.encode_command("rpi", "drain"))
    assert wire.decode("done", reply)["state"] == "drained"


BAD = [
    b"",
    b"{}",
    b'{"v":1,"kind":"sync"}',
    b'{"v":2,"kind":"sync"}',
    farm_wire.encode_sync(Sync(session="x" * 500)),
    farm_wire.encode_sync(Sync(session="a#b")),
    farm_wire.encode_sync(Sync(session="x", wait_s=1e9)),
    farm_wire.encode_sync(Sync(session="x", wait_s=float("nan"))),
    farm_wire.encode_sync(Sync(session="x", renew=(-1,))),
    farm_wire.encode_sync(Sync(session="x", renew=(1,) * 2000)),
    farm_wire.encode_sync(
        Sync(session="x", asks=(Asked(client="", request="r", key="k", priority=1000),))
    ),
    farm_wire.encode_sync(
        Sync(session="x", asks=(Asked(client="", request="r", key="k", queue_s=1e12),))
    ),
    wire.encode("sync", {"session": "x", "asks": [[1]], "withdrawn": [], "releases": [],
                         "renew": [], "version": 0, "wait_s": 0}),
]  # fmt: skip


@pytest.mark.parametrize("payload", BAD)
def test_malformed_messages_are_refused_and_change_nothing(
    subject: Subject, payload: bytes
) -> None:
    message = json.loads(subject.call(ALICE, "sync", payload))
    assert message["kind"] == "error"
    assert subject.ask().grants != ()


def test_a_board_says_little_about_itself(subject: Subject) -> None:
    event = Registered(board="x", key="k", address="a", secret="s", info={"x": "y" * (1 << 15)})
    reply = subject.call(BOARD, "register", farm_wire.encode_register(event))
    with pytest.raises(DeviceError, match="at most 16384 bytes"):
        farm_wire.decode_board_status(reply)


@pytest.mark.parametrize(
    "stats", [{"trials": "many"}, {"temperature_c": "hot"}, {"x": []}, {"last_error": {"a": 1}}]
)
def test_what_a_board_says_of_itself_can_be_shown(
    subject: Subject, stats: dict[str, object]
) -> None:
    beat = Beat(board="rpi", secret="s", stats=stats)
    reply = subject.call(BOARD, "beat", farm_wire.encode_beat(beat))
    with pytest.raises(DeviceError, match="malformed beat message"):
        farm_wire.decode_board_status(reply)
    event = Registered(board="x", key="k", address="a", secret="s", info={"sandbox": [1]})
    reply = subject.call(BOARD, "register", farm_wire.encode_register(event))
    with pytest.raises(DeviceError, match="a sandbox is"):
        farm_wire.decode_board_status(reply)


def test_a_board_does_not_write_to_the_operator_s_terminal(subject: Subject) -> None:
    beat = Beat(board="rpi", secret="s", stats={"last_error": "\x1b[2J\x1b]0;mine\x07"})
    subject.call(BOARD, "beat", farm_wire.encode_beat(beat))
    text = farm_text(status(subject))
    assert r"\x1b[2J" in text
    assert all(c.isprintable() or c == "\n" for c in text)


# -------------------------------------------------------------------------------------------- gate


def test_a_ticket_is_bound_to_board_and_client() -> None:
    gate = Gate("secret")
    for bad in (make_ticket("other", 1, "alice"), make_ticket("secret", 1, "bob"), "1:", ":", "x"):
        with pytest.raises(FarmError, match="lease it again"):
            gate.admit(1, ALICE, bad)
    gate.admit(1, ALICE, make_ticket("secret", 1, "alice"))
    assert gate.fence(1) == 1


def test_a_newer_lease_ends_the_older_one() -> None:
    gate = Gate("secret")
    local = local_peer("127.0.0.1")
    gate.admit(1, local, make_ticket("secret", 1, "local"))
    gate.admit(2, local, make_ticket("secret", 2, "local"))
    assert gate.fence(2) == 2
    with pytest.raises(FarmError, match=LEASE_OVER):
        gate.fence(1)
    with pytest.raises(FarmError, match=LEASE_OVER):
        gate.admit(3, local, make_ticket("secret", 1, "local"))


def test_a_lease_the_tracker_ended_is_over() -> None:
    gate = Gate("secret")
    gate.admit(1, ALICE, make_ticket("secret", 4, "alice"))
    gate.raise_floor(5)
    with pytest.raises(FarmError, match=LEASE_OVER):
        gate.fence(1)


FAR = (1 << 53) - 1


def agent_of(subject: Subject, gate: Gate) -> Agent:
    """Of a board named rpi/b1, over the subject's tracker, that stops when it has registered."""

    class Link(TrackerLink):
        def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
            del timeout_s
            return subject.call(BOARD, name, payload)

    post = Post(name="b1", key="k", address="h:2", gate=gate, info=dict, stats=dict,
                raise_floor=gate.raise_floor, remeasure=lambda: None)  # fmt: skip
    agent = Agent(
        post, Link("t", 1), generator=random.Random(0), say=lambda _: agent._stopped.set()
    )
    return agent


def test_a_rogue_s_fence_locks_nobody_out(tmp_path: Path) -> None:
    """Neither now nor after a restart."""
    subject = Subject(tmp_path / "farm.db")
    gate = Gate("honest")
    rogue = Registered(board="rogue", key="j", address="h:1", secret="r", info={"floor": FAR})
    for _ in range(2):
        subject.call(BOARD, "register", farm_wire.encode_register(rogue))
        agent_of(subject, gate).run()
        (grant,) = subject.ask().grants
        assert (grant.board, grant.fence < 1000) == ("rpi/b1", True)
        gate.admit(1, ALICE, grant.ticket)
        subject.sync(releases=(Released(client="", fence=grant.fence, results=1),))
        subject.stop()
        subject.start()
    subject.stop()


def test_a_state_file_with_a_fence_that_nobody_granted_is_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = Subject(tmp_path / "farm.db")
    subject.register()
    gate = Gate("honest")
    gate.raise_floor(FAR + 1)  # told before the tracker was mended
    agent_of(subject, gate).run()
    subject.ask()
    subject.store._database.execute("UPDATE meta SET value = ? WHERE name = 'fence'", (FAR,))
    subject.stop()
    capsys.readouterr()
    subject.start()
    warnings = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in warnings] == [
        f"warning: the farm's last lease was number {FAR}"
    ]
    assert subject.sync().grants == ()
    agent_of(subject, gate).run()
    grants = [*subject.ask(request="r1").grants, *subject.ask(BOB).grants]
    assert sorted(g.board for g in grants) == ["rpi", "rpi/b1"]
    (own,) = [g for g in grants if g.board == "rpi/b1"]
    gate.admit(1, ALICE if own in subject.sync().grants else BOB, own.ticket)
    subject.stop()
    subject.start()
    assert capsys.readouterr().err == ""
    subject.stop()
