"""A hostile object against the walls around a board's worker: each of them holds alone."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.measure import process
from autotune.measure.runners.local import LocalRunner
from autotune.measure.sandbox import OPEN, Report, Sandbox
from autotune.measure.types import Status
from autotune.target import host_target
from tests.unit.measure.hostile import hostile_request

WALLS = Sandbox(read_system_only=True)
WORD = "HUNTER2"
SHM_KEY = 0x51C2E7
SHM_BYTES = 64
_CREATE, _REMOVE = 0o1000 | 0o666, 0


@pytest.fixture(autouse=True)
def every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LAST_WORDS", process.STDERR_TAIL_BYTES)


@pytest.fixture(scope="module")
def secrets() -> Iterator[list[str]]:
    """Files that everybody may read, where keys and passwords lie on real machines; an abstract
    socket and shared memory of this user."""
    libc = ctypes.CDLL(None)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.NamedTemporaryFile(dir="/dev/shm") as shared,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        os.chmod(folder, 0o755)
        key = Path(folder, "key.pem")
        key.write_text("secret")
        shared.write(b"secret")
        shared.flush()
        os.chmod(shared.name, 0o644)
        abstract.bind("\0hidden")
        abstract.listen()
        block = libc.shmget(SHM_KEY, SHM_BYTES, _CREATE)
        yield [
            str(key), folder, shared.name, "/dev/shm", "/tmp", "/etc/shadow", "/etc/passwd",
            "/etc/hostname", "/etc/ssl/private", "/root", "/home", "/var/log", "/run", "/srv",
            "/proc/1/cmdline", "/proc/kcore", "/proc/keys", "/sys/kernel/debug", "/",
            str(Path.cwd() / ".git"),
        ]  # fmt: skip
        libc.shmctl(block, _REMOVE, None)


def found(folder: Path, secrets: list[str], bounds: Sandbox) -> tuple[str, Report]:
    """What the object says that it found, and which bounds held."""
    request = hostile_request(folder, secrets, WORD, SHM_KEY)
    with LocalRunner(host_target(), sandbox=bounds) as runner:
        (result,) = runner.measure((request,))
        report = runner.sandbox
    assert result.status is Status.RUN_CRASH, result
    return result.error.partition("found ")[2], report


def test_a_hostile_object_finds_secrets_where_there_are_no_walls(
    tmp_path: Path, secrets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probes work: without this the tests below would say nothing."""
    monkeypatch.setenv("PYTHON_TEST_PASSWORD", WORD)
    said, _ = found(tmp_path, secrets[:3], OPEN)
    for word in (f"read:{secrets[0]}", "environment:", "socket:abstract", "memory:shared"):
        assert word in said
    assert "parent:/environ" in said


BOUNDS = {
    "both": WALLS,
    "landlock": dataclasses.replace(WALLS, own_view=False),
    "view": dataclasses.replace(WALLS, write_temporary_only=False),
}


@pytest.mark.parametrize("walls", BOUNDS)
def test_a_hostile_object_finds_nothing(
    tmp_path: Path, secrets: list[str], monkeypatch: pytest.MonkeyPatch, walls: str
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", WORD)
    if walls == "view":  # a mount namespace shows names of processes and its own empty root
        secrets = [s for s in secrets if s not in ("/", "/tmp", "/proc/1/cmdline", "/root")]
    said, report = found(tmp_path, secrets, BOUNDS[walls])
    assert "" in {report["view"], report["files"]}
    assert said.startswith("of ")


def test_a_worker_of_a_board_that_runs_as_root_is_somebody_of_its_own() -> None:
    script = (
        "from autotune.measure.process import WorkerProcess\n"
        "from autotune.measure.sandbox import Sandbox\n"
        "from pathlib import Path\n"
        "from tests.unit.measure import fakes\n"
        "workers = [WorkerProcess(executor=fakes.FAKE, sandbox=Sandbox(read_system_only=True))\n"
        "           for _ in range(2)]\n"
        "for worker in workers:\n"
        "    worker.ready()\n"
        "    status = Path(f'/proc/{worker.pid}/status').read_text()\n"
        "    rows = [r.split() for r in status.splitlines() if r[:3] in ('Uid', 'Gid', 'Gro')]\n"
        "    user = sorted({*rows[0][1:], *rows[1][1:]})\n"
        "    print(user, rows[2][1:], worker.report['privileges'])\n"
        "[worker.stop() for worker in workers]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first.endswith("] [] ") or os.getuid() != 0
    assert first != second or os.getuid() != 0


ORDINARY = """
import ctypes, os, tempfile
from autotune.measure.sandbox import Sandbox, confine
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(12345, 12345, 12345)
    os.setresuid(12345, 12345, 12345)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a program that this user started: dumpable
folder = tempfile.mkdtemp()
os.chdir(folder)
report = confine(Sandbox(read_system_only=True, filter_calls=False), folder)
print(report["view"], report["files"], os.path.exists("/home"), os.path.exists("/etc/passwd"))
print(os.listdir("."))
open("written", "w").close()
os.unlink("written")
"""


def ordinary(dumpable: int) -> list[str]:
    script = ORDINARY.replace("prctl(4, 1,", f"prctl(4, {dumpable},")
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_an_ordinary_user_s_board_has_the_same_walls() -> None:
    """By a user namespace, where the kernel lets everybody have one."""
    assert ordinary(1) == ["  False False", "[]"]


def test_a_user_namespace_that_cannot_be_finished_is_not_begun() -> None:
    """Its process would be nobody in it, and could not write to its own directory any more."""
    assert ordinary(0) == ["Permission denied  True True", "[]"]
