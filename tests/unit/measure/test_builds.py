"""Builds that executors' workers do."""

from __future__ import annotations

import subprocess
import sys

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
