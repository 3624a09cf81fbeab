"""Boards that serve a GPU or an OpenCL device, through a tuner's whole path: records in a log."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import autotune
from autotune.db.opening import open_log
from autotune.measure.execute import NativeExecutor
from autotune.measure.types import Status
from autotune.target import load_target
from tests.emulator.device import emulated_cuda
from tests.emulator.driver import break_down, emulated_machine
from tests.needs import needs
from tests.unit.measure.driver_scripts import request
from tests.unit.rpc_server.boards import BoardProcess
from tests.unit.rpc_server.farms import running_farm

EXECUTOR = f"{NativeExecutor.__module__}:{NativeExecutor.__name__}"


@needs("opencl")
@pytest.mark.slow
def test_a_model_is_tuned_on_an_opencl_board(tmp_path: Path) -> None:
    target, log = load_target("opencl"), tmp_path / "tuning.db"
    with BoardProcess(executor=EXECUTOR, options=("--target", "opencl")) as board:
        autotune.tune("zoo:tiny", target="opencl", device=board.url, log=log, trials=10)
    model = autotune.compile("zoo:tiny", target="opencl", log=log)
    assert {kernel.source for kernel in model.image.kernels} == {"record"}
    store = open_log(log)
    records = [store.best(kernel.task_key, target) for kernel in model.image.kernels]
    store.close()
    assert all(record is not None and record.result.times_s for record in records)


@pytest.mark.slow
def test_a_model_is_tuned_on_a_gpu_and_compiled_elsewhere(tmp_path: Path) -> None:
    """The GPU and its driver are emulated, in the board's processes only."""
    machine, log = emulated_machine(tmp_path), tmp_path / "tuning.db"
    options = ("--target", "sm_90a", "--lock-clocks")
    board = BoardProcess(executor=EXECUTOR, options=options, machine=machine)
    board.start()
    assert "clocks  locked" in board.greeting
    autotune.tune("zoo:tiny", target="sm_90a", device=board.url, log=log, trials=10)
    board.stop(signal.SIGTERM)
    assert (tmp_path / "clock").read_text() == ""  # unlocked again
    with emulated_cuda():
        model = autotune.compile("zoo:tiny", target="sm_90a", log=log)
    assert {kernel.source for kernel in model.image.kernels} == {"record"}
    store = open_log(log)
    records = [store.best(k.task_key, load_target("sm_90a")) for k in model.image.kernels]
    store.close()
    read = {record.result.conditions for record in records if record}
    assert read == {"1980/3201 MHz 41 C 120 W"}, "the clocks of the card, locked by the board"


def test_a_board_that_may_not_lock_clocks_serves_all_the_same(tmp_path: Path) -> None:
    machine = emulated_machine(tmp_path)
    break_down(tmp_path, "clocks")
    options = ("--target", "sm_90a", "--lock-clocks")
    with BoardProcess(executor=EXECUTOR, options=options, machine=machine) as board:
        assert "clocks  not locked: Insufficient Permissions" in board.greeting


@pytest.mark.slow
def test_a_lost_gpu_is_quarantined_and_serves_again_when_it_is_back(tmp_path: Path) -> None:
    machine = emulated_machine(tmp_path)
    options = ("--target", "sm_90a")
    with running_farm(tmp_path, 1, EXECUTOR, options, machine) as farm:
        with farm.runner() as runner:
            break_down(tmp_path, "lost")
            lost = runner.measure((request(),) * 3)
        assert (lost[0].status, lost[-1].status) == (Status.RUN_CRASH, Status.DEVICE_LOST)
        assert "no NVIDIA driver answers here" in lost[-1].error
        assert farm.states()["b0"] in ("quarantined", "probation")
        break_down(tmp_path, "")
        with farm.runner() as runner:
            (good,) = runner.measure((request(),))
        assert (good.status, good.error) == (Status.OK, "")
