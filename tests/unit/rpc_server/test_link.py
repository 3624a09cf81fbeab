"""The link: bytes by name, and nothing else of rpyc."""

from __future__ import annotations

import contextlib
import socket
import threading
import zlib
from collections.abc import Iterator

import pytest
from rpyc.core import consts
from rpyc.core.channel import Channel
from rpyc.core.protocol import Connection
from rpyc.core.service import VoidService
from rpyc.core.stream import SocketStream
from rpyc.core.vinegar import GenericException

from rpc_server.wire import link
from rpc_server.wire.link import LINK_ERRORS, CappedChannel, Exposed, attach
from tests.patience import PATIENCE_S


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, threading.Thread]]:
    """The client's socket; the other end serves `reverse` on a thread."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    connection = attach(accepted, Exposed({"reverse": lambda data: data[::-1]}))

    def serve() -> None:
        with contextlib.suppress(*LINK_ERRORS):
            connection.serve_all()

    thread = threading.Thread(target=serve)
    thread.start()
    yield client, thread
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
    client.close()
    thread.join(timeout=PATIENCE_S)
    server.close()
    assert not thread.is_alive()


def test_a_method_is_called_with_bytes(pair: tuple[socket.socket, threading.Thread]) -> None:
    connection = attach(pair[0], Exposed({}))
    assert connection.call("reverse", b"abc", PATIENCE_S) == b"cba"
    large = bytes(range(256)) * 1000
    assert connection.call("reverse", large, PATIENCE_S) == large[::-1]
    connection.drop()


def test_a_link_that_is_dropped_while_it_sends_is_a_lost_link(
    pair: tuple[socket.socket, threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = attach(pair[0], Exposed({}))
    monkeypatch.setattr(CappedChannel, "send", lambda *_: connection.drop())
    with pytest.raises(EOFError, match="the link was closed"):
        connection.call("reverse", b"abc", PATIENCE_S)


@pytest.mark.parametrize("name", ["invert", "__class__", "methods", ""])
def test_other_names_are_refused(pair: tuple[socket.socket, threading.Thread], name: str) -> None:
    connection = attach(pair[0], Exposed({}))
    with pytest.raises((ValueError, GenericException), match="expected one of reverse"):
        connection.call(name, b"", PATIENCE_S)
    connection.drop()


@pytest.mark.parametrize(
    ("handler", "arguments"),
    [
        (consts.HANDLE_GETROOT, ()),
        (consts.HANDLE_GETATTR, ("methods", "__class__")),
        (consts.HANDLE_CALLATTR, ("reverse", "__init__", ())),
        (consts.HANDLE_PICKLE, ("reverse", 4)),
        (consts.HANDLE_DIR, ("reverse",)),
        (consts.HANDLE_INSPECT, (("builtins.object", 1, 2),)),
        (consts.HANDLE_CALL, ("reverse", "not bytes")),
        (consts.HANDLE_CALL, (("reverse",), b"")),
    ],
)
def test_an_ordinary_rpyc_client_gets_nothing_else(
    pair: tuple[socket.socket, threading.Thread], handler: int, arguments: tuple[object, ...]
) -> None:
    stranger = Connection(
        VoidService(), Channel(SocketStream(pair[0])), {"sync_request_timeout": PATIENCE_S}
    )
    with pytest.raises(Exception) as caught:
        stranger.sync_request(handler, *arguments)
    assert not isinstance(caught.value, TimeoutError)
    stranger.close()


def test_references_are_refused(pair: tuple[socket.socket, threading.Thread]) -> None:
    stranger = Connection(
        VoidService(), Channel(SocketStream(pair[0])), {"sync_request_timeout": PATIENCE_S}
    )
    with pytest.raises(ValueError, match="only plain values"):
        stranger.sync_request(consts.HANDLE_CALL, "reverse", object())
    stranger.close()


def capped(sock: socket.socket) -> CappedChannel:
    return CappedChannel(SocketStream(sock))


def test_a_frame_over_the_limit_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "FRAME_BYTES", 1000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(Channel.FRAME_HEADER.pack(1001, 0))
        with pytest.raises(EOFError, match="over the limit"):
            capped(ours).recv()


def test_a_small_frame_that_unpacks_to_a_large_one_ends_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "FRAME_BYTES", 1000)
    ours, theirs = socket.socketpair()
    bomb = zlib.compress(bytes(100_000))
    with ours, theirs:
        theirs.sendall(Channel.FRAME_HEADER.pack(len(bomb), 1) + bomb + b"\n")
        with pytest.raises(EOFError, match="when unpacked"):
            capped(ours).recv()


def test_a_damaged_frame_ends_the_link() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(Channel.FRAME_HEADER.pack(4, 1) + b"abcd" + b"\n")
        with pytest.raises(EOFError, match="damaged"):
            capped(ours).recv()


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\0\0\0\1\0\x0f\n"])
def test_strangers_only_end_their_own_connection(
    pair: tuple[socket.socket, threading.Thread], junk: bytes
) -> None:
    client, thread = pair
    client.sendall(junk)
    # The other side may have hung up by now.
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
    thread.join(timeout=PATIENCE_S)
    assert not thread.is_alive()
