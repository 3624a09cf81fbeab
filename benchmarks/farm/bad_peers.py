"""Hostile and broken peers against a board and a tracker. In: how many. Out: what they got.

    python benchmarks/farm/bad_peers.py [--count 10000]

Random bytes, truncated and oversized frames, decompression bombs, small messages that become large
ones, wrong versions, replays, valid TLS of the wrong role or without a certificate, expired,
revoked and foreign certificates, half-open connections, frames that do not end, a board of the
farm with a fence that nobody granted. An honest client calls and an honest board beats all the
while. Then hostile objects on a board that takes objects, and recorded sessions without TLS. Exit
status 1 if a bad peer got a job run or a lease, an object found a secret, an honest one waited
more than a second or missed a beat, or the memory of a server passed 200 MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


from autotune.errors import AutotuneError
from benchmarks.farm.bad_attacks import (
    ATTACKS,
    BOARD,
    TRACKER,
    Service,
    Site,
    far_fence,
    slow_frame,
)
from benchmarks.farm.bad_objects import hostile_objects, replays
from rpc_server.tracker.types import Beat, Registered
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire.link import LINK_ERRORS, BytesConnection, connect
from tests.unit.measure import fakes
from tests.unit.rpc_server.farm_certs import FarmCerts, make_farm
from tests.unit.rpc_server.farms import ServerProcess

HALF_OPEN = 1000
SLOW = 54
MEMBERS = {name: {"idle", "away"} for name in ("board/honest", "board/rogue")}
"""Boards that are there by right, and how they may stand: nobody is lost. The honest one is away
when its link is closed at the end; a link that was lost before is an error of its own."""
MAX_WAIT_S = 1.0
"""Beyond what a call takes here without bad peers."""
CALM_CALLS = 20
RARER = 500
"""Of attacks, hostile objects and replayed sessions: each costs a worker, or a whole session."""
MAX_MEMORY_KIB = 200 << 10


def admit_stranger(farm: FarmCerts, other: FarmCerts) -> None:
    """A certificate of another authority, whose owner trusts our board."""
    folder = farm.folder / "stranger"
    (other.folder / "alice").rename(folder)
    for name in ("ca.pem", "crl.pem"):
        (folder / name).write_bytes((farm.folder / name).read_bytes())


class Honest:
    """A peer that calls again and again, and how long it waited at most."""

    pause_s = 0.02

    def __init__(self, site: Site) -> None:
        self.worst_s = 0.0
        self.calm_s = 0.0
        self.calls = 0
        self.errors: list[str] = []
        self._site = site
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

    def some_more(self) -> None:
        """Wait for a few calls."""
        last = self.calls + CALM_CALLS
        while self.calls < last:
            time.sleep(0.05)

    def _run(self) -> None:
        while not self._done.wait(self.pause_s):
            start = time.monotonic()
            try:
                self._call()
            except (*LINK_ERRORS, AutotuneError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            self.worst_s = max(self.worst_s, time.monotonic() - start)
            self.calls += 1

    def _call(self) -> None:
        site, service = self._site, self._site.service
        whom = frozenset({service.role})
        link = connect("127.0.0.1", site.port, 10.0, site.credentials("builder"), whom)
        name, answer = service.asked
        wire.decode(answer, link.call(name, wire.encode(name, {}), 10.0))
        link.drop()


class Beating(Honest):
    """A board that beats at a tracker, on one link, and registers anew when all is over."""

    pause_s = 0.25

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._link: BytesConnection | None = None

    def _call(self) -> None:
        if self._link is None:
            self._link = self.register()
        beat = farm_wire.encode_beat(Beat(board="honest", secret="s", stats={"trials": 1}))
        farm_wire.decode_board_status(self._link.call("beat", beat, 10.0))

    def register(self, floor: int = 0) -> BytesConnection:
        """A new link, on which the board is known."""
        site = self._site
        whom = frozenset({site.service.role})
        link = connect("127.0.0.1", site.port, 10.0, site.credentials("board"), whom)
        event = Registered(
            board="honest", key="k", address="h:1", secret="s", info={"floor": floor}
        )
        standing = farm_wire.decode_board_status(
            link.call("register", farm_wire.encode_register(event), 10.0)
        )
        if floor and standing.floor > 1 << 40:
            self.errors.append(f"locked out: leases begin at {standing.floor}")
        return link

    def end(self) -> None:
        """Come back once more, after whatever others have said."""
        if self._link is not None:
            self._link.drop()
        try:
            self.register(floor=1).drop()
        except (*LINK_ERRORS, AutotuneError) as error:
            self.errors.append(f"locked out: {error}")


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


def jobs_run(audit: Path, service: Service) -> list[str]:
    """Who got a batch into the queue, a lease, or anything else that is not theirs."""
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    return [
        f"{e['who']}: {e['what']} {e['result']} {e.get('board', '')} {e.get('state', '')}"
        for e in events
        if e["result"] in service.got and e.get("state") not in MEMBERS.get(e.get("board"), ())
    ]


def memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a service."""

    service: Service
    done: Counter[str]
    honest: Honest
    beating: Honest | None
    got: list[str]
    memory_kib: int

    def failures(self) -> list[str]:
        """Promises that were broken."""
        found = [*self.honest.errors[:5], *(f"{what} for a bad peer" for what in self.got[:5])]
        for who in (self.honest, self.beating):
            if who is not None and who.worst_s > MAX_WAIT_S + who.calm_s:
                found.append(f"an honest peer waited {who.worst_s:.1f} s")
        found += self.beating.errors[:5] if self.beating else []
        if self.memory_kib > MAX_MEMORY_KIB:
            found.append(f"it took {self.memory_kib >> 10} MiB of memory")
        return [f"{self.service.name}: {line}" for line in found]


def run(folder: Path, service: Service, count: int, silent: int) -> Outcome:
    """The whole attack on a fresh server."""
    farm = make_farm(folder / "farm")
    admit_stranger(farm, make_farm(folder / "other"))
    audit = folder / "audit.log"
    options = ["--listen", "127.0.0.1:0", "--certs", str(farm.folder / service.name),
               "--audit", str(audit)]  # fmt: skip
    command = ("serve", "--executor", fakes.FAKE) if service is BOARD else (
        "tracker", "--state", str(folder / "farm.db"))  # fmt: skip
    server = ServerProcess(*command, *options)
    server.start()
    try:
        site = Site(service=service, port=server.port, farm=farm, rng=random.Random(1))
        beating = Beating(site) if service is TRACKER else None
        with Honest(site) as honest, beating or contextlib.nullcontext():
            honest.settle()
            if beating is not None:
                beating.settle()
            idle: list[socket.socket] = half_open(site, silent)
            slow = [sock for _ in range(SLOW) if (sock := slow_frame(site)) is not None]
            done = attack(site, count)
            if beating is not None:
                far_fence(site)
                done["far_fence"] += 1
            slow += [sock for _ in range(SLOW) if (sock := slow_frame(site)) is not None]
            done["slow_frame"] = 2 * SLOW
            idle += half_open(site, silent)
            done["half_open"] = len(idle)
            idle += slow
            honest.some_more()
            if beating is not None:
                beating.some_more()
        if beating is not None:
            beating.end()
        for sock in idle:
            sock.close()
        return Outcome(
            service=service,
            done=done,
            honest=honest,
            beating=beating,
            got=jobs_run(audit, service),
            memory_kib=memory_kib(server.pid),
        )
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Send a board and a tracker what they refuse.")
    parser.add_argument("--count", type=int, default=10_000, help="to each")
    count = parser.parse_args().count
    failed: list[str] = []
    for service in (BOARD, TRACKER):
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(Path(folder), service, count, HALF_OPEN // 2)
        honest = outcome.honest
        for name, times in outcome.done.items():
            print(f"{times:6} {name}")
        print(
            f"{service.name}: honest client {honest.calls} calls, the slowest "
            f"{honest.worst_s * 1e3:.0f} ms ({honest.calm_s * 1e3:.0f} ms before the attack); "
            f"at most {outcome.memory_kib >> 10} MiB; got in: {len(outcome.got)}",
            flush=True,
        )
        failed += outcome.failures()
    for breach in (hostile_objects, replays):
        with tempfile.TemporaryDirectory() as folder:
            tried = breach(Path(folder), max(1, count // RARER))
        print(f"{tried.count:6} {tried.kind}; got through: {len(tried.got)}", flush=True)
        failed += [f"{tried.kind}: {what}" for what in tried.got[:5]]
    print("\n".join(failed) or "none got in, none kept others waiting")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
