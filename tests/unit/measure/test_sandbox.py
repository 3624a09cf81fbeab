"""The bounds of a worker process: each way of misbehaving costs one call and nothing else."""

from __future__ import annotations

import dataclasses
import errno
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.measure import seccomp, visible
from autotune.measure.devices.sandbox import sandbox_for
from autotune.measure.environment import own_path, worker_environment
from autotune.measure.process import (
    LAST_WORDS,
    WorkerDiedError,
    WorkerProcess,
    WorkerTimeoutError,
    last_words,
)
from autotune.measure.runners.local import LocalRunner
from autotune.measure.sandbox import (
    FIRST_USER,
    LAST_USER,
    OPEN,
    Sandbox,
    device_groups,
    hidden,
    own_user,
    readable,
)
from autotune.measure.types import MeasureRequest, Status
from autotune.target import host_target, load_target
from benchmarks.farm import crashing_candidates as crashes
from tests.unit.measure import fakes, tasks
from tests.unit.rpc_server.boards import wait_until_gone

SMALL = Sandbox(memory_bytes=768 << 20, folder_bytes=64 << 20)
UNFILTERED = dataclasses.replace(SMALL, filter_calls=False)


def call(worker: WorkerProcess, behaviour: object, timeout_s: float = 3.0) -> str:
    """What came of a candidate: its status and error."""
    seed = crashes.GOOD if behaviour is None else crashes.BEHAVIOURS.index(behaviour)
    built = {"symbol": "kernel", "workspace_bytes": 0, "packs": [], "build_s": 0.0}
    header = {"command": "run", "request": fakes.request(seed).to_json(), "built": built}
    try:
        reply, _ = worker.call(header, b"\0code", timeout_s=timeout_s)
    except WorkerDiedError as error:
        return f"DIED {error}"
    except WorkerTimeoutError:
        return "TIMEOUT"
    return f"{reply['result']['status']} {reply['result']['error']}"


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    worker = WorkerProcess(executor=crashes.EXECUTOR, sandbox=SMALL)
    yield worker
    worker.stop()


@pytest.fixture(scope="module")
def unfiltered() -> Iterator[WorkerProcess]:
    worker = WorkerProcess(executor=crashes.EXECUTOR, sandbox=UNFILTERED)
    yield worker
    worker.stop()


CASES = [
    (crashes.segfault, "DIED killed by SIGSEGV"),
    (crashes.illegal_instruction, "DIED killed by SIGILL"),
    (crashes.leak, "RUN_CRASH MemoryError"),
    (crashes.fork, "RUN_CRASH PermissionError"),
    (crashes.escape, "RUN_CRASH PermissionError"),
    (crashes.flood, "RUN_CRASH OSError: [Errno 27]"),
    (crashes.leave, "DIED exited with status 0"),
    (crashes.write_outside, "RUN_CRASH PermissionError"),
    (crashes.fill_disk, "DIED killed: "),
]


@pytest.mark.parametrize(("behaviour", "outcome"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_a_misbehaving_candidate_ends_with_its_own_call(
    worker: WorkerProcess, behaviour: object, outcome: str
) -> None:
    assert call(worker, behaviour).startswith(outcome)
    assert call(worker, None) == "OK "


def test_a_loop_ends_at_the_deadline(worker: WorkerProcess) -> None:
    assert call(worker, crashes.loop, timeout_s=0.3) == "TIMEOUT"


@pytest.mark.parametrize("behaviour", [crashes.fork, crashes.escape])
def test_children_left_running_are_ended_without_a_filter_too(
    unfiltered: WorkerProcess, behaviour: object
) -> None:
    assert "processes were left running" in call(unfiltered, behaviour)
    assert crashes.workers(os.getpid()).count(unfiltered.pid or 0) == 1
    others = set(crashes.workers(os.getpid())) - {unfiltered.pid}
    assert all(str(unfiltered.pid) not in parent_of(pid) for pid in others)


def parent_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
    except OSError:
        return ""


def test_the_group_of_a_crashed_worker_goes_with_it(unfiltered: WorkerProcess) -> None:
    """The leader has ended already when its children are killed."""
    unfiltered.ready()
    pid = unfiltered.pid
    unfiltered.stop()
    assert pid is not None
    wait_until_gone([pid])
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


def test_the_temporary_directory_is_emptied_and_removed(worker: WorkerProcess) -> None:
    worker.ready()
    (folder,) = folders_of(worker)
    (folder / "left").mkdir()
    (folder / "left" / "file").write_text("x")
    assert call(worker, None) == "OK "
    assert list(folder.iterdir()) == []
    worker.stop()
    assert not folder.exists()


def folders_of(worker: WorkerProcess) -> list[Path]:
    return [Path(os.readlink(f"/proc/{worker.pid}/cwd"))]


def test_folders_of_parents_that_were_killed_are_removed() -> None:
    stale = Path(tempfile.gettempdir()) / "autotune-worker-99999999-gone"
    stale.mkdir(exist_ok=True)
    worker = WorkerProcess(executor=fakes.FAKE)
    worker.start()
    worker.stop()
    assert not stale.exists()


def test_limits_of_a_worker_are_those_asked_for(worker: WorkerProcess) -> None:
    worker.ready()
    text = Path(f"/proc/{worker.pid}/limits").read_text()
    limits = {line[:25].strip(): line[26:].split() for line in text.splitlines()}
    assert limits["Max data size"][:2] == [str(768 << 20)] * 2
    assert limits["Max open files"][:2] == ["256", "256"]
    assert limits["Max file size"][:2] == [str(32 << 20)] * 2
    assert limits["Max core file size"][:2] == ["0", "0"]
    assert limits["Max cpu time"][0].isdigit()


def test_what_holds_and_what_does_not_is_reported(worker: WorkerProcess) -> None:
    worker.ready()
    names = {"limits", "oom", "children", "network", "view", "privileges", "parent", "files"}
    assert set(worker.report) == {*names, "calls"}
    assert worker.report["limits"] == ""
    unbound = WorkerProcess(executor=fakes.FAKE, sandbox=OPEN)
    unbound.ready()
    assert unbound.report["calls"] == "switched off"
    unbound.stop()


def test_a_team_of_threads_runs_inside() -> None:
    target = host_target(2)
    request = MeasureRequest(task=tasks.matmul(), schedule=(), target=target, seed=3)
    with LocalRunner(target, sandbox=Sandbox(read_system_only=True)) as runner:
        (result,) = runner.measure((request,))
    assert (result.status, result.error) == (Status.OK, "")


def test_only_what_a_loader_needs_is_among_what_a_board_s_workers_read() -> None:
    paths = readable(Sandbox(read_system_only=True), "/tmp/work")
    assert paths is not None
    assert {"/usr/lib", "/tmp/work", "/dev/null", "/proc/self"} <= set(paths)
    wide = {"/", "/root", "/home", "/tmp", "/etc", "/usr", "/opt", "/proc", "/sys", "/dev", "/var"}
    assert not wide & set(paths)
    assert not [p for p in paths if visible.inside("/etc/shadow", [p])]
    assert readable(Sandbox(), "/tmp/work") is None


def test_of_a_source_tree_only_packages_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("found = 1")
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "key.pem").write_text("secret")
    (tmp_path / "single.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    places = dict(visible.packages("/tmp/work"))
    assert {"package", "single", "autotune"} <= places.keys()
    assert "certs" not in places
    shown = visible.readable("/tmp/work", False, ())
    assert not visible.inside(tmp_path / "certs" / "key.pem", shown)
    assert visible.inside(tmp_path / "package" / "x.py", shown) == str(tmp_path / "package")


def test_the_directory_that_a_board_was_started_in_is_not_searched() -> None:
    named = os.pathsep.join(["/srv/modules", ""])
    given = ["/home/somebody", "/srv/modules", "/usr/lib/python3/dist-packages"]
    path = own_path({"PYTHONPATH": named}, given)
    assert path[:2] == given[1:]
    assert "/home/somebody" not in path


def test_passwords_of_the_environment_stay_behind() -> None:
    outer = {"PATH": "/bin", "DATABASE_URL": "postgres://u:p@h", "AWS_SECRET": "x", "LC_ALL": "C"}
    inner = worker_environment(outer, Path("/tmp/w"), ["/usr/lib"])
    assert (inner["PATH"], inner["LC_ALL"], inner["HOME"]) == ("/bin", "C", "/tmp/w")
    assert not {"DATABASE_URL", "AWS_SECRET"} & inner.keys()


def test_every_worker_has_a_user_of_its_own(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text("root:x:0:0::/root:/bin/sh\nold:x:61185:61185::/:/bin/sh\n")
    users = [own_user(passwd, pid) for pid in (0, 1, 2)]
    assert users == [61184, 61186, 61186]
    assert own_user(tmp_path / "none", LAST_USER - FIRST_USER) == LAST_USER


def test_a_worker_has_the_groups_of_its_devices_only(tmp_path: Path) -> None:
    wide, closed = tmp_path / "wide", tmp_path / "closed"
    for path, mode in ((wide, 0o666), (closed, 0o600)):
        path.touch()
        path.chmod(mode)
    assert device_groups([str(wide), str(closed), str(tmp_path / "none"), "/dev/null"]) == []


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (b"one\ntwo\n", "two"),
        (b"", ""),
        (b"\x1b[2J\x07bell\x00\xff", r"\x1b[2J\x07bell\x00" + "\ufffd"),
        (b"a" * 100_000, "a" * LAST_WORDS),
    ],
)
def test_last_words_are_short_and_move_no_cursor(written: bytes, words: str) -> None:
    assert last_words(written) == words


def run_filter(code: bytes, machine: int, number: int, first: int = 0, second: int = 0) -> int:
    """The verdict of a filter's instructions on a call: what the kernel does with them."""
    data = {0: number, 4: machine, 16: first, 24: second}
    ops = [seccomp._INSTRUCTION.unpack_from(code, n) for n in range(0, len(code), 8)]
    value, at = 0, 0
    while True:
        operation, if_true, if_false, operand = ops[at]
        at += 1
        if operation == seccomp._LOAD:
            value = data[operand]
        elif operation == seccomp._RETURN:
            return int(operand)
        else:
            holds = {
                seccomp._JUMP_EQUAL: value == operand,
                seccomp._JUMP_FROM: value >= operand,
                seccomp._JUMP_SET: bool(value & operand),
            }[operation]
            at += if_true if holds else if_false


@pytest.mark.parametrize("name", ["x86_64", "aarch64", "riscv64"])
def test_a_filter_refuses_what_it_says_on_every_machine(name: str) -> None:
    machine, calls = seccomp._MACHINES[name]
    code = seccomp.program(name, 77)
    refuse = seccomp._REFUSE | errno.EPERM
    for call, number in {**calls, **seccomp._COMMON}.items():
        first = 1 if call == "prlimit64" else 0
        assert run_filter(code, machine, number, first) == refuse, call
    assert run_filter(code, machine, calls["clone"], 0x3D0F00) == seccomp._ALLOW
    assert run_filter(code, machine, calls["kill"], 77) == seccomp._ALLOW
    assert run_filter(code, machine, calls["kill"], 78) == refuse
    assert run_filter(code, machine, calls["tgkill"], 77) == seccomp._ALLOW
    assert run_filter(code, machine, calls["prlimit64"], 0) == seccomp._ALLOW
    assert run_filter(code, machine, 435) == seccomp._REFUSE | errno.ENOSYS
    assert run_filter(code, machine, 9999) == seccomp._ALLOW
    assert run_filter(code, machine + 1, 9999) == seccomp._KILL


@pytest.mark.parametrize("name", ["x86_64", "aarch64", "riscv64"])
def test_a_filter_may_let_compilers_be_started_and_nothing_else(name: str) -> None:
    machine, calls = seccomp._MACHINES[name]
    strict, wide = (seccomp.program(name, 77, programs) for programs in (False, True))
    changed = {
        call
        for call, number in {**calls, **seccomp._COMMON}.items()
        if run_filter(strict, machine, number, 1) != run_filter(wide, machine, number, 1)
    }
    # A program that begins sets its thread pointer by arch_prctl.
    programs = {"clone", "fork", "vfork", "execve", "execveat", "arch_prctl"}
    assert changed == programs & calls.keys()
    assert run_filter(wide, machine, calls["kill"], 78) == seccomp._REFUSE | errno.EPERM


@pytest.mark.parametrize("name", ["x86_64", "aarch64", "riscv64"])
def test_a_filter_may_let_drivers_make_sockets_of_the_machine(name: str) -> None:
    machine, calls = seccomp._MACHINES[name]
    code = seccomp.program(name, 77, local_sockets=True)
    assert run_filter(code, machine, calls["socket"], socket.AF_UNIX) == seccomp._ALLOW
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
        found = run_filter(code, machine, calls["socket"], family)
        assert found == seccomp._REFUSE | errno.EPERM


def test_a_filter_may_let_matrix_tiles_be_asked_for_and_nothing_else() -> None:
    machine, calls = seccomp._MACHINES["x86_64"]
    code, strict = (seccomp.program("x86_64", 77, tiles=tiles) for tiles in (True, False))
    refuse, ask = seccomp._REFUSE | errno.EPERM, (0x1023, 18)
    call = calls["arch_prctl"]
    assert run_filter(code, machine, call, *ask) == seccomp._ALLOW
    assert run_filter(strict, machine, call, *ask) == refuse
    for other in ((0x1023, 17), (0x1002, 18), (0x1025, 18)):
        assert run_filter(code, machine, call, *other) == refuse
    for name, number in calls.items():
        first = 1 if name == "prlimit64" else 0
        assert run_filter(code, machine, number, first) == refuse, name


@pytest.mark.parametrize("features", ["+avx2", "+avx2,+amx-tile,+amx-bf16"])
def test_workers_may_ask_for_tiles_where_the_target_has_them(features: str) -> None:
    target = dataclasses.replace(load_target("x86-64-v4"), features=features)
    assert sandbox_for(target, Sandbox()).tiles == ("amx" in features)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a call of x86-64")
def test_a_worker_asks_for_tiles_as_the_system_lets_it() -> None:
    """The filter is not what refuses: the answer is that of a process without one."""
    ask = "from autotune import tile_permission as t; print(repr(t.request(t._arch_prctl)))"
    bounds = "import ctypes; from autotune.measure import seccomp; libc = ctypes.CDLL(None)"
    filtered = f"{bounds}; libc.prctl(38, 1, 0, 0, 0); seccomp.install(libc, tiles={{}}); {ask}"
    answers = [
        subprocess.run(
            [sys.executable, "-c", text], check=True, capture_output=True, text=True
        ).stdout
        for text in (ask, filtered.format(True), filtered.format(False))
    ]
    assert answers[0] == answers[1]
    assert answers[2].strip() == repr(os.strerror(errno.EPERM))


def test_other_machines_have_no_filter() -> None:
    with pytest.raises(NotImplementedError, match="no table"):
        seccomp.program("m68k", 1)


def test_the_temporary_directory_keeps_nobody_from_becoming_nobody(tmp_path: Path) -> None:
    """It belongs to root until privileges are dropped, and a worker starts in it."""
    paths = ["/usr", "/root/python", str(tmp_path)]
    assert hidden(paths, str(tmp_path), lambda p: p == "/usr") == ["/root/python"]


KILLED_PARENT = """
import subprocess, sys, threading, time
from autotune.measure.process import WorkerProcess
from tests.unit.measure import fakes
worker = WorkerProcess(executor=fakes.FAKE)
starter = threading.Thread(target=worker.ready)
starter.start()
starter.join()
pipe = worker._process.stdin.fileno()
other = subprocess.Popen(["sleep", "600"], pass_fds=[pipe], start_new_session=True)
print(worker.pid, other.pid, flush=True)
time.sleep(60)
"""


def test_a_worker_outlives_the_thread_that_started_it_but_not_the_process() -> None:
    command = [sys.executable, "-c", KILLED_PARENT]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker, holder = map(int, parent.stdout.readline().split())
    try:
        assert Path(f"/proc/{worker}/cmdline").read_bytes()
        parent.kill()
        parent.wait()
        wait_until_gone([worker])
    finally:
        os.kill(holder, signal.SIGKILL)
        parent.stdout.close()
