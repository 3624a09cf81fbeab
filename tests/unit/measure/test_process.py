"""Worker processes: deadlines, deaths, restarts."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.measure import process
from autotune.measure.process import WorkerDiedError, WorkerProcess, WorkerTimeoutError
from tests.unit.measure import fakes
from tests.unit.rpc_server.boards import wait_until_gone


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    worker = WorkerProcess(executor=fakes.FAKE, recycle_after=3)
    yield worker
    worker.stop()


def run(worker: WorkerProcess, behaviour: int, timeout_s: float = 5.0) -> object:
    built = {"symbol": "kernel", "workspace_bytes": 0, "packs": [], "build_s": 0.0}
    header = {"command": "run", "request": fakes.request(behaviour).to_json(), "built": built}
    return worker.call(header, b"\0code", timeout_s=timeout_s)[0]["result"]["status"]


def test_a_worker_keeps_its_process_and_is_recycled_after_a_while(worker: WorkerProcess) -> None:
    pids = []
    for _ in range(4):
        assert run(worker, fakes.GOOD) == "OK"
        pids.append(worker.pid)
    assert pids[0] == pids[1]
    assert pids[3] != pids[0]


def test_a_worker_that_its_driver_holds_is_left_behind_until_it_ends(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.ready()
    pid, signalled = worker.pid, os.killpg
    assert pid is not None
    with monkeypatch.context() as patched:
        patched.setattr(process, "END_TIMEOUT_S", 0.01)
        # Stopped, it does not even see that its pipe was closed, which would end it.
        patched.setattr(os, "killpg", lambda group, _: signalled(group, signal.SIGSTOP))
        with pytest.raises(WorkerTimeoutError):
            run(worker, fakes.HANG, timeout_s=0.2)
        with pytest.raises(WorkerDiedError, match=f"process {pid} does not end"):
            run(worker, fakes.GOOD)
    os.killpg(pid, signal.SIGKILL)
    wait_until_gone([pid])
    assert run(worker, fakes.GOOD) == "OK"


def test_a_hanging_worker_is_killed_at_the_deadline(worker: WorkerProcess) -> None:
    worker.ready()
    pid = worker.pid
    with pytest.raises(WorkerTimeoutError):
        run(worker, fakes.HANG, timeout_s=0.2)
    assert worker.pid is None
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()
    assert run(worker, fakes.GOOD) == "OK"


def test_a_crash_names_the_signal(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerDiedError, match="killed by SIGSEGV") as caught:
        run(worker, fakes.SEGFAULT)
    assert caught.value.signal_name == "SIGSEGV"


def test_an_exit_gives_the_status_and_the_last_words(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerDiedError, match="exited with status 7: giving up"):
        run(worker, fakes.EXIT)


def test_a_worker_that_cannot_start_says_why() -> None:
    worker = WorkerProcess(executor="no.such.module:Executor")
    with pytest.raises(WorkerDiedError, match="No module named 'no'"):
        worker.ready()
    worker.stop()


def test_a_worker_killed_while_idle_is_replaced(worker: WorkerProcess) -> None:
    worker.ready()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert run(worker, fakes.GOOD) == "OK"


def test_a_worker_runs_on_its_cores() -> None:
    core = max(os.sched_getaffinity(0))
    worker = WorkerProcess(executor=fakes.FAKE, cores=(core,))
    worker.ready()
    assert worker.pid is not None
    assert os.sched_getaffinity(worker.pid) == {core}
    worker.stop()


def test_numpy_has_no_threads_that_wait_on_the_cores_of_kernels(worker: WorkerProcess) -> None:
    worker.ready()
    words = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
    assert b"OPENBLAS_NUM_THREADS=1" in words


def test_unknown_commands_are_answered(worker: WorkerProcess) -> None:
    reply, _ = worker.call({"command": "dance"}, timeout_s=5.0)
    assert "unknown command" in reply["error"]


PARENT = """
import sys
import tempfile
from autotune.measure.process import WorkerProcess
from tests.unit.measure import fakes
built = {"symbol": "kernel", "workspace_bytes": 0, "packs": [], "build_s": 0.0}
worker = WorkerProcess(executor=fakes.FAKE)
worker.ready()
print(worker.pid, flush=True)
request = fakes.request(fakes.HANG).to_json()
worker.call({"command": "run", "request": request, "built": built}, b"\\0code", timeout_s=60)
"""


def test_a_worker_ends_with_a_killed_parent_in_the_middle_of_a_kernel() -> None:
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone([pid])


def test_a_worker_that_the_system_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    worker = WorkerProcess(executor=fakes.FAKE)
    with pytest.raises(WorkerDiedError, match="cannot be made: No such file"):
        worker.ready()
    monkeypatch.undo()
    assert run(worker, fakes.GOOD) == "OK"
    worker.stop()


def test_a_parent_may_have_many_files_open(worker: WorkerProcess) -> None:
    """More than `select` can wait for."""
    least, (soft, hard) = 1100, resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * least), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(least)]
    try:
        assert run(worker, fakes.GOOD) == "OK"
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
