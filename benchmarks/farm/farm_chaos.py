"""A farm that is broken on purpose, and what is left of its promises.

In: minutes of `kill -9` of workers, boards, tracker and clients, of processes that stand still, of
hosts cut off from the others or 200 ms away with 5 % of the packets lost (every process has a
network namespace of its own), of a tracker's disk that is full. Out: whether every request ended
exactly once, whether a record was lost or doubled, and how soon all boards were back in service.
Exit status 1 if a promise was broken.

Without root there are no namespaces: everything runs on loopback, and nobody is cut off.

Usage: python benchmarks/farm/farm_chaos.py [--time 600] [--pause 1.75] [--boards 6] [--clients 3]
       [--seed 0]
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.errors import DeviceError  # noqa: E402
from autotune.measure.types import MeasureResult, Status, Timing  # noqa: E402
from benchmarks.farm.farm_hosts import Host, Member, hosts  # noqa: E402
from rpc_server.client.farm_runner import FarmRunner  # noqa: E402
from rpc_server.client.options import Deadlines, FarmOptions  # noqa: E402
from rpc_server.security import certs  # noqa: E402
from rpc_server.security.auth import Role  # noqa: E402
from rpc_server.security.tls import Credentials  # noqa: E402
from tests.unit.measure import fakes  # noqa: E402
from tests.unit.rpc_server.fixed import FIXED  # noqa: E402

SETTINGS = """
[tracker]
heartbeat_s = 0.5
board_lost_s = 4.0
lease_s = 4.0
slice_s = 5.0
recall_grace_s = 20.0
quarantine_s = 2.0
longest_quarantine_s = 4.0
"""
TIMING = Timing(build_timeout_s=5.0, run_timeout_s=5.0)
BATCH = 24
BACK_S, BACK_STARTS = 10.0, 2.0
"""All boards serve so long after healing, or after so many times what the farm's boards needed to
start: on a busy machine those that were killed need as long again."""
IN_SERVICE = {"idle", "leased", "probation"}


# ------------------------------------------------------------------------------------ processes


@dataclass(slots=True)
class Farm:
    """All members and where their files are."""

    folder: Path
    tracker: Member
    boards: list[Member]
    clients: list[Member]
    kinds: list[str]
    healing: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    @property
    def members(self) -> list[Member]:
        return [self.tracker, *self.boards, *self.clients]

    def states(self) -> dict[str, str]:
        """What the tracker says of its boards; nothing if it does not answer."""
        command = [*self.tracker.host.prefix, sys.executable, "-m", "rpc_server", "status",
                   "--json", "--tracker", f"{self.tracker.host.address}:{self.tracker.host.port}",
                   "--certs", str(self.folder / "certs/tracker")]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, cwd=ROOT)
        if done.returncode:
            return {}
        return {b["name"]: b["state"] for b in json.loads(done.stdout)["boards"]}


def build(folder: Path, places: list[Host], boards: int, clients: int) -> Farm:
    """The farm, not started."""
    now, authority = datetime.datetime.now(datetime.UTC), folder / "certs"
    certs.init(authority, now - datetime.timedelta(days=1))
    (folder / "farm.toml").write_text(SETTINGS, encoding="utf-8")
    python, tracker = [sys.executable, "-m", "rpc_server"], places[0]
    where = f"{tracker.address}:{tracker.port}"

    def credentials(name: str, role: Role) -> str:
        return str(certs.issue(authority, name, role, now))

    def board(number: int) -> Member:
        host, name = places[1 + number], f"b{number}"
        command = [*python, "serve", "--tracker", where, "--key", "k", "--name", name,
                   "--listen", f"{host.address}:{host.port}", "--executor", FIXED,
                   "--certs", credentials(name, Role.BOARD)]  # fmt: skip
        return Member(name, host, command, folder / f"{name}.log")

    def client(number: int) -> Member:
        host, name = places[1 + boards + number], f"c{number}"
        command = [sys.executable, __file__, "--client", f"tracker://{where}/k",
                   "--certs", credentials(name, Role.CLIENT),
                   "--records", str(folder / f"{name}.records")]  # fmt: skip
        return Member(name, host, command, folder / f"{name}.log")

    (folder / "state").mkdir()
    command = [*python, "tracker", "--listen", where, "--config", str(folder / "farm.toml"),
               "--state", str(folder / "state/farm.db"),
               "--certs", credentials("tracker", Role.TRACKER)]  # fmt: skip
    return Farm(
        folder,
        Member("tracker", tracker, command, folder / "tracker.log"),
        [board(n) for n in range(boards)],
        [client(n) for n in range(clients)],
        breakable(tracker),
    )


def breakable(host: Host) -> list[str]:
    """What can be broken here."""
    kinds = ["worker", "board", "board", "tracker", "client", "still"]
    return [*kinds, "cut", "cut", "slow", "slow", "disk"] if host.switch else kinds


# ---------------------------------------------------------------------------------------- chaos


def break_something(farm: Farm, generator: random.Random, now_s: float, still_s: float) -> str:
    """One thing; what has to be healed later is noted."""
    kind = generator.choice(farm.kinds)
    member = generator.choice(farm.members)

    def later(seconds: float, heal: Callable[[], object]) -> None:
        farm.healing.append((now_s + seconds, heal))

    if kind == "worker":
        board = generator.choice(farm.boards)
        for pid in board.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"workers of {board.name} killed"
    if kind in ("board", "tracker", "client"):
        among = {"board": farm.boards, "tracker": [farm.tracker], "client": farm.clients}[kind]
        member = generator.choice(among)
        member.kill()
        later(generator.uniform(0, 3), member.start)
        return f"{member.name} killed"
    if kind == "still":
        member.signal(signal.SIGSTOP)
        later(generator.uniform(1, still_s), lambda: member.signal(signal.SIGCONT))
        return f"{member.name} stands still"
    if kind == "cut":
        member.host.cut(True)
        later(generator.uniform(1, 8), lambda: member.host.cut(False))
        return f"{member.name} cut off"
    if kind == "slow":
        member.host.slow(True)
        later(generator.uniform(2, 10), lambda: member.host.slow(False))
        return f"{member.name} slowed down"
    filler = farm.folder / "state/filler"
    with contextlib.suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    later(generator.uniform(1, 4), lambda: filler.unlink(missing_ok=True))
    return "the tracker's disk is full"


def heal(farm: Farm, now_s: float) -> None:
    """What is due; a process that ended is started again."""
    due = [h for h in farm.healing if h[0] <= now_s]
    farm.healing = [h for h in farm.healing if h[0] > now_s]
    for _, call in due:
        call()
    if not farm.healing:
        for member in farm.members:
            member.start()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of its own for the tracker's state, so that it can be filled."""
    mounted = not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    ).returncode
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def run(farm: Farm, seconds: float, pause_s: float, generator: random.Random) -> list[str]:
    """Break something every `pause_s` in the mean, and heal; the promises that were broken."""
    limit_s = max(BACK_S, BACK_STARTS * _start(farm))
    for member in farm.clients:
        member.start()
    end_s = time.monotonic() + seconds
    still_s = min(30.0, max(seconds / 8, 7.5))
    while time.monotonic() < end_s:
        done = break_something(farm, generator, time.monotonic(), still_s)
        print(f"{end_s - time.monotonic():6.1f} s left: {done}", flush=True)
        next_s = time.monotonic() + pause_s * generator.uniform(0.3, 1.7)
        while time.monotonic() < next_s:
            heal(farm, time.monotonic())
            time.sleep(0.1)
    heal(farm, float("inf"))
    healed_s = time.monotonic()
    broken = []
    _until(lambda: _all_serve(farm), limit_s + 60.0, "a board stays away")
    back_s = time.monotonic() - healed_s
    print(f"all boards in service {back_s:.1f} s after healing (limit {limit_s:.0f} s)")
    if back_s > limit_s:
        broken.append(f"boards were away for {back_s:.1f} s")
    for member in farm.clients:
        member.signal(signal.SIGTERM)
    for member in farm.clients:
        assert member.process is not None
        status = member.process.wait(timeout=120)
        if status:
            broken.append(f"{member.name} ended with status {status}; see its log")
    return broken + [line for member in farm.clients for line in check(farm, member)]


def _start(farm: Farm) -> float:
    """Seconds until every board has registered."""
    farm.tracker.start()
    begun_s = time.monotonic()
    for member in farm.boards:
        member.start()
    _until(lambda: len(farm.states()) == len(farm.boards), 60.0, "the boards do not register")
    return time.monotonic() - begun_s


def _all_serve(farm: Farm) -> bool:
    states = farm.states()
    return len(states) == len(farm.boards) and set(states.values()) <= IN_SERVICE


def _until(holds: Callable[[], bool], limit_s: float, otherwise: str) -> None:
    until_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > until_s:
            raise SystemExit(otherwise)
        time.sleep(0.2)


def check(farm: Farm, member: Member) -> list[str]:
    """A client's records: every number once, none left out."""
    records = read_records(farm.folder / f"{member.name}.records")
    counts = collections.Counter(r["number"] for r in records if "number" in r)
    broken = [f"{member.name}: {r['broken']}" for r in records if "broken" in r]
    doubled = [n for n, count in counts.items() if count > 1]
    missing = set(range(max(counts, default=-1) + 1)) - counts.keys()
    bad = collections.Counter(r["status"] for r in records if r.get("status", "OK") != "OK")
    print(f"{member.name}: {len(counts)} records, {len(doubled)} doubled, {len(missing)} missing"
          + (f", not OK: {dict(bad)}" if bad else ""))  # fmt: skip
    if doubled or missing or not counts:
        broken.append(f"{member.name}: doubled {doubled[:5]}, missing {sorted(missing)[:5]}")
    return broken


# --------------------------------------------------------------------------------------- client


def read_records(path: Path) -> list[dict[str, Any]]:
    """Whole lines; a client that was killed may have left half of one."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]


def client(url: str, folder: Path, path: Path) -> None:
    """Measure number after number, as a tuner does: record each result at once, ask again for
    what a lost farm did not measure, go on after a kill where the records end."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    recorded = {r["number"] for r in read_records(path) if "number" in r}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def record(**fields: object) -> None:
        os.write(descriptor, json.dumps(fields).encode() + b"\n")

    limits = Deadlines(queue_s=30.0, session_s=30.0, reconnect_s=1.0, transfer_s=8.0)
    use = FarmOptions(boards=3, deadlines=limits)
    credentials = Credentials(folder)
    while True:
        try:
            with FarmRunner(url, farm=use, credentials=credentials) as runner:
                while not stopping or recorded != set(range(len(recorded))):
                    attempt(runner, recorded, record)
                return
        except DeviceError as error:
            print(error, flush=True)
            time.sleep(0.5)


def attempt(runner: FarmRunner, recorded: set[int], record: Callable[..., None]) -> None:
    """One batch: the lowest numbers that have no record."""
    first = next(n for n in range(len(recorded) + 1) if n not in recorded)
    numbers = [n for n in range(first, first + 4 * BATCH) if n not in recorded][:BATCH]
    seen: collections.Counter[int] = collections.Counter()

    def on_result(place: int, result: MeasureResult) -> None:
        seen[place] += 1
        if result.status is not Status.DEVICE_LOST:
            record(number=numbers[place], status=str(result.status), device=result.device)
            recorded.add(numbers[place])

    request = fakes.request(fakes.GOOD, timing=TIMING)
    results = runner.measure((request,) * len(numbers), on_result)
    if len(results) != len(numbers) or any(count != 1 for count in seen.values()):
        record(broken=f"{len(numbers)} requests, {len(results)} results, reported {dict(seen)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--time", type=float, default=600.0, help="seconds")
    parser.add_argument("--pause", type=float, default=1.75, help="seconds between breakages")
    parser.add_argument("--boards", type=int, default=6)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the logs of all processes")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--certs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--records", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(options.client, options.certs, options.records)
        return
    with (
        tempfile.TemporaryDirectory() as name,
        hosts(1 + options.boards + options.clients, random.Random(options.seed)) as places,
    ):
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        farm = build(folder, places, options.boards, options.clients)
        with small_disk(folder / "state"):
            try:
                broken = run(farm, options.time, options.pause, random.Random(options.seed))
            finally:
                for member in farm.members:
                    if member.process is not None:
                        member.kill()
    print("\n".join(broken) or "every request ended once, no record lost or doubled")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
