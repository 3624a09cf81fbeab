"""A network of namespaces whose packets pass through this program: delayed, lost, or cut off.

In: namespaces with addresses, and how each is doing. Out: packets, from one to the other. Every
namespace has a TUN device for its whole subnet; a thread reads what is sent there and writes it to
whom it is for. It needs root and /dev/net/tun, and nothing of the kernel beyond that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

DEVICE = Path("/dev/net/tun")
DELAY_S, LOSS = 0.2, 0.05
PACKET = 2048
MAX_WAITING = 20_000
_TUNSETIFF, _TUN, _NO_INFO = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000


class Switch:
    """Between hosts by address. `cut` and `slow` hold for what a host sends and is sent."""

    def __init__(self, spaces: dict[str, str], generator: random.Random) -> None:
        """`spaces`: address -> namespace."""
        self.cut: set[str] = set()
        self.slow: set[str] = set()
        self._generator = generator
        self._names = {bytes(map(int, address.split("."))): address for address in spaces}
        self._ports: dict[str, int] = {}
        self._waiting: list[tuple[float, int, str, bytes]] = []
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        self._ready = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, args=(spaces,), daemon=True)

    def start(self) -> None:
        """Make the devices and begin. Raises OSError."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self, spaces: dict[str, str]) -> None:
        """A thread of its own: only it moves from namespace to namespace."""
        try:
            for address, space in spaces.items():
                self._ports[address] = open_device(space)
        except OSError as error:
            self._error = error
        self._ready.set()
        poll = select.poll()
        senders = {port: address for address, port in self._ports.items()}
        for port in senders:
            poll.register(port, select.POLLIN)
        while not self._stopped.is_set() and self._error is None:
            for port, _ in poll.poll(self._pause_ms()):
                with contextlib.suppress(OSError):  # the device is on its way up or down
                    self._take(senders[port], os.read(port, PACKET))
            self._deliver()
        for port in senders:
            os.close(port)

    def _pause_ms(self) -> float:
        if not self._waiting:
            return 100.0
        return min(100.0, max(0.0, (self._waiting[0][0] - time.monotonic()) * 1000))

    def _take(self, sender: str, packet: bytes) -> None:
        receiver = self._names.get(packet[16:20])
        ends = {sender, receiver}
        if receiver is None or ends & self.cut or len(self._waiting) >= MAX_WAITING:
            return
        if not ends & self.slow:
            self._send(receiver, packet)
        elif self._generator.random() >= LOSS:
            due_s = time.monotonic() + DELAY_S
            heapq.heappush(self._waiting, (due_s, next(self._numbers), receiver, packet))

    def _deliver(self) -> None:
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            _, _, receiver, packet = heapq.heappop(self._waiting)
            if receiver not in self.cut:
                self._send(receiver, packet)

    def _send(self, receiver: str, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # it is full: a packet may be lost
            os.write(self._ports[receiver], packet)


def open_device(space: str) -> int:
    """The other end of a namespace's only device, `eth`. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{space}", "rb") as handle:
        if libc.setns(handle.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter {space}: {os.strerror(number)}")
    port = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(port, _TUNSETIFF, struct.pack("16sH22x", b"eth", _TUN | _NO_INFO))
    return port


@contextlib.contextmanager
def network(addresses: Sequence[str], generator: random.Random) -> Iterator[Switch]:
    """A namespace per address, `space_of(address)`, on one network; gone afterwards. Raises
    OSError where there can be none."""
    if os.getuid() or not DEVICE.exists():
        raise OSError(errno.EPERM, "namespaces need root and /dev/net/tun")
    spaces = {address: space_of(address) for address in addresses}
    switch = Switch(spaces, generator)
    try:
        for space in spaces.values():
            _ip("netns", "add", space)
        switch.start()
        try:
            for address, space in spaces.items():
                _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth")
                for device in ("eth", "lo"):
                    _ip("-n", space, "link", "set", device, "up")
            yield switch
        finally:
            switch.stop()
    finally:
        for space in spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def space_of(address: str) -> str:
    """The name of its namespace."""
    return f"farm{os.getpid()}-{address.rpartition('.')[2]}"


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip()
        raise OSError(errno.EIO, f"ip {' '.join(arguments)}: {reason}") from None
