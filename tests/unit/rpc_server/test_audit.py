"""The audit log: one line per event, appended, short, without secrets."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.errors import ConfigError, DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.execute import build
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from rpc_server.board.device import MAX_QUEUED_OWN, BoardDevice
from rpc_server.board.job import Abilities
from rpc_server.security.audit import MAX_TEXT, AuditLog
from rpc_server.security.auth import Peer, Role
from rpc_server.wire import messages as wire
from tests.patience import PATIENCE_S
from tests.unit.measure import fakes
from tests.unit.rpc_server.test_objects import Recorder

ALICE = Peer(name="alice", role=Role.CLIENT)
BUILDER = Peer(name="builder", role=Role.CLIENT, objects=True)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_says_who_what_when_and_the_result(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.log", clock=lambda: 1.5)
    log.write(ALICE, "submit", "queued", requests=3)
    assert lines(tmp_path / "a.log") == [
        {
            "when": "1970-01-01T00:00:01.500+00:00",
            "who": "alice",
            "role": "client",
            "what": "submit",
            "result": "queued",
            "requests": 3,
        }
    ]


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    for _ in range(2):
        log = AuditLog(tmp_path / "a.log")
        log.write(None, "connect", "refused")
        log.close()
    assert len(lines(tmp_path / "a.log")) == 2
    assert (tmp_path / "a.log").stat().st_mode & 0o077 == 0


def test_a_peer_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.log")
    log.write(ALICE, "submit", 'refused: \n{"who":"root"}\n' + "x" * 10_000)
    (event,) = lines(tmp_path / "a.log")
    assert len(str(event["result"])) == MAX_TEXT


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a.log")

    def many() -> None:
        for _ in range(200):
            log.write(ALICE, "submit", "y" * 250)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(tmp_path / "a.log")) == 800


def test_a_log_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot open the audit log"):
        AuditLog(tmp_path / "no" / "a.log")


class Bench(Recorder):
    """A device that does not measure on its own."""

    def measure(
        self,
        requests: tuple[MeasureRequest, ...],
        on_result: OnResult | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[MeasureResult, ...]:
        return () if stop() else super().measure(requests, on_result)

    def remeasure(self) -> DeviceProfile:
        return self.profile()

    def interrupt(self) -> None:
        return None


def board(path: Path, *, accept_objects: bool = False) -> BoardDevice:
    abilities = Abilities(version="1", cores=1, accept_objects=accept_objects)
    return BoardDevice(Bench(), abilities, audit=AuditLog(path))


def submit(board: BoardDevice, peer: Peer, owner: int = 1, *, objects: bool = False) -> str:
    """The batch's name. Raises what the board answered."""
    request = fakes.request(fakes.GOOD)
    if objects:
        request = with_object(request)
    reply = board.methods(owner, peer)["submit"](wire.encode_submit([request]))
    return wire.decode_job(reply)


def with_object(request: MeasureRequest) -> MeasureRequest:
    return dataclasses.replace(request, built=build(request))


def test_batches_are_noted_when_they_come_and_when_they_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    subject = board(path)
    thread = threading.Thread(target=subject.run)
    thread.start()
    job = submit(subject, ALICE)
    ask = wire.encode_collect(wire.Collect(job=job, first=0, wait_s=5.0))
    progress = wire.decode_progress(subject.methods(1, ALICE)["collect"](ask))
    assert [r.status for r in progress.results] == [Status.OK]
    subject.stop()
    thread.join(timeout=PATIENCE_S)
    events = [(e["who"], e["what"], e["result"]) for e in lines(path)]
    assert events == [("alice", "submit", "queued"), ("alice", "measure", "done")]


def test_a_client_has_a_limited_number_of_batches_waiting(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    subject = board(path)
    for number in range(MAX_QUEUED_OWN):
        submit(subject, ALICE, owner=number)
    with pytest.raises(DeviceError, match="of yours are waiting already"):
        submit(subject, ALICE, owner=99)
    submit(subject, BUILDER)
    assert "refused" in str(lines(path)[MAX_QUEUED_OWN]["result"])


def test_object_code_needs_a_willing_board_and_the_right(tmp_path: Path) -> None:
    closed = board(tmp_path / "closed.log")
    with pytest.raises(DeviceError, match="start it with --accept-objects"):
        submit(closed, BUILDER, objects=True)
    willing = board(tmp_path / "open.log", accept_objects=True)
    with pytest.raises(DeviceError, match="client alice may not send object code"):
        submit(willing, ALICE, objects=True)
    submit(willing, BUILDER, objects=True)
    assert lines(tmp_path / "open.log")[-1]["objects"] == 1
