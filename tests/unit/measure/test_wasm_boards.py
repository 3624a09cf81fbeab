"""Boards that run WebAssembly: right and wrong candidates in each engine, inside a worker's
bounds; other targets; a small model tuned over such a board, and exported from the log."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import autotune
from autotune.cli import execute
from autotune.errors import ConfigError, DeviceError
from autotune.measure.executor import load_executor
from autotune.measure.runners.local import LocalRunner, check_target
from autotune.measure.simulator.names import SIMULATORS, executor_of
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.target import host_target, load_target
from tests.needs import needs
from tests.unit.codegen.kernels import node, task, value
from tests.unit.rpc_server.boards import BoardProcess

TARGET = load_target("wasm32")
MATMUL = task(
    [node("matmul", "i0 c0", "o0")],
    value("i0", (12, 24), "float32"),
    value("c0", (24, 16), "float32"),
    value("o0", (12, 16), "float32"),
)
REQUEST = MeasureRequest(task=MATMUL, schedule=(), target=TARGET, timing=Timing(budget_s=0.02))
ENGINES = [pytest.param("node", marks=needs("node")), "wasmtime"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_candidate_is_checked_and_timed_within_the_bounds_of_a_worker(engine: str) -> None:
    with LocalRunner(TARGET, executor=SIMULATORS[engine]) as runner:
        (result,) = runner.measure((REQUEST,))
    assert result.status is Status.OK, result.error
    assert result.device.endswith("/simulated wasm32")
    assert result.conditions == f"simulated: {engine}"
    assert 0 < result.median_s < 0.1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_wrong_result_and_a_module_that_is_none_are_results(engine: str) -> None:
    executor = load_executor(SIMULATORS[engine])
    sums = dataclasses.replace(REQUEST, task=task(
        [node("add", "i0 i1", "o0")],
        value("i0", (4, 8), "float32"), value("i1", (4, 8), "float32"),
        value("o0", (4, 8), "float32"),
    ))  # fmt: skip
    products = dataclasses.replace(sums, task=task(
        [node("mul", "i0 i1", "o0")],
        value("i0", (4, 8), "float32"), value("i1", (4, 8), "float32"),
        value("o0", (4, 8), "float32"),
    ))  # fmt: skip
    built = executor.build(products)
    assert executor.check_and_time(products, built).status is Status.OK
    assert executor.check_and_time(sums, built).status is Status.WRONG_RESULT


def test_targets_of_another_kind_are_refused() -> None:
    check_target(TARGET, 1, simulated=True)
    with pytest.raises(DeviceError, match="wasm32 is WebAssembly, which this machine runs in an"):
        check_target(TARGET, 1)
    with pytest.raises(ConfigError, match="node is for WebAssembly, and target cpu is none"):
        executor_of("node", host_target())
    with pytest.raises(ConfigError, match="unicorn is for microcontrollers, and target wasm32"):
        executor_of("unicorn", TARGET)


@pytest.mark.slow
@needs("node")
def test_a_small_model_is_tuned_on_such_a_board_and_exported_from_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, options = tmp_path / "wasm.db", ("--target", "wasm32", "--simulator", "node")
    with BoardProcess(executor="unused:Unused", options=options) as board:
        autotune.tune("zoo:tiny", device=board.url, log=log, trials=12, seed=0)
    with autotune.TuningLog(log) as store:
        keys = {row["task_key"] for row in store.query()}
        records = [r for key in keys for r in store.records(key, TARGET)]
    assert len(records) >= 12
    assert all(r.result.status is Status.OK for r in records), [r.result.error for r in records]
    words = ["export", "zoo:tiny", "--format", "wasm", "-o", str(tmp_path / "out")]
    assert execute([*words, "--log", str(log)]) == 0
    assert "no tuning log" not in capsys.readouterr().err
