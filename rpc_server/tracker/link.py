"""A link to the tracker that comes back. In: method and bytes. Out: bytes, or LinkLostError.

Whoever calls decides when to try again; `Backoff` says how long to wait, longer every time and
never the same for two peers, so that a tracker that restarts is not run over.
"""

from __future__ import annotations

import random
import threading

from autotune.errors import ConfigError
from rpc_server.security.auth import AuthError, Role
from rpc_server.security.freshness import SealedConnection
from rpc_server.security.tls import Credentials
from rpc_server.tracker.types import FarmError
from rpc_server.wire.link import LINK_ERRORS, BytesConnection, LinkLostError, connect, why_lost
from rpc_server.wire.refusals import LinkRefusedError, lost

CONNECT_S = 3.0
"""Seconds until the tracker accepts a link."""
TRACKER = frozenset({Role.TRACKER})


class Backoff:
    """Pauses in seconds: doubling from `first_s` to `longest_s`, each shortened by up to half."""

    def __init__(self, first_s: float, longest_s: float, generator: random.Random) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._generator = generator
        self._next_s = first_s

    def pause_s(self) -> float:
        pause_s = self._next_s * (1 - self._generator.random() / 2)
        self._next_s = min(2 * self._next_s, self._longest_s)
        return pause_s

    def reset(self, longest_s: float | None = None) -> None:
        """Begin anew, with another limit if one is given."""
        if longest_s is not None:
            self._longest_s = max(self._first_s, longest_s)
        self._next_s = self._first_s


def asked(link: TrackerLink, name: str, payload: bytes, timeout_s: float, advice: str) -> bytes:
    """The tracker's answer to who does not try again. Raises FarmError, with what to do where
    nothing answers."""
    try:
        return link.call(name, payload, timeout_s)
    except LinkRefusedError as error:
        reason = f"cannot use the tracker {link.address}: {error}"
    except LinkLostError as error:
        reason = f"cannot reach the tracker {link.address}: {error}; {advice}"
    raise FarmError(reason)


class TrackerLink:
    """Connects at the first call and after every loss. Thread-safe, one call at a time."""

    def __init__(self, host: str, port: int, credentials: Credentials | None = None) -> None:
        self.address = f"{host}:{port}"
        self._host, self._port = host, port
        self._credentials = credentials
        self._lock = threading.Lock()
        self._connection: BytesConnection | SealedConnection | None = None
        self._closed = False
        self._answered = False

    def call(self, name: str, payload: bytes, timeout_s: float) -> bytes:
        """The tracker's answer. Raises LinkLostError; LinkRefusedError where trying again changes
        nothing."""
        with self._lock:
            try:
                if self._closed:
                    raise EOFError("the link is closed")
                connection = self._connection or self._connect()
                reply = connection.call(name, payload, timeout_s)
                self._answered = True
                return reply
            except AuthError as error:
                self._drop()
                raise LinkRefusedError(str(error)) from None
            except (*LINK_ERRORS, ConfigError) as error:
                self._drop()
                answered = self._answered or self._closed or isinstance(error, ConnectionError)
                raise lost(
                    why_lost(error), self._host, self._port, self._credentials, answered
                ) from None

    def _connect(self) -> BytesConnection | SealedConnection:
        plain = connect(self._host, self._port, CONNECT_S, self._credentials, TRACKER)
        self._connection = plain
        self._check_open()
        if self._credentials is None:
            self._connection = SealedConnection(plain, CONNECT_S)
            self._check_open()
        return self._connection

    def _check_open(self) -> None:
        if self._closed:
            raise EOFError("the link was closed")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()

    def close(self) -> None:
        """From any thread: a call in progress fails."""
        self._closed = True
        self._drop()
