"""A board that serves an OpenCL device, through a tuner's whole path: records in a log."""

from __future__ import annotations

from pathlib import Path

import pytest

import autotune
from autotune.db.opening import open_log
from autotune.measure.execute import NativeExecutor
from autotune.target import load_target
from tests.unit.rpc_server.boards import BoardProcess

EXECUTOR = f"{NativeExecutor.__module__}:{NativeExecutor.__name__}"


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
