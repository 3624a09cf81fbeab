"""The farm with real processes and sockets: what is killed, and what comes of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import DeviceError
from autotune.measure.types import MeasureResult, Status
from autotune.target import host_target
from rpc_server.__main__ import main
from rpc_server.client.board_runner import RpcRunner
from rpc_server.client.farm_runner import FarmAddress
from rpc_server.client.options import Deadlines
from rpc_server.runners import runner_for
from rpc_server.tracker.types import FarmError
from tests.patience import PATIENCE_S
from tests.unit.measure import fakes
from tests.unit.rpc_server.farms import LEASE_S, ROOT, FarmProcesses, running_farm


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarmProcesses]:
    with running_farm(tmp_path_factory.mktemp("farm"), boards=2) as farm:
        yield farm


@pytest.fixture(autouse=True)
def _healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every board is in service again after each test."""
    yield
    if "farm" in request.fixturenames:
        farm: FarmProcesses = request.getfixturevalue("farm")
        for board in ("b0", "b1"):
            main(["release", board, "--tracker", farm.address])
        farm.in_service()


def leased(farm: FarmProcesses) -> dict[str, str]:
    """Clients by board."""
    return {b["name"]: b["client"] for b in farm.status()["boards"] if b["client"]}


def slow(count: int) -> tuple:  # type: ignore[type-arg]
    return tuple(fakes.request(fakes.SLOW) for _ in range(count))


def test_a_batch_is_spread_over_the_boards_and_reported_once(farm: FarmProcesses) -> None:
    seen: Counter[int] = Counter()
    with farm.runner(boards=2) as runner:
        farm.together(runner, 2)
        results = runner.measure(slow(8), lambda n, _: seen.update([n]))
    assert [r.status for r in results] == [Status.OK] * 8
    assert seen == Counter(range(8))
    assert len({r.times_s for r in results}) == 2, "each board has a worker of its own"


def test_results_may_be_reported_in_order(farm: FarmProcesses) -> None:
    seen: list[int] = []
    with farm.runner(boards=2, in_order=True) as runner:
        runner.measure(slow(6), lambda n, _: seen.append(n))
    assert seen == list(range(6))


def test_every_candidate_keeps_its_place(farm: FarmProcesses) -> None:
    kinds = [fakes.GOOD, fakes.SEGFAULT, fakes.WRONG, fakes.BUILD_ERROR] * 3
    expected = [Status.OK, Status.RUN_CRASH, Status.WRONG_RESULT, Status.BUILD_ERROR] * 3
    with farm.runner(boards=2) as runner:
        results = runner.measure(tuple(fakes.request(k) for k in kinds))
    assert [r.status for r in results] == expected


@pytest.mark.slow
def test_leases_are_kept_between_batches(farm: FarmProcesses) -> None:
    with farm.runner() as runner:
        runner.measure((fakes.request(fakes.GOOD),))
        held = leased(farm)
        farm.wait_for(lambda f: any((b["leased_s"] or 0) > LEASE_S + 0.5 for b in f["boards"]))
        runner.measure((fakes.request(fakes.GOOD),))
        assert len(held) == 1
        assert leased(farm) == held


def test_a_runner_that_ends_asks_for_no_other_board(farm: FarmProcesses) -> None:
    def fence() -> int:
        with farm.runner() as runner:
            runner.measure((fakes.request(fakes.GOOD),))
            return max(runner._helpers)

    first = fence()
    assert not leased(farm)
    assert fence() == first + 1


def test_kill_minus_9_of_a_board_loses_and_doubles_nothing(farm: FarmProcesses) -> None:
    seen: Counter[int] = Counter()

    def report(number: int, _: MeasureResult) -> None:
        seen.update([number])
        if seen.total() == 2:
            farm.boards[0].stop(signal.SIGKILL)

    with farm.runner(boards=2) as runner:
        results = runner.measure(slow(10), report)
        assert [r.status for r in results] == [Status.OK] * 10
        assert seen == Counter(range(10))
    farm.boards[0].start()


@pytest.mark.slow
def test_a_board_that_stands_still_loses_its_work_to_another(farm: FarmProcesses) -> None:
    stopped = farm.boards[0]
    with farm.runner(boards=2) as runner:

        def report(number: int, _: MeasureResult) -> None:
            if number == 0:
                stopped.signal(signal.SIGSTOP)

        results = runner.measure(slow(8), report)
        # The board stands still to the end: nobody has waited for it.
        assert farm.states()["b0"] == "offline"
        stopped.signal(signal.SIGCONT)
    assert [r.status for r in results] == [Status.OK] * 8


@pytest.mark.slow
def test_kill_minus_9_of_the_tracker_stops_no_batch(farm: FarmProcesses) -> None:
    with farm.runner(boards=2) as runner:
        runner.measure(slow(2))
        before = leased(farm)
        farm.tracker.stop(signal.SIGKILL)
        assert [r.status for r in runner.measure(slow(4))] == [Status.OK] * 4
        farm.tracker.start()
        since_s = time.monotonic()
        farm.wait_for(lambda _: time.monotonic() > since_s + LEASE_S + 0.5)
        after = farm.status()["boards"]
        assert leased(farm) == before
        assert {b["state"] for b in after} == {"leased"}
        assert not [b["last_error"] for b in after if b["faults"]]
        assert [r.status for r in runner.measure(slow(2))] == [Status.OK] * 2


def test_a_client_that_waits_is_served_after_the_tracker_was_killed(farm: FarmProcesses) -> None:
    main(["drain", "b1", "--tracker", farm.address])
    with farm.runner() as first, farm.runner() as second:
        first.measure((fakes.request(fakes.GOOD),))

        second._session.want(1)
        farm.wait_for(lambda f: len(f["queue"]) == 1)
        farm.tracker.stop(signal.SIGKILL)
        farm.tracker.start()
        assert len(farm.status()["queue"]) == 1
        first.close()
        assert second.measure((fakes.request(fakes.GOOD),))[0].status is Status.OK


CLIENT = """
import sys
from rpc_server.client.farm_runner import FarmRunner
from rpc_server.client.options import FarmOptions
from tests.unit.measure import fakes
runner = FarmRunner(sys.argv[1], farm=FarmOptions(boards=2))
runner.measure((fakes.request(fakes.SLOW),) * 200, lambda *_: print('.', flush=True))
"""


@pytest.mark.slow
def test_kill_minus_9_of_a_client_frees_its_boards(farm: FarmProcesses) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, farm.url], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert client.stdout is not None
    client.stdout.readline()
    client.kill()
    client.wait()
    client.stdout.close()
    with farm.runner(boards=2) as runner:
        assert [r.status for r in runner.measure(slow(4))] == [Status.OK] * 4


@pytest.mark.slow
def test_a_client_with_all_boards_shares_them_with_one_that_comes(farm: FarmProcesses) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, farm.url], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert client.stdout is not None
    client.stdout.readline()
    try:
        with farm.runner(boards=2) as runner:
            assert [r.status for r in runner.measure(slow(2))] == [Status.OK] * 2
        assert client.poll() is None
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


def test_a_board_of_a_farm_serves_no_one_without_a_lease(farm: FarmProcesses) -> None:
    with (
        RpcRunner(f"rpc://127.0.0.1:{farm.boards[0].port}") as runner,
        pytest.raises(DeviceError, match="tracker://HOST:PORT/KEY"),
    ):
        runner.measure((fakes.request(fakes.GOOD),))


def test_boards_whose_device_does_not_come_back_are_quarantined(farm: FarmProcesses) -> None:
    """Each request of a lost device is a fault of the board that had it."""
    with farm.runner(boards=2) as runner:
        results = runner.measure((fakes.request(fakes.GONE),) * 3)
    assert {r.status for r in results} == {Status.DEVICE_LOST}
    assert all("does not come back" in r.error for r in results)
    farm.wait_for(lambda status: sum(b["faults"] for b in status["boards"]) >= 9)
    boards, away = farm.status()["boards"], {"quarantined", "probation"}
    # Which of the two has how many of them is a matter of who was faster.
    assert all((b["state"] in away) == (b["faults"] >= 3) for b in boards), boards


def test_what_a_board_refuses_is_an_error_and_no_fault_of_it(farm: FarmProcesses) -> None:
    with farm.runner() as runner, pytest.raises(FarmError, match=r"refuses: .* 999 threads"):
        runner.measure((fakes.request(fakes.GOOD, threads=999),))
    assert all(b["faults"] == 0 for b in farm.status()["boards"])


def test_no_board_in_time_names_the_deadline_and_what_to_do(farm: FarmProcesses) -> None:
    for board in ("b0", "b1"):
        main(["drain", board, "--tracker", farm.address])
    with (
        farm.runner(deadlines=Deadlines(queue_s=0.5)) as runner,
        pytest.raises(FarmError, match=r"^queue: no board of key k within 0.5 s .*status"),
    ):
        runner.measure((fakes.request(fakes.GOOD),))


def test_a_tracker_that_stays_away_names_the_deadline(farm: FarmProcesses) -> None:
    for board in ("b0", "b1"):
        main(["drain", board, "--tracker", farm.address])
    with farm.runner(deadlines=Deadlines(session_s=0.5)) as runner:
        farm.tracker.stop(signal.SIGKILL)
        try:
            with pytest.raises(FarmError, match=r"^session: the tracker .* for 0.5 s"):
                runner.measure((fakes.request(fakes.GOOD),))
        finally:
            farm.tracker.start()


def test_an_unknown_key_names_those_there_are(farm: FarmProcesses) -> None:
    with pytest.raises(DeviceError, match="keys there are: k;"):
        runner_for(f"tracker://{farm.address}/rpi9", host_target())


def test_no_tracker_at_the_address_is_one_clear_line() -> None:
    with pytest.raises(FarmError, match=r"^cannot reach the tracker 127.0.0.1:1: .*start"):
        runner_for("tracker://127.0.0.1:1/k", host_target())


@pytest.mark.parametrize(
    "device", ["tracker://", "tracker://h:1", "tracker://h/k", "tracker://h:1/"]
)
def test_a_malformed_address_is_an_error(device: str) -> None:
    with pytest.raises(DeviceError, match="expected"):
        FarmAddress.parse(device)


def test_status_as_text_and_json(farm: FarmProcesses, capsys: pytest.CaptureFixture[str]) -> None:
    with farm.runner() as runner:
        runner.measure((fakes.request(fakes.GOOD), fakes.request(fakes.SEGFAULT)))
        words = {"BOARD", "b0", "b1", "leased", "local", "RUN_CRASH"}
        text, deadline = "", time.monotonic() + PATIENCE_S
        # A board tells of its results with its next heartbeat.
        while any(w not in text for w in words) and time.monotonic() < deadline:
            main(["status", "--tracker", farm.address])
            text = capsys.readouterr().out
        assert not [w for w in words if w not in text], text
        main(["status", "--tracker", farm.address, "--json"])
        boards = json.loads(capsys.readouterr().out)["boards"]
    assert [b["name"] for b in boards] == ["b0", "b1"]
    assert sum(b["stats"]["trials"] for b in boards) >= 2


def test_status_is_watched_over_a_restart_until_interrupted(farm: FarmProcesses) -> None:
    command = [sys.executable, "-m", "rpc_server", "status", "--watch", "--json"]
    watch = subprocess.Popen(
        [*command, "--tracker", farm.address], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert watch.stdout is not None
    fields = {"name", "key", "state", "client", "leased_s", "faults", "trials_per_s", "last_error"}
    with watch.stdout:
        (board, _) = json.loads(watch.stdout.readline())["boards"]
        assert fields <= board.keys()
        assert {"trials", "failed", "queued", "temperature_c"} <= board["stats"].keys()
        farm.tracker.stop(signal.SIGKILL)
        while "cannot reach the tracker" not in watch.stdout.readline():
            assert watch.poll() is None
        farm.tracker.start()
        while not (line := watch.stdout.readline()).startswith("{"):
            assert watch.poll() is None
        assert len(json.loads(line)["boards"]) == 2
        watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=PATIENCE_S) == 130


def test_decisions_are_carried_out(
    farm: FarmProcesses, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["quarantine", "b0", "b1", "--tracker", farm.address])
    assert capsys.readouterr().out == "b0: quarantined\nb1: quarantined\n"
    main(["release", "b0", "--tracker", farm.address])
    assert farm.states() == {"b0": "idle", "b1": "quarantined"}
    with pytest.raises(SystemExit):
        main(["drain", "b7", "--tracker", farm.address])
    assert "no board named b7; there are: b0, b1" in capsys.readouterr().err


def test_a_board_needs_both_tracker_and_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--key", "k"])
    assert "both --tracker HOST:PORT and --key KEY" in capsys.readouterr().err


def test_what_happened_is_in_the_audit_log(tmp_path: Path) -> None:
    with running_farm(tmp_path, boards=1) as farm, farm.runner() as runner:
        runner.measure((fakes.request(fakes.GOOD),))
    lines = (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line)["result"] for line in lines]
    for word in ("BoardChanged", "Granted", "LeaseEnded"):
        assert word in results
