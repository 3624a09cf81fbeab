"""What a board's walls and a tracker's memory of messages have to hold: hostile objects, replays.

In: a folder, how many. Out: what got through. A hostile object looks for secrets in every way that
tests/unit/measure/hostile.c knows, on a board that takes objects; a replay sends the bytes of a
recorded session without TLS again. See benchmarks/farm/bad_peers.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.types import Status
from rpc_server.client.board_runner import RpcRunner
from rpc_server.tracker.link import TrackerLink
from rpc_server.tracker.types import Asked, Registered
from rpc_server.wire import farm as farm_wire
from tests.unit.measure.hostile import hostile_request
from tests.unit.rpc_server.boards import BoardProcess
from tests.unit.rpc_server.farms import ServerProcess
from tests.unit.rpc_server.recorder import Recorder

TIMEOUT_S = 10.0
WORD = "HUNTER2"
FOUND = "found "
SECRETS = (
    "/etc/shadow", "/etc/passwd", "/etc/ssl/private", "/root", "/home", "/var/log", "/run",
    "/dev/shm", "/tmp", "/proc/1/environ",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """What a kind of attack did, and what got through."""

    kind: str
    count: int
    got: tuple[str, ...]


def hostile_objects(folder: Path, count: int) -> Breach:
    """Objects that look for secrets, on a board that takes objects and measures for real."""
    key = folder / "key.pem"
    key.write_text("secret")
    request = hostile_request(folder, (str(key), *SECRETS), WORD)
    got: list[str] = []
    machine = {**os.environ, "DATABASE_PASSWORD": WORD, "PYTHONPATH": str(Path.cwd())}
    options = ("--accept-objects",)
    with (
        BoardProcess(executor=DEFAULT_EXECUTOR, options=options, machine=machine) as board,
        RpcRunner(board.url) as runner,
    ):
        for seed in range(count):
            (result,) = runner.measure((dataclasses.replace(request, seed=seed),))
            said = result.error.partition(FOUND)[2]
            if result.status is not Status.RUN_CRASH or not said.startswith("of "):
                got.append(said or f"{result.status}: {result.error}")
    return Breach(kind="hostile_object", count=count, got=tuple(got))


def replays(folder: Path, count: int) -> Breach:
    """A session without TLS, recorded until its lease was granted, sent again and again."""
    audit = folder / "audit.log"
    server = ServerProcess(
        "tracker", "--listen", "127.0.0.1:0", "--state", str(folder / "farm.db"),
        "--audit", str(audit),
    )  # fmt: skip
    server.start()
    try:
        recorder = Recorder(server.port)
        board = TrackerLink("127.0.0.1", server.port)
        event = Registered(board="b0", key="k", address="h:1", secret="s")
        board.call("register", farm_wire.encode_register(event), TIMEOUT_S)
        client = TrackerLink("127.0.0.1", recorder.port)
        ask = farm_wire.Sync(session="s", asks=(Asked(client="", request="r", key="k"),))
        view = farm_wire.decode_view(client.call("sync", farm_wire.encode_sync(ask), TIMEOUT_S))
        recorded = b"".join(recorder.sent)
        gone = farm_wire.Released(client="", fence=view.grants[0].fence)
        leave = farm_wire.Sync(session="s", releases=(gone,))
        client.call("sync", farm_wire.encode_sync(leave), TIMEOUT_S)
        client.close()
        recorder.close()
        for _ in range(count):
            _send(server.port, recorded)
        board.close()
    finally:
        server.stop()
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    granted = [e["result"] for e in events if e["result"] == "Granted"]
    return Breach(kind="replayed_session", count=count, got=tuple(granted[1:]))


def _send(port: int, data: bytes) -> None:
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as sock,
    ):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            continue
