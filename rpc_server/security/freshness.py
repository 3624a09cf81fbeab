"""Messages that belong to one link: what was recorded on another is refused.

In: methods of bytes, or a link without TLS. Out: the same, where every message carries its number
on this link and a MAC under a word that the server drew for it. TLS does this by itself; without
it, on loopback, whoever can read the machine's traffic could otherwise send a client's messages
again and be granted its leases. It does not hide or sign anything from who reads along.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable, Mapping

from rpyc.core.vinegar import GenericException

from rpc_server.security.auth import Peer, Role
from rpc_server.wire import messages as wire
from rpc_server.wire.link import BytesConnection

NONCE = "nonce"
"""The method that gives a link's word."""
_MARK = b"\0"
"""No message of JSON begins so."""
_NUMBER = struct.Struct("<Q")
_DIGEST_BYTES = 32
"""Bytes of a SHA-256."""
_HEAD_BYTES = len(_MARK) + _NUMBER.size + _DIGEST_BYTES
Method = Callable[[bytes], bytes]
Enter = Callable[[Peer], tuple[dict[str, Method], Callable[[], None]]]


def seal(nonce: bytes, number: int, name: str, payload: bytes) -> bytes:
    """A message as the `number`th call, of method `name`, on the link of this word."""
    count = _NUMBER.pack(number)
    return _MARK + count + _digest(nonce, count, name, payload) + payload


def _digest(nonce: bytes, count: bytes, name: str, payload: bytes) -> bytes:
    return hmac.digest(nonce, count + name.encode() + b"\0" + payload, hashlib.sha256)


def of_one_link(methods: Mapping[str, Method], guarded: frozenset[str]) -> dict[str, Method]:
    """The methods for one link, with NONCE: those guarded take sealed messages only."""
    nonce, last = secrets.token_bytes(_DIGEST_BYTES), 0

    def opened(name: str, method: Method) -> Method:
        def call(payload: bytes) -> bytes:
            nonlocal last
            if not payload.startswith(_MARK):
                if name in guarded:
                    return _refused(name)
                return method(payload)
            count = payload[len(_MARK) : len(_MARK) + _NUMBER.size]
            digest, inner = payload[len(_MARK) + _NUMBER.size : _HEAD_BYTES], payload[_HEAD_BYTES:]
            right = hmac.compare_digest(digest, _digest(nonce, count, name, inner))
            if len(payload) < _HEAD_BYTES or not right or _NUMBER.unpack(count)[0] <= last:
                return _refused(name)
            last = _NUMBER.unpack(count)[0]
            return method(inner)

        return call

    return {NONCE: lambda _: nonce, **{n: opened(n, m) for n, m in methods.items()}}


def _refused(name: str) -> bytes:
    return wire.encode_error(
        f"this {name} message is not of this link, or not for the first time; connect anew, with "
        "the same version on both sides"
    )


def sealed_where_local(enter: Enter, guarded: Callable[[str], bool]) -> Enter:
    """A listener's `enter` whose links without TLS take sealed messages for methods that are
    guarded."""

    def enter_sealed(peer: Peer) -> tuple[dict[str, Method], Callable[[], None]]:
        methods, leave = enter(peer)
        if peer.role is Role.LOCAL:
            methods = of_one_link(methods, frozenset(filter(guarded, methods)))
        return methods, leave

    return enter_sealed


class SealedConnection:
    """A link without TLS whose messages are sealed. Raises as `BytesConnection.call`."""

    def __init__(self, connection: BytesConnection, timeout_s: float) -> None:
        self._connection = connection
        try:
            self._nonce = connection.call(NONCE, b"", timeout_s)
        except GenericException:  # it guards nothing: the word is for the server's sake
            self._nonce = b""
        self._number = 0

    def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
        """The other end's reply."""
        if not self._nonce:
            return self._connection.call(name, payload, timeout_s)
        self._number += 1
        sealed = seal(self._nonce, self._number, name, payload)
        return self._connection.call(name, sealed, timeout_s)

    def drop(self) -> None:
        """End the link."""
        self._connection.drop()
