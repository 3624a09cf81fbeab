"""Builds that executors' workers do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from autotune.measure.builds import build_reply, outcome_of
from autotune.measure.process import WorkerDiedError, WorkerTimeoutError
from autotune.measure.types import MeasureResult, Status
from tests.unit.rpc_server.boards import wait_until_gone

_WORKER = """
from autotune.measure import builds
from autotune.measure.frames import encode_frame
from autotune.measure.types import MeasureRequest
from autotune.target import host_target
from tests.unit.measure import tasks
request = MeasureRequest(task=tasks.matmul(), schedule=(), target=host_target(1))
frame = encode_frame({"request": request.to_json(), "limit_s": 60.0})
assert b"built" in builds.build_job(frame)
process = builds._idle_processes().get_nowait()
builds._idle_processes().put(process)
print(process.pid)
"""


def test_build_processes_end_with_the_worker_and_nothing_is_left_open() -> None:
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", _WORKER]
    worker = subprocess.run(command, capture_output=True, text=True, check=True)
    assert worker.stderr == ""
    wait_until_gone([int(worker.stdout)])


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        (WorkerTimeoutError(), Status.BUILD_TIMEOUT, "the compiler process: over 2.5 s"),
        (
            WorkerDiedError("SIGSEGV", "killed by SIGSEGV"),
            Status.BUILD_ERROR,
            "the compiler process: killed by SIGSEGV",
        ),
    ],
)
def test_the_end_of_a_build_process_is_the_candidate_s_result(
    end: Exception, status: Status, words: str
) -> None:
    asked: list[dict[str, Any]] = []

    def call(header: dict[str, Any], *, timeout_s: float) -> Any:
        asked.append({**header, "timeout_s": timeout_s})
        raise end

    reply, code = build_reply(call, {"task": 1}, 2.5, "the compiler process")
    result = outcome_of(reply, code)
    assert asked == [{"command": "build", "request": {"task": 1}, "timeout_s": 2.5}]
    assert isinstance(result, MeasureResult)
    assert (result.status, result.error) == (status, words)
