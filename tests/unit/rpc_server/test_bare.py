"""Our loader's relocations for every kind of board, and what such boards make of denormal numbers,
shown by running what it made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.measure.execute import build, judge, make_case
from autotune.ops import OPS
from autotune.target import load_target
from autotune.types import Task
from tests.unit.measure import denormals, tasks
from tests.unit.rpc_server.bare import run_bare
from tests.unit.rpc_server.test_objects import softmax, tuned

TARGETS = {"aarch64": "cortex-a72", "arm": "cortex-a7", "riscv64": "riscv64-v"}
TASKS = {"conv": tasks.conv(9, 16), "matmul": tasks.matmul(13, 24, 40), "softmax": softmax()}


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("name", TASKS)
def test_loaded_code_computes_what_numpy_does(machine: str, name: str, tmp_path: Path) -> None:
    task: Task = TASKS[name]
    request = tuned(task, TARGETS[machine])
    case = make_case(task, request.seed)
    run_bare(machine, request, build(request), case, tmp_path)
    output = case.output.view.copy()
    assert judge(case).error == ""
    (node,) = task.nodes
    arrays = [case.arrays[n].astype(np.float64) for n in node.inputs]
    expected = OPS.get(node.op).reference(arrays, dict(node.attrs))
    np.testing.assert_allclose(output, expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("accuracy", ["normal", "strict"])
@pytest.mark.parametrize("machine", TARGETS)
def test_denormal_numbers_are_flushed_where_there_is_a_way(
    machine: str, accuracy: str, tmp_path: Path
) -> None:
    request = denormals.request(load_target(TARGETS[machine]).with_accuracy(accuracy))
    case = make_case(request.task, request.seed)
    run_bare(machine, request, build(request), case, tmp_path)
    if accuracy == "strict" or machine == "riscv64":
        assert judge(case).error == ""
    else:
        assert not case.output.view.any()
