"""The link between client and board: rpyc's framing and dispatch, and none of its object system.

In: a method name and bytes. Out: bytes. Every other rpyc request (attributes, references, pickles,
introspection) is refused, arguments and replies must be plain values, of few parts; frames have a
size limit that also holds after decompression, a small one until the peer is admitted.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import zlib
from collections.abc import Callable
from typing import Any

from rpyc.core import consts
from rpyc.core.channel import Channel
from rpyc.core.protocol import Connection
from rpyc.core.service import Service
from rpyc.core.vinegar import GenericException

from rpc_server.security.auth import Role
from rpc_server.security.tls import Credentials, secure
from rpc_server.wire.messages import MAX_MESSAGE_BYTES
from rpc_server.wire.scan import check_packet
from rpc_server.wire.stream import LimitedStream

FRAME_BYTES = MAX_MESSAGE_BYTES + (64 << 10)
MAX_REASON = 500
"""Characters of an error that is sent."""
CONFIG = {
    "allow_pickle": False,
    "allow_public_attrs": False,
    "allow_all_attrs": False,
    "allow_safe_attrs": False,
    "allow_exposed_attrs": False,
    "allow_getattr": False,
    "allow_setattr": False,
    "allow_delattr": False,
    "import_custom_exceptions": False,
    "instantiate_custom_exceptions": False,
    "include_local_traceback": False,
    "close_catchall": True,
    "sync_request_timeout": 5,
}


class LinkLostError(Exception):
    """The connection broke; the board may come back."""


class Admission(bytes):
    """An answer after which whoever asked may send large messages."""


class CappedChannel(Channel):  # type: ignore[misc]  # rpyc has no types
    """A channel that reads no frame larger than its limit, compressed or not, and none whose parts
    are more than a call has."""

    __slots__ = ("limit",)

    def __init__(self, stream: LimitedStream, limit: int | None = None) -> None:
        super().__init__(stream)
        self.limit = FRAME_BYTES if limit is None else limit

    def recv(self) -> bytes:
        """The next packet. Raises EOFError."""
        length, compressed = self.FRAME_HEADER.unpack(self.stream.read(self.FRAME_HEADER.size))
        if length > self.limit:
            raise EOFError(f"a frame of {length} bytes is over the limit of {self.limit}")
        data: bytes = self.stream.read(length + len(self.FLUSHER))[: -len(self.FLUSHER)]
        if compressed:
            data = _unpacked(data, self.limit)
        try:
            check_packet(data)
        except ValueError as error:
            raise EOFError(f"a packet of something else than calls: {error}") from None
        return data


def _unpacked(data: bytes, limit: int) -> bytes:
    """A compressed frame's content. Raises EOFError where there is more than the limit, of which
    nothing beyond it is made."""
    inflate = zlib.decompressobj()
    try:
        content = inflate.decompress(data, limit + 1)
    except zlib.error as error:
        raise EOFError(f"a damaged frame: {error}") from None
    if len(content) > limit:
        raise EOFError(f"a frame is over the limit of {limit} bytes when unpacked")
    if not inflate.eof:
        raise EOFError("a damaged frame: it ends too early")
    return content


class Exposed(Service):  # type: ignore[misc]
    """Methods that take bytes and give bytes, by name."""

    def __init__(self, methods: dict[str, Callable[[bytes], bytes]]) -> None:
        self.methods = methods


class BytesConnection(Connection):  # type: ignore[misc]
    """Both ends of a link. It answers calls of the service's methods, pings and close."""

    @classmethod
    def _request_handlers(cls) -> dict[int, Callable[..., Any]]:
        return {
            consts.HANDLE_PING: cls._handle_ping,
            consts.HANDLE_CLOSE: cls._handle_close,
            consts.HANDLE_CALL: cls._handle_named_call,
        }

    def _handle_named_call(self, name: object, payload: object) -> bytes:
        methods = self._local_root.methods
        if not isinstance(name, str) or name not in methods or not isinstance(payload, bytes):
            raise ValueError(f"expected one of {', '.join(sorted(methods))} with bytes")
        reply: bytes = methods[name](payload)
        return reply

    def _box(self, obj: object) -> tuple[int, object]:
        if type(obj) is tuple and all(type(item) in (bytes, str) for item in obj):
            return consts.LABEL_VALUE, obj
        if obj is None or type(obj) in (bytes, str):
            return consts.LABEL_VALUE, obj
        raise TypeError(f"only bytes cross the link, got {type(obj).__name__}")

    def _unbox(self, package: tuple[int, object]) -> object:
        label, value = package
        if label != consts.LABEL_VALUE:
            raise ValueError("only plain values cross the link")
        return value

    def _unbox_exc(self, raw: Any) -> GenericException:
        """What the other end raised, as text: rpyc would make a class of every name it is sent."""
        (_, name), arguments, *_ = raw
        return GenericException(f"{name}: {' '.join(map(str, arguments))}"[:MAX_REASON])

    def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
        """The other end's reply. Raises EOFError or TimeoutError when the link is lost."""
        try:
            reply = self.async_request(consts.HANDLE_CALL, name, payload, timeout=timeout_s).value
        except (RuntimeError, AttributeError):
            # Another thread dropped the link in the middle: rpyc takes its locks and tables away.
            if not self.closed:
                raise
            raise EOFError("the link was closed") from None
        if not isinstance(reply, bytes):
            raise EOFError(f"expected bytes from the other end, got {type(reply).__name__}")
        return reply

    def set_idle(self, idle_s: float | None) -> None:
        """How long the other end may be silent between two messages."""
        self._channel.stream.idle_s = idle_s

    def admit(self, frame_bytes: int | None) -> None:
        """The largest frame that is read from now on; None: what a batch may have."""
        self._channel.limit = FRAME_BYTES if frame_bytes is None else frame_bytes

    def drop(self) -> None:
        """Close without asking the other end, which may be gone. From any thread, never an error:
        one that is in the middle of a call may be closing the link too."""
        with contextlib.suppress(*LINK_ERRORS, AttributeError, RuntimeError):
            self._channel.close()
            self.close()


def attach(
    sock: socket.socket,
    service: Exposed,
    *,
    idle_s: float | None = None,
    frame_bytes: int | None = None,
) -> BytesConnection:
    """A connection over a connected socket, plain or TLS. `frame_bytes`: the largest one read."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return BytesConnection(
        service, CappedChannel(LimitedStream(sock, idle_s), frame_bytes), CONFIG
    )


def connect(
    host: str,
    port: int,
    timeout_s: float,
    credentials: Credentials | None = None,
    admitted: frozenset[Role] = frozenset({Role.BOARD}),
) -> BytesConnection:
    """Connect to a server of an admitted role, with TLS if there are credentials. Raises OSError,
    AuthError, and ConfigError while the certificates here are being replaced."""
    plain = socket.create_connection((host, port), timeout=timeout_s)
    sock, _ = secure(plain, credentials, admitted, timeout_s)
    return attach(sock, Exposed({}))


LINK_ERRORS = (EOFError, OSError, ValueError, TypeError, struct.error, GenericException)
"""What a lost or confused link raises out of `call`; TimeoutError is an OSError."""


def why_lost(error: BaseException) -> str:
    """One line: what ended a link."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(reason).splitlines()[0]
