"""Small until admitted: what a peer may send, hold and take before anybody knows it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from rpyc.core import brine, consts
from rpyc.core.channel import Channel
from rpyc.core.stream import SocketStream

from autotune.errors import DeviceError
from rpc_server.board.device import BoardDevice
from rpc_server.board.job import Abilities
from rpc_server.board.lease_guard import Gate, make_ticket
from rpc_server.board.server import BoardServer
from rpc_server.security.freshness import SealedConnection
from rpc_server.wire import listener as door_module
from rpc_server.wire import messages as wire
from rpc_server.wire.link import LINK_ERRORS, BytesConnection, CappedChannel, connect
from tests.patience import PATIENCE_S
from tests.unit.rpc_server.farm_certs import FarmCerts, make_farm
from tests.unit.rpc_server.test_board import ToldDevice
from tests.unit.rpc_server.test_tls import LIMITS, refused, site


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> FarmCerts:
    return make_farm(tmp_path_factory.mktemp("certs") / "farm")


def hello_of(size: int) -> bytes:
    """A packet that calls `hello` with an array of numbers of about so many bytes."""
    message = b'{"v":3,"kind":"hello","ticket":[' + b"0," * (size // 2) + b"0]}"
    boxed = tuple((consts.LABEL_VALUE, a) for a in ("hello", message))
    call = (1, (consts.HANDLE_CALL, (consts.LABEL_TUPLE, boxed)))
    return bytes(brine.I1.pack(consts.MSG_REQUEST) + brine.dump(call))


@pytest.mark.parametrize("size", [wire.SMALL_BYTES, 1 << 20, 31 << 20])
def test_a_packed_hello_is_not_unpacked_further_than_a_small_frame(size: int) -> None:
    """31 MiB of an array, of which zlib makes 31 KB, became 0.9 GiB of objects."""
    packed = zlib.compress(hello_of(size), 9)
    frame = Channel.FRAME_HEADER.pack(len(packed), 1) + packed + b"\n"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=theirs.sendall, args=(frame,))
        sender.start()
        tracemalloc.start()
        with pytest.raises(EOFError, match="over the limit"):
            CappedChannel(SocketStream(ours), wire.SMALL_BYTES).recv()
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        sender.join()
    assert peak_bytes < 4 * wire.SMALL_BYTES


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\1" + brine.dump(tuple(range(200)) * 2),
        b"\1" + brine.dump((1, (2, frozenset([3])))),
        b"\1" + brine.dump((1, 10**400)),
        b"\1" + brine.dump((1, 2)) + b"more",
        b"\1\x13",
        b"\1" + b"\x10" * 20 + b"\0",
    ],
)
def test_a_packet_of_many_parts_ends_the_link(packet: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(Channel.FRAME_HEADER.pack(len(packet), 0) + packet + b"\n")
        with pytest.raises(EOFError, match="something else than calls"):
            CappedChannel(SocketStream(ours)).recv()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"v":3,"kind":"hello","x":[' + b"0," * 5000 + b"0]}", "at most 4064 values"),
        (b'{"v":3,"kind":"hello","x":' + b"[" * 40 + b"]" * 40 + b"}", "at most 32 levels"),
        (b'{"v":3,"kind":"hello","x":' + b"1" * 41 + b"}", "at most 40 digits"),
        (b'{"v":3,"kind":"hello","x":"' + b"x" * 65000 + b'"}', "at most 65024 bytes"),
        ('{"v":3,"kind":"hello","x":[0,0]}'.encode("utf-16"), "in JSON"),
        (b'{"v":3,"kind":"hello","ticket":1e400}', "expected a text"),
        (b'{"v":3,"kind":"hello","ticket":"\\ud800"}', "malformed hello"),
    ],
)
def test_a_small_message_is_of_few_values(text: bytes, reason: str) -> None:
    with pytest.raises(wire.WireError, match=reason):
        wire.decode_greeting(text)


def test_brackets_and_commas_in_texts_do_not_count() -> None:
    text = json.dumps({"v": 3, "kind": "job", "job": '[[{,\\"' * 15}).encode()
    assert wire.decode_job(text) == '[[{,\\"' * 15


# ---------------------------------------------------------------------------------------- boards


@contextlib.contextmanager
def served(gate: Gate | None) -> Iterator[BytesConnection]:
    """A link to a board that measures nothing."""
    board = BoardDevice(ToldDevice(), Abilities(version="1", cores=1), gate=gate)
    server = BoardServer(board, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    link = connect("127.0.0.1", server.port, PATIENCE_S)
    try:
        yield link
    finally:
        with contextlib.suppress(*LINK_ERRORS):
            link.drop()
        server.close()
        thread.join(timeout=PATIENCE_S)


LARGE = b'{"v":3,"kind":"submit","x":"' + b"x" * (1 << 20) + b'"}'


@pytest.mark.parametrize(
    ("gate", "ticket"),
    [(None, ""), (Gate("s"), make_ticket("s", 1, "local"))],
    ids=["alone", "lease"],
)
def test_whoever_is_admitted_sends_batches(gate: Gate | None, ticket: str) -> None:
    with served(gate) as bare:
        link = SealedConnection(bare, PATIENCE_S)
        wire.decode_hello(link.call("hello", wire.encode_greeting(ticket), PATIENCE_S))
        with pytest.raises(DeviceError, match="KeyError 'tasks'"):  # it was read
            wire.decode_job(link.call("submit", LARGE, PATIENCE_S))


@pytest.mark.parametrize("tickets", [(), ("",), ("1:forged",)], ids=["none", "empty", "forged"])
def test_whoever_has_no_lease_does_not(tickets: tuple[str, ...]) -> None:
    with served(Gate("s")) as link:
        for ticket in tickets:
            link.call("hello", wire.encode_greeting(ticket), PATIENCE_S)
        with pytest.raises(LINK_ERRORS):
            link.call("submit", LARGE, PATIENCE_S)


# ----------------------------------------------------------------------------------------- places


def silent(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), source_address=(host, 0))


def test_silent_links_count_as_their_peer_s(tmp_path: Path, farm: FarmCerts) -> None:
    with site(tmp_path, farm.of("board")) as here:
        links = [here.known(farm.of("alice")) for _ in range(4)]
        with pytest.raises(LINK_ERRORS, match="too many links: 0 of 6, 3 of 3 yours"):
            links[3].call("reverse", b"ab", PATIENCE_S)
        assert links[0].call("reverse", b"ab", PATIENCE_S) == b"ba"
        assert not refused(here, farm.of("builder"))
        for link in links:
            link.drop()


def test_other_machines_leave_this_one_its_places(
    tmp_path: Path, farm: FarmCerts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """127.0.0.2 plays the other machine, which opens connections all the while."""
    monkeypatch.setattr(door_module, "is_loopback", lambda host: host == "127.0.0.1")
    limits = dataclasses.replace(LIMITS, opening=1)
    with site(tmp_path, farm.of("board"), limits) as here:
        own = here.known(farm.of("alice"))
        others = [silent(here.listener.port, "127.0.0.2") for _ in range(20)]
        assert own.call("reverse", b"ab", PATIENCE_S) == b"ba"
        for sock in others:
            sock.close()
        own.drop()


def test_links_of_other_machines_leave_this_one_some(
    tmp_path: Path, farm: FarmCerts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "is_loopback", lambda _: False)
    monkeypatch.setattr(door_module, "LOCAL_SHARE", 3)
    limits = dataclasses.replace(LIMITS, links_per_peer=99)
    with site(tmp_path, farm.of("board"), limits) as here:
        links = [here.visit(farm.of("alice")) for _ in range(4)]
        for link in links:
            assert link.call("reverse", b"ab", PATIENCE_S) == b"ba"
        assert refused(here, farm.of("alice"))
        monkeypatch.setattr(door_module, "is_loopback", lambda _: True)
        assert not refused(here, farm.of("alice"))
        for link in links:
            link.drop()


def test_the_machine_that_has_most_silent_connections_loses_one(tmp_path: Path) -> None:
    limits = dataclasses.replace(LIMITS, opening=4)
    with site(tmp_path, None, limits) as here:
        first = here.visit(None)
        flood = [silent(here.listener.port, "127.0.0.2") for _ in range(40)]
        assert first.call("reverse", b"ab", PATIENCE_S) == b"ba"
        for sock in flood:
            sock.close()
        first.drop()


def test_an_idle_local_link_makes_place_for_the_next(tmp_path: Path) -> None:
    with site(tmp_path, None, dataclasses.replace(LIMITS, links=2)) as here:
        links = [here.visit(None) for _ in range(2)]
        for link in links:
            assert link.call("reverse", b"ab", PATIENCE_S) == b"ba"
        assert refused(here, None)  # both have just been used
        for visit in here.listener._visits:
            visit.heard_s -= 2 * LIMITS.opening_s
        assert links[1].call("reverse", b"ab", PATIENCE_S) == b"ba"
        assert not refused(here, None)
        assert links[1].call("reverse", b"ab", PATIENCE_S) == b"ba"
        with pytest.raises(LINK_ERRORS):
            links[0].call("reverse", b"ab", PATIENCE_S)
        links[1].drop()
