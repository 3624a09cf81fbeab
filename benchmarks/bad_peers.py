"""Hostile and broken peers against one board with certificates. In: how many. Out: what they got.

    python benchmarks/bad_peers.py [--count 10000]

Random bytes, truncated and oversized frames, decompression bombs, wrong versions, replays, valid
TLS of the wrong role, expired, revoked and foreign certificates, half-open connections. An honest
client calls all the while. Exit status 1 if a bad peer got a job run, the honest one waited more
than a second, or the board's memory passed 200 MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import ssl
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpyc.core import brine, consts
from rpyc.core.channel import Channel

from autotune.errors import AutotuneError
from rpc_server import wire
from rpc_server.link import LINK_ERRORS, connect
from rpc_server.tls import Credentials
from tests.unit.measure import fakes
from tests.unit.rpc_server.boards import BoardProcess
from tests.unit.rpc_server.farm_certs import FarmCerts, make_farm

HALF_OPEN = 1000
MAX_WAIT_S = 1.0
"""Beyond what a call takes here without bad peers."""
CALM_CALLS = 20
MAX_MEMORY_KIB = 200 << 10
TIMEOUT_S = 3.0
HEADER = Channel.FRAME_HEADER


@dataclass(slots=True, kw_only=True)
class Site:
    """The board under attack."""

    port: int
    farm: FarmCerts
    rng: random.Random
    trusted: dict[str, Credentials] = field(default_factory=dict)

    def plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)

    def credentials(self, name: str) -> Credentials:
        if name not in self.trusted:
            self.trusted[name] = self.farm.of(name)
        return self.trusted[name]

    def secured(self, name: str) -> ssl.SSLSocket:
        context = self.credentials(name).context(server=False)
        return context.wrap_socket(self.plain())

    def junk(self, most: int = 400) -> bytes:
        return self.rng.randbytes(self.rng.randrange(1, most))


def frame(data: bytes, compressed: int = 0) -> bytes:
    return bytes(HEADER.pack(len(data), compressed)) + data + b"\n"


def request(number: int, handler: int, *arguments: object) -> bytes:
    """One rpyc request as bytes."""
    boxed = tuple((consts.LABEL_VALUE, a) for a in arguments)
    body = brine.I1.pack(consts.MSG_REQUEST) + brine.dump(
        (number, (handler, (consts.LABEL_TUPLE, boxed)))
    )
    return frame(body)


def submit(version: int = wire.PROTOCOL) -> bytes:
    message = json.loads(wire.encode_submit([fakes.request(fakes.GOOD)]))
    message["v"] = version
    return json.dumps(message).encode()


def send(sock: socket.socket, data: bytes) -> bytes:
    """What comes back, until the board closes or says something."""
    with contextlib.suppress(OSError), sock:
        sock.sendall(data)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        return sock.recv(4096)
    return b""


def random_bytes(site: Site) -> bytes:
    return send(site.plain(), site.junk())


def random_inside_tls(site: Site) -> bytes:
    return send(site.secured("alice"), site.junk())


def truncated_frame(site: Site) -> bytes:
    return send(site.secured("alice"), HEADER.pack(1000, 0) + site.junk(200))


def oversized_frame(site: Site) -> bytes:
    return send(site.secured("alice"), HEADER.pack(0xFFFFFFFF, 0) + site.junk())


BOMB = zlib.compress(bytes(256 << 20))


def decompression_bomb(site: Site) -> bytes:
    return send(site.secured("alice"), frame(BOMB, 1))


def damaged_call(site: Site) -> bytes:
    whole, message = request(1, consts.HANDLE_CALL, "submit", submit()), submit()
    start = whole.index(message)
    while True:
        data = bytearray(whole)
        for _ in range(site.rng.randrange(1, 30)):
            data[site.rng.randrange(HEADER.size, len(data))] = site.rng.randrange(256)
        try:
            wire.decode_submit(bytes(data[start : start + len(message)]))
        except AutotuneError:  # some damage only makes another valid message
            return send(site.secured("alice"), bytes(data))


def _call(site: Site, name: str, method: str, payload: bytes) -> bytes:
    try:
        link = connect("127.0.0.1", site.port, TIMEOUT_S, site.credentials(name))
    except (*LINK_ERRORS,):
        return b""
    with contextlib.suppress(*LINK_ERRORS):
        reply = link.call(method, payload, TIMEOUT_S)
        link.drop()
        return reply
    with contextlib.suppress(*LINK_ERRORS):
        link.drop()
    return b""


def wrong_version(site: Site) -> bytes:
    return _call(site, "alice", "submit", submit(site.rng.choice([0, 2, 99])))


def wrong_schema(site: Site) -> bytes:
    message = json.loads(submit())
    key = site.rng.choice(["tasks", "targets", "requests"])
    message[key] = site.rng.choice([None, [], {}, 7, "x", [[]], [{"task": -1}]])
    return _call(site, "alice", "submit", json.dumps(message).encode())


def other_handler(site: Site) -> bytes:
    """What an ordinary rpyc client may ask for, and we do not."""
    handler = site.rng.choice([consts.HANDLE_GETROOT, consts.HANDLE_PICKLE, consts.HANDLE_GETATTR])
    return send(site.secured("alice"), request(1, handler, "submit", "__class__"))


def another_s_job(site: Site) -> bytes:
    return _call(site, "alice", "cancel", wire.encode_job("0" * 32))


def replay(site: Site) -> bytes:
    """The bytes of a recorded TLS session, sent again."""
    recorded = ssl.MemoryBIO()
    context = site.credentials("alice").context(server=False)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), recorded).do_handshake()
    hello = recorded.read()
    return send(site.plain(), hello + hello + site.junk())


def objects_without_right(site: Site) -> bytes:
    message = json.loads(submit())
    message["requests"][0]["built"] = {"code": "AAAA", "packs": []}
    return _call(site, "alice", "submit", json.dumps(message).encode())


def wrong_role(site: Site) -> bytes:
    return _call(site, "board", "submit", submit())


def expired(site: Site) -> bytes:
    return _call(site, "old", "submit", submit())


def revoked(site: Site) -> bytes:
    return _call(site, "gone", "submit", submit())


def foreign(site: Site) -> bytes:
    return _call(site, "stranger", "submit", submit())


def no_tls(site: Site) -> bytes:
    return send(site.plain(), request(1, consts.HANDLE_CALL, "submit", submit()))


ATTACKS: tuple[Callable[[Site], bytes], ...] = (
    random_bytes, random_inside_tls, truncated_frame, oversized_frame, decompression_bomb,
    damaged_call, wrong_version, wrong_schema, other_handler, another_s_job, replay,
    objects_without_right, wrong_role, expired, revoked, foreign, no_tls,
)  # fmt: skip


def admit_stranger(farm: FarmCerts, other: FarmCerts) -> None:
    """A certificate of another authority, whose owner trusts our board."""
    folder = farm.folder / "stranger"
    (other.folder / "alice").rename(folder)
    for name in ("ca.pem", "crl.pem"):
        (folder / name).write_bytes((farm.folder / name).read_bytes())


class Honest:
    """A client that asks again and again, and how long it waited at most."""

    def __init__(self, port: int, credentials: Credentials) -> None:
        self.worst_s = 0.0
        self.calm_s = 0.0
        self.calls = 0
        self.errors: list[str] = []
        self._port, self._credentials = port, credentials
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Honest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def settle(self) -> None:
        """Until here nobody attacked: the longest wait so far is this machine's own."""
        while self.calls < CALM_CALLS:
            time.sleep(0.05)
        self.calm_s, self.worst_s = self.worst_s, 0.0

    def _run(self) -> None:
        while not self._done.wait(0.02):
            start = time.monotonic()
            try:
                link = connect("127.0.0.1", self._port, 10.0, self._credentials)
                wire.decode_hello(link.call("hello", wire.encode("hello", {}), 10.0))
                link.drop()
            except LINK_ERRORS as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            self.worst_s = max(self.worst_s, time.monotonic() - start)
            self.calls += 1


def attack(site: Site, count: int) -> Counter[str]:
    """Run this many attacks, one of each kind in turn; how many of each."""
    done: Counter[str] = Counter()
    for number in range(count):
        kind = ATTACKS[number % len(ATTACKS)]
        with contextlib.suppress(OSError):
            kind(site)
        done[kind.__name__] += 1
    return done


def half_open(site: Site, count: int) -> list[socket.socket]:
    """Connections that say nothing."""
    found = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            found.append(site.plain())
    return found


def jobs_run(audit: Path) -> list[str]:
    """Who got a batch into the queue."""
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    return [e["who"] for e in events if e["what"] == "submit" and e["result"] == "queued"]


def memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def run(folder: Path, count: int, silent: int) -> tuple[Counter[str], Honest, list[str], int]:
    """The whole attack on a fresh board: what was done, how the honest client fared, who got a
    job run, the board's largest memory."""
    farm = make_farm(folder / "farm")
    admit_stranger(farm, make_farm(folder / "other"))
    audit = folder / "audit.log"
    options = ("--certs", str(farm.folder / "board"), "--audit", str(audit))
    with BoardProcess(executor=fakes.FAKE, options=options) as board:
        site = Site(port=board.port, farm=farm, rng=random.Random(1))
        with Honest(board.port, site.credentials("builder")) as honest:
            honest.settle()
            idle = half_open(site, silent)
            done = attack(site, count)
            idle += half_open(site, silent)
            done["half_open"] = len(idle)
            time.sleep(0.3)
        for sock in idle:
            sock.close()
        return done, honest, jobs_run(audit), memory_kib(board.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description="Send a board what it must not accept.")
    parser.add_argument("--count", type=int, default=10_000)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        done, honest, ran, memory = run(Path(folder), count, HALF_OPEN // 2)
    for name, times in done.items():
        print(f"{times:6} {name}")
    print(
        f"honest client: {honest.calls} calls, the slowest {honest.worst_s * 1000:.0f} ms "
        f"({honest.calm_s * 1000:.0f} ms before the attack)"
    )
    print(f"board: at most {memory >> 10} MiB; jobs run for bad peers: {len(ran)}")
    failed = [*honest.errors[:5], *(f"a job of {name} was run" for name in ran)]
    failed += (
        ["the honest client waited too long"]
        if honest.worst_s > MAX_WAIT_S + honest.calm_s
        else []
    )
    failed += ["the board took too much memory"] if memory > MAX_MEMORY_KIB else []
    print("\n".join(failed) or "none got in, none kept others waiting")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
