"""A socket, plain or TLS, as rpyc reads and writes it, with a limit on every wait.

In: a connected socket. Out: exact reads and whole writes, or EOFError. A peer that sends half of a
frame and stops, or never reads its replies, is given up; it holds nothing but its own thread.
TLS sockets may be read and written by two threads at once: OpenSSL's state is behind a lock.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time

from rpyc.core.stream import SocketStream
from rpyc.lib import Timeout

TRANSFER_S = 20.0
"""Seconds without a byte after which a transfer ends."""
SLOWEST_BYTES_PER_S = 32 << 10
"""A transfer of n bytes may take TRANSFER_S + n / SLOWEST_BYTES_PER_S."""
CHUNK = 64000
"""Bytes handed to the system at a time, as rpyc's streams do."""


class LimitedStream(SocketStream):  # type: ignore[misc]  # rpyc has no types
    """`idle_s`: how long `poll` waits for a frame to begin before the link is given up; None is
    for ever. It may be changed at any time and holds from the next wait on."""

    __slots__ = ("_lock", "idle_s")

    def __init__(self, sock: socket.socket, idle_s: float | None = None) -> None:
        super().__init__(sock)
        self.idle_s = idle_s
        self._lock = threading.Lock()
        sock.setblocking(False)

    def poll(self, timeout: object) -> bool:
        limit = Timeout(timeout)
        if self._pending():
            return True
        left = limit.timeleft()
        if self.idle_s is None or (left is not None and left < self.idle_s):
            return self._ready(select.POLLIN, left)
        if not self._ready(select.POLLIN, self.idle_s):
            raise EOFError(f"nothing came for {self.idle_s:g} s")
        return True

    def read(self, count: int) -> bytes:
        """Exactly this many bytes."""
        deadline = time.monotonic() + TRANSFER_S + count / SLOWEST_BYTES_PER_S
        whole = bytearray()  # not a list of parts: a slow peer sends a byte at a time
        while len(whole) < count:
            part = self._try_read(min(count - len(whole), CHUNK))
            if part is None:
                self._await(select.POLLIN, deadline)
                continue
            if not part:
                self.close()
                raise EOFError("the other end closed the link")
            whole += part
        return bytes(whole)

    def write(self, data: bytes) -> None:
        """All of it."""
        deadline = time.monotonic() + TRANSFER_S + len(data) / SLOWEST_BYTES_PER_S
        view = memoryview(data)
        while view:
            sent = self._try_write(view[:CHUNK])
            if sent is None:
                self._await(select.POLLOUT, deadline)
                continue
            view = view[sent:]

    def _try_read(self, count: int) -> bytes | None:
        """Some bytes, none at the end, None if there is nothing yet."""
        try:
            with self._lock:
                return bytes(self.sock.recv(count))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            raise self._lost(error) from None

    def _try_write(self, data: memoryview) -> int | None:
        try:
            with self._lock:
                return int(self.sock.send(data))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            raise self._lost(error) from None

    def _lost(self, error: OSError) -> EOFError:
        self.close()
        reason = getattr(error, "reason", "") or error.strerror or str(error)
        return EOFError(str(reason).lower().replace("_", " "))

    def _await(self, events: int, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not self._ready(events, left):
            self.close()
            raise EOFError("the other end stopped in the middle of a transfer")

    def _pending(self) -> bool:
        sock = self.sock
        return isinstance(sock, ssl.SSLSocket) and bool(sock.pending())

    def _ready(self, events: int, timeout_s: float | None) -> bool:
        number = self.fileno()
        if number < 0:
            raise EOFError("the link is closed")
        poll = select.poll()
        poll.register(number, events)
        return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000))

    def close(self) -> None:
        sock = self.sock
        if not self.closed:
            with contextlib.suppress(OSError):  # wakes a thread that waits for this socket
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        super().close()
