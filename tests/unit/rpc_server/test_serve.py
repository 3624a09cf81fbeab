"""The board as a process: its command line, its death and its return."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.errors import ConfigError, DeviceError
from autotune.measure.runners.local import LocalRunner
from autotune.measure.types import MeasureResult, Status
from autotune.target import host_target
from rpc_server.__main__ import main
from rpc_server.board.command import parse_cores, size
from rpc_server.board.server import check_loopback, parse_address
from rpc_server.client import board_runner
from rpc_server.client.board_runner import RpcRunner
from rpc_server.client.options import Deadlines
from rpc_server.runners import runner_for
from rpc_server.wire import messages as wire
from tests.unit.measure import fakes
from tests.unit.rpc_server.boards import BoardProcess, wait_until_gone


def test_a_board_introduces_itself_and_stops_when_told() -> None:
    board = BoardProcess(executor=fakes.FAKE)
    board.start()
    text = "\n".join(board.greeting)
    for word in ("target  cpu", "cores   ", "caches  L1 ", "100.0 GFLOP/s", "listening on 127"):
        assert word in text
    workers = board.children()
    assert board.stop(signal.SIGTERM) == 0
    wait_until_gone(workers)


def test_kill_minus_9_of_the_board_during_a_batch_loses_and_doubles_nothing() -> None:
    with BoardProcess(executor=fakes.FAKE) as board, RpcRunner(board.url) as runner:
        seen: list[int] = []
        workers: list[int] = []

        def report(number: int, _: MeasureResult) -> None:
            seen.append(number)
            if number == 1:
                workers.extend(board.children())
                board.stop(signal.SIGKILL)
                board.start()

        requests = tuple(fakes.request(fakes.SLOW) for _ in range(4))
        results = runner.measure(requests, report)
        assert [r.status for r in results] == [Status.OK] * 4
        assert seen == [0, 1, 2, 3]
        wait_until_gone(workers)


@pytest.mark.slow
def test_a_board_that_stays_away_loses_what_is_not_measured() -> None:
    with BoardProcess(executor=fakes.FAKE) as board:
        runner = RpcRunner(board.url, deadlines=Deadlines(reconnect_s=0.2))

        def report(number: int, _: MeasureResult) -> None:
            if number == 0:
                board.stop(signal.SIGKILL)

        requests = tuple(fakes.request(fakes.SLOW) for _ in range(3))
        results = runner.measure(requests, report)
        assert results[0].status is Status.OK
        assert {r.status for r in results[1:]} <= {Status.OK, Status.DEVICE_LOST}
        assert results[2].status is Status.DEVICE_LOST
        with pytest.raises(DeviceError, match=r"did not come back within .* s; start it again"):
            runner.measure(requests)
        runner.close()
        board.start()


def test_a_client_that_is_killed_frees_the_board() -> None:
    script = (
        "import sys\n"
        "from rpc_server.client.board_runner import RpcRunner\n"
        "from tests.unit.measure import fakes\n"
        "runner = RpcRunner(sys.argv[1])\n"
        "runner.measure((fakes.request(fakes.SLOW),) * 1000, lambda *_: print('.', flush=True))\n"
    )
    with BoardProcess(executor=fakes.FAKE) as board:
        client = subprocess.Popen(
            [sys.executable, "-c", script, board.url],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        assert client.stdout is not None
        client.stdout.readline()
        client.kill()
        client.wait()
        client.stdout.close()
        start = time.monotonic()
        with RpcRunner(board.url) as runner:
            (result,) = runner.measure((fakes.request(fakes.GOOD),))
        assert result.status is Status.OK
        assert time.monotonic() - start < 60, "1000 of them take minutes"


def test_a_client_of_another_protocol_is_refused_in_one_clear_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with BoardProcess(executor=fakes.FAKE) as board:
        theirs = wire.PROTOCOL
        monkeypatch.setattr(wire, "PROTOCOL", theirs + 1)
        line = f"protocol version {theirs + 1}, got {theirs}; install the same version"
        with pytest.raises(DeviceError, match=line):
            RpcRunner(board.url)


def test_nobody_at_the_address_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DeviceError, match=r"cannot reach rpc://127.0.0.1:\d+: Connection refused"):
        RpcRunner(f"rpc://127.0.0.1:{port}")


def test_somebody_else_at_the_address_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_runner, "CONNECT_TIMEOUT_S", 0.3)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(DeviceError, match="cannot reach"),
    ):
        RpcRunner(f"rpc://127.0.0.1:{mute.getsockname()[1]}")


@pytest.mark.parametrize(
    "device", ["rpc://", "rpc://host", "rpc://host:x", "cuda", "rpc://h:99999"]
)
def test_a_malformed_device_is_an_error(device: str) -> None:
    with pytest.raises(DeviceError, match="expected"):
        runner_for(device, host_target())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.9"])
def test_loopback_may_be_listened_on(host: str) -> None:
    check_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "example.org", "::"])
def test_other_addresses_are_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="only loopback"):
        check_loopback(host)


def test_addresses_are_parsed() -> None:
    assert parse_address("127.0.0.1:9190") == ("127.0.0.1", 9190)
    assert parse_address("[::1]:0") == ("::1", 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--listen", "0.0.0.0:9190"],
        ["--listen", "nowhere"],
        ["--target", "no-such-target"],
        ["--cores", "0-9999"],
        ["--cores", "two"],
        ["--memory-mib", "-5"],
        ["--memory-mib", "1e300"],
        ["--threads", "-1"],
        ["--threads", "99999999999999999999"],
        ["--tracker", "127.0.0.1:1", "--key", "two words <b>"],
        ["--tracker", "127.0.0.1:1", "--key", "k", "--name", "a#b"],
        ["--tracker", "127.0.0.1:1", "--key", "k" * 300],
        ["--tracker", "127.0.0.1:1", "--key", "k", "--advertise", "a\nb"],
        ["--tracker", "nowhere", "--key", "k"],
        ["--tracker", "127.0.0.1:1"],
        ["--reset-command", "no-such-program-here"],
        ["--certs", "/nowhere"],
        ["--config", "/nowhere.toml"],
        ["--audit", "/nowhere/audit.log"],
    ],
)
def test_bad_arguments_are_one_line_and_status_2_before_anything_starts(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalRunner, "ready", unexpected)
    with pytest.raises(SystemExit) as caught:
        main(["serve", *arguments])
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def unexpected(_: object) -> None:
    raise AssertionError("it measures before it has checked what it was told")


def test_a_port_in_use_is_one_line_and_status_2_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalRunner, "ready", unexpected)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SystemExit):
            main(["serve", "--listen", address, "--executor", fakes.FAKE])
    assert "cannot listen" in capsys.readouterr().err


def test_cores_are_listed_and_ranged() -> None:
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    assert parse_cores("") == allowed
    assert parse_cores(",".join(map(str, allowed))) == allowed


def test_an_interrupt_while_commands_are_loaded_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rpc_server.commands.parser", interrupt)
    with pytest.raises(SystemExit) as ended:
        main(["serve"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_sizes_are_for_people() -> None:
    assert (size(100), size(32 << 10), size(1 << 20)) == ("100 B", "32 KiB", "1 MiB")


BARE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"xgboost", "sqlalchemy", "onnx", "rich", *sys.argv[1:]}:
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import rpc_server.board.device, rpc_server.commands, autotune.measure.execute
"""


@pytest.mark.parametrize("also", [[], ["llvmlite"]])
def test_a_board_needs_numpy_and_rpyc_and_to_build_llvmlite(also: list[str]) -> None:
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", BARE, *also], check=True, cwd=root)
