"""Boards whose answers are lies or nonsense: nobody waits for them, nobody believes them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from autotune.errors import DeviceError
from autotune.measure.types import MeasureResult, Status
from rpc_server.__main__ import main
from rpc_server.client import board_runner as client_module
from rpc_server.client import farm_runner
from rpc_server.client.board_runner import BoardFaultError, RpcRunner
from rpc_server.tracker.types import FarmError
from rpc_server.wire import messages as wire
from tests.patience import PATIENCE_S
from tests.unit.measure import fakes
from tests.unit.rpc_server.farms import DEADLINES, FarmProcesses, running_farm
from tests.unit.rpc_server.rogues import (
    DONE,
    never_done,
    open_listener,
    queued,
    results_with,
    rogue_board,
    welcome,
)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarmProcesses]:
    """One board that is honest."""
    with running_farm(tmp_path_factory.mktemp("farm"), boards=1) as farm:
        yield farm


def hasty(address: str) -> type[RpcRunner]:
    """Runners for which time flies at one board: the minutes that it has for a result are over at
    once, and those of the board that is honest, on a machine however busy, are not."""

    class Hasty(RpcRunner):
        def __init__(self, device: str, **options: Any) -> None:
            if device == f"rpc://{address}":
                options["clock"] = lambda: 1000 * time.monotonic()
            super().__init__(device, **options)

    return Hasty


def requests(count: int) -> tuple[Any, ...]:
    return tuple(fakes.request(fakes.GOOD) for _ in range(count))


def measured(farm: FarmProcesses, boards: int = 2, count: int = 24) -> list[MeasureResult]:
    """Results of a tuner that is given up when it hangs."""
    found: list[MeasureResult] = []

    def tune() -> None:
        with farm.runner(boards=boards) as runner:
            found.extend(runner.measure(requests(count)))

    thread = threading.Thread(target=tune, daemon=True)
    thread.start()
    thread.join(timeout=PATIENCE_S)
    assert not thread.is_alive(), "the tuner hangs"
    return found


def last_error(farm: FarmProcesses, board: str) -> str:
    (error,) = [b["last_error"] for b in farm.status()["boards"] if b["name"] == board]
    return str(error)


def was_quarantined(farm: FarmProcesses, board: str) -> bool:
    """By the audit log: this farm's quarantine is soon over."""
    lines = map(json.loads, farm.audit.read_text(encoding="utf-8").splitlines())
    standings = [(line.get("board"), line.get("state")) for line in lines]
    return (board, "quarantined") in standings


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a rogue that nobody has met before."""
    return "rogue-" + "".join(c for c in request.node.name if c.isalnum())[:100]


HUGE = 10**30
MALFORMED = [
    b"", b"[" * 50_000, b'{"v":3,"kind":"progress","results":[],"done":1e400,"failed":""}',
    b'{"v":3,"kind":"progress","results":{"a":1},"done":false,"failed":""}',
    b'{"v":3,"kind":"progress","results":[{"build_s":' + b"9" * 400 + b'}],"done":true}',
]  # fmt: skip


@pytest.mark.parametrize(
    "collect",
    [
        results_with(build_s=HUGE),
        results_with(times_s=[1e-9]),
        results_with(times_s=["1"]),
        results_with(error=None),
        *((lambda _, data=data: data) for data in MALFORMED),
        never_done,
    ],
)
def test_every_request_gets_an_honest_result(
    farm: FarmProcesses, name: str, collect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tuner comes to its end, with results of the board that is honest."""
    with rogue_board(farm.address, name, collect=collect) as address:
        monkeypatch.setattr(farm_runner, "RpcRunner", hasty(address))
        results = measured(farm)
        assert len(results) == 24
        assert "rogue" not in {r.device for r in results}
        lost = [r for r in results if r.status is not Status.OK]
        assert all(name in r.error for r in lost)
        assert len(lost) <= 1
        assert last_error(farm, name)


def test_a_thread_that_ends_in_an_error_takes_its_requests_back(
    farm: FarmProcesses, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a decoder may have overlooked."""

    def overlooked(data: bytes) -> wire.JobProgress:
        progress = decode(data)
        if progress.results == (DONE,) * 64:
            raise OverflowError("int too large to convert to float")
        return progress

    decode = wire.decode_progress
    monkeypatch.setattr(wire, "decode_progress", overlooked)
    with rogue_board(farm.address, name, collect=results_with()):
        assert len(measured(farm)) == 24
        assert "OverflowError" in last_error(farm, name)


def test_a_board_that_is_granted_while_the_runner_closes_is_given_back(
    farm: FarmProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a rogue's last lie, when the honest board has measured all that was left."""
    granted, closing = threading.Event(), threading.Event()

    class Late(threading.Thread):
        def start(self) -> None:
            granted.set()
            closing.wait(timeout=0.2)
            super().start()

    runner = farm.runner(deadlines=dataclasses.replace(DEADLINES, queue_s=0.1))

    def tune() -> None:
        with contextlib.suppress(FarmError):
            runner.measure(requests(1))

    thread = threading.Thread(target=tune, daemon=True)
    monkeypatch.setattr(threading, "Thread", Late)
    thread.start()
    assert granted.wait(timeout=PATIENCE_S)
    runner.close()
    closing.set()
    thread.join(timeout=PATIENCE_S)
    assert not any(b["client"] for b in farm.status()["boards"])


def test_a_board_that_lies_three_times_is_quarantined_with_the_reason(
    farm: FarmProcesses,
    name: str,
) -> None:
    with rogue_board(farm.address, name, collect=results_with(times_s=[1e-9])):
        for _ in range(10):
            measured(farm, count=4)
            if was_quarantined(farm, name):
                break
        assert was_quarantined(farm, name)
        assert "1e-09 s, which no machine does" in last_error(farm, name)
        main(["release", name, "--tracker", farm.address])


def test_a_board_that_refuses_leaves_the_batch_to_others(farm: FarmProcesses, name: str) -> None:
    refuse = lambda _: wire.encode_error("not today")  # noqa: E731
    with rogue_board(farm.address, name, submit=refuse):
        for boards in (1, 2):
            assert [r.status for r in measured(farm, boards=boards)] == [Status.OK] * 24


def test_a_batch_that_all_boards_refuse_ends(
    farm: FarmProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farm_runner, "REFUSED_S", 0.2)
    broken = (fakes.request(fakes.GOOD, threads=4096),)
    with farm.runner() as runner, pytest.raises(FarmError, match="board b0 refuses"):
        runner.measure(broken)


def test_a_profile_that_makes_no_sense_keeps_nobody_from_the_others(
    farm: FarmProcesses, name: str
) -> None:
    with rogue_board(farm.address, name, hello=lambda _: b"{}"):
        assert [r.status for r in measured(farm)] == [Status.OK] * 24


def direct(collect: Any, **options: Any) -> MeasureResult:
    """Of a board without a tracker."""
    with (
        open_listener(welcome, queued, collect) as listener,
        RpcRunner(f"rpc://127.0.0.1:{listener.port}", **options) as runner,
    ):
        (result,) = runner.measure(requests(1))
        return result


def test_a_board_without_a_tracker_may_lie_twice() -> None:
    lies = [results_with(times_s=[1e-9])] * 2
    honest = results_with()
    assert direct(lambda data: lies.pop()(data) if lies else honest(data)) == DONE
    with pytest.raises(BoardFaultError, match="no machine does"):
        direct(results_with(times_s=[1e-9]))


def test_a_board_without_a_tracker_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "BEHIND_S", 0.0)
    monkeypatch.setattr(client_module, "QUIET_S", 1.0)
    monkeypatch.setattr(client_module, "QUIET_REQUESTS", 0)
    with pytest.raises(DeviceError, match="gave no result for 1 s"):
        direct(never_done)
