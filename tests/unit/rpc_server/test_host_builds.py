"""`--build host`: objects built here for the boards of a farm, and for boards without llvmlite."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.cli import execute
from autotune.compiler.choose import candidates
from autotune.errors import DeviceError
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.types import MeasureRequest, Status
from autotune.target import host_target
from benchmarks.farm.aarch64_board import prepare, serve_command
from rpc_server.board.objects import HostBuilds
from rpc_server.client.board_runner import RpcRunner
from rpc_server.client.options import Deadlines
from rpc_server.runners import FarmOptions, runner_for
from rpc_server.tracker.types import FarmError
from tests.patience import PATIENCE_S
from tests.unit.measure import fakes, tasks
from tests.unit.rpc_server.boards import BoardProcess
from tests.unit.rpc_server.farms import ROOT, ServerProcess, farm_status, running_farm
from tests.unit.rpc_server.fixed import FIXED

QUICK = Deadlines(queue_s=PATIENCE_S, session_s=PATIENCE_S, reconnect_s=1.0)


def requests(count: int) -> tuple[MeasureRequest, ...]:
    """Small tasks that the host can build."""
    target = host_target()
    return tuple(
        MeasureRequest(
            task=tasks.matmul(4 + n, 8, 16),
            schedule=(),
            target=target,
            timing=fakes.PATIENT,
            seed=n,
        )
        for n in range(count)
    )


@pytest.mark.slow
def test_boards_of_a_farm_run_what_the_host_built(tmp_path: Path) -> None:
    seen: list[int] = []
    with running_farm(tmp_path, 2, FIXED, ("--accept-objects",)) as farm:
        runner = runner_for(
            farm.url, host_target(), build="host", farm=FarmOptions(boards=2, deadlines=QUICK)
        )
        assert isinstance(runner, HostBuilds)
        with runner:
            farm.together(runner._runner, 2)
            results = runner.measure(requests(24), lambda n, _: seen.append(n))
        # A board tells of its results with its next heartbeat.
        farm.wait_for(lambda farm: all(b["stats"].get("trials") for b in farm["boards"]))
    assert [(r.status, r.error) for r in results] == [(Status.OK, "")] * 24
    assert seen == list(range(24))


def test_boards_that_take_no_objects_say_what_to_do(tmp_path: Path) -> None:
    with running_farm(tmp_path, 1, FIXED) as farm:
        options = FarmOptions(deadlines=QUICK)
        runner = runner_for(farm.url, host_target(), build="host", farm=options)
        assert isinstance(runner, HostBuilds)
        with runner, pytest.raises(FarmError, match=r"refuses: .*tune with --build board"):
            runner.measure(requests(1))


@pytest.fixture
def without_llvmlite(tmp_path: Path) -> Path:
    """A folder whose llvmlite cannot be imported."""
    package = tmp_path / "first/llvmlite"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is not here')\n")
    return package.parent


@pytest.mark.slow
def test_a_board_without_llvmlite_runs_what_the_host_built(without_llvmlite: Path) -> None:
    target = host_target()
    choice = next(iter(candidates(tasks.conv(9, 16), target, None)))
    wanted = tuple(
        MeasureRequest(task=task, schedule=schedule, target=target, timing=fakes.PATIENT, seed=5)
        for task, schedule in [(tasks.conv(9, 16), choice.schedule), (tasks.matmul(), ())]
    )
    options = ("--accept-objects", "--target", "x86-64-v3")
    with BoardProcess(
        executor=DEFAULT_EXECUTOR, options=options, first=(without_llvmlite,)
    ) as board:
        with HostBuilds(RpcRunner(board.url), builders=1) as runner:
            results = runner.measure(wanted)
        with RpcRunner(board.url) as plain, pytest.raises(DeviceError, match="--build host"):
            plain.measure(wanted)
    assert [(r.status, r.error) for r in results] == [(Status.OK, "")] * 2


def test_a_board_that_can_neither_build_nor_be_given_objects_does_not_start(
    without_llvmlite: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rpc_server", "serve", "--listen", "127.0.0.1:0"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(without_llvmlite), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "start it with --accept-objects and tune with --build host" in done.stderr


@pytest.mark.slow
def test_a_whole_aarch64_board_tunes_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Debian's arm64 Python without llvmlite, under emulation, in a farm."""
    program = prepare(ROOT / "build/aarch64")
    tracker = ServerProcess(
        "tracker", "--listen", "127.0.0.1:0", "--state", str(tmp_path / "farm.db")
    )
    tracker.start()
    address = f"127.0.0.1:{tracker.port}"
    options = ("--tracker", address, "--key", "arm", "--listen", "127.0.0.1:0", "--cores", "0")
    board = ServerProcess(command=serve_command(program, options))
    try:
        board.start()
        until_s = time.monotonic() + 600.0
        while not farm_status(tracker.port)["boards"]:  # an emulated one takes its time to join
            assert time.monotonic() < until_s
            time.sleep(0.05)
        status = execute(
            ["tune", "zoo:tiny", "--target", "cortex-a72", "--device", f"tracker://{address}/arm",
             "--build", "host", "--trials", "9", "--log", str(tmp_path / "tuning.db")]
        )  # fmt: skip
    finally:
        board.stop()
        tracker.stop()
    assert status == 0
    assert "9/9 trials, 0 failed" in capsys.readouterr().out
