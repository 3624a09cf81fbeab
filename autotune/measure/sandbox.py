"""Bounds of a worker process. In: settings. Out: a process whose crashes, loops, leaks, forks and
floods end with it.

What the system does not offer is left out and reported by `ping`, never an error: the same code
runs as root on a board and as a user on a laptop.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from autotune.measure import landlock, seccomp, view, visible

FIRST_USER, LAST_USER = 61184, 65519
"""User ids that no package and no administrator gives away (systemd's dynamic users)."""
SHARED_BYTES = 2 << 30
"""Address space beyond the memory limit: code, shared libraries, reserved but unused ranges."""
SPARE_CPU_S = 5.0
"""Seconds of a core beside a candidate's own: the interpreter's, and what checks the result."""
_NEWNET, _NEWIPC = 0x40000000, 0x08000000
_NO_NEW_PRIVS, _CHILD_SUBREAPER, _CAPBSET_DROP, _PARENT_DEATH_SIGNAL = 38, 36, 24, 1
_DUMPABLE = 4
_CAPABILITY_VERSION = 0x20080522
"""Flags of clone, operations of prctl and the version of capabilities (Linux)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Bounds of a worker process; 0 of a limit means: as many as the system allows."""

    memory_bytes: int = -1
    """Private memory; -1 is three quarters of the machine's."""
    open_files: int = 256
    processes: int = 512
    """Processes and threads of the user that workers run as; holds where privileges are dropped,
    for otherwise the user's other programs would count."""
    file_bytes: int = 32 << 20
    """Bytes of one file, and of what a candidate prints, at most."""
    folder_bytes: int = 256 << 20
    """Bytes of all files in the temporary directory, at most."""
    drop_privileges: bool = True
    own_network: bool = True
    filter_calls: bool = True
    """No new processes, sockets, mounts or signals to others (seccomp)."""
    programs: bool = False
    """Other programs may be started: the compiler of a target's code."""
    tiles: bool = False
    """The system may be asked for matrix tiles."""
    write_temporary_only: bool = True
    """Files are changed in the temporary directory only (Landlock)."""
    devices: tuple[str, ...] = ()
    """Files of devices that may be written to besides; their drivers make sockets of the machine,
    which nobody answers in a network of one's own."""
    read_system_only: bool = False
    """Only the files that Python and the loader need are there (a mount namespace) and can be
    read (Landlock)."""
    own_view: bool = True
    """A mount namespace of its own, in which only some of these files may be read."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


OPEN = Sandbox(
    memory_bytes=0, open_files=0, processes=0, file_bytes=0, folder_bytes=0,
    drop_privileges=False, own_network=False, filter_calls=False, write_temporary_only=False,
)  # fmt: skip
"""No bounds but those of the user, for processes that only run what this program itself wrote."""

Report = dict[str, str]
"""Measure -> '' where it holds, or why it does not."""


def confine(sandbox: Sandbox, folder: str) -> Report:
    """Apply every measure to this process, which has one thread still. `folder`: its temporary
    directory."""
    report: Report = {}
    libc = ctypes.CDLL(None, use_errno=True)

    def measure(name: str, wanted: bool, apply: Callable[[], None]) -> None:
        if not wanted:
            report[name] = "switched off"
            return
        try:
            apply()
            report[name] = ""
        except (OSError, ValueError, NotImplementedError) as error:
            report[name] = getattr(error, "strerror", None) or str(error)

    measure("limits", True, lambda: _set_limits(sandbox))
    measure("oom", True, _first_to_go)
    measure("children", True, lambda: _prctl(libc, _CHILD_SUBREAPER, 1))
    measure("network", sandbox.own_network, lambda: _own_network(libc))
    shown = readable(sandbox, folder)
    user = own_user(Path("/etc/passwd"), os.getpid())
    if shown is not None:
        sys.meta_path.insert(0, visible.TreeImporter(visible.packages(folder)))
    own_view = shown is not None and sandbox.own_view
    measure("view", own_view, lambda: view.enter(libc, shown or (), folder, sandbox.devices))
    measure("privileges", sandbox.drop_privileges, lambda: _drop(libc, sandbox, folder, user))
    # After the change of user, which would undo it.
    measure("parent", True, lambda: _prctl(libc, _PARENT_DEATH_SIGNAL, signal.SIGKILL))
    _prctl(libc, _NO_NEW_PRIVS, 1)
    measure(
        "files",
        sandbox.write_temporary_only,
        lambda: landlock.restrict(libc, [folder, *sandbox.devices], shown),
    )
    measure(
        "calls",
        sandbox.filter_calls,
        lambda: seccomp.install(libc, sandbox.programs, bool(sandbox.devices), sandbox.tiles),
    )
    return report


def end_with_parent() -> None:
    """This process is killed when the one that started it ends. Raises OSError."""
    _prctl(ctypes.CDLL(None, use_errno=True), _PARENT_DEATH_SIGNAL, signal.SIGKILL)


def hide_memory() -> None:
    """Memory, environment and open files of this process are shown to root alone, not to others
    of the same user. Raises OSError."""
    _prctl(ctypes.CDLL(None, use_errno=True), _DUMPABLE, 0)


def readable(sandbox: Sandbox, folder: str) -> list[str] | None:
    """Files and directories a worker may read; None for all."""
    if not sandbox.read_system_only:
        return None
    library_path = os.environ.get("LD_LIBRARY_PATH", "")
    paths = visible.readable(folder, sandbox.programs, sandbox.devices, library_path)
    return [*paths, folder]


def own_user(passwd: Path, pid: int) -> int:
    """A user id that is nobody's: no files are its own, and no process but this one's children.
    Of two processes that live at the same time it is not the same."""
    try:
        lines = passwd.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    taken = {line.split(":")[2] for line in lines if line.count(":") >= 3}
    count = LAST_USER - FIRST_USER + 1
    users = (FIRST_USER + (pid + n) % count for n in range(count))
    return next(user for user in users if str(user) not in taken)


def _set_limits(sandbox: Sandbox) -> None:
    memory = sandbox.memory_bytes
    if memory < 0:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    _limit(resource.RLIMIT_CORE, 0)
    if memory:
        _limit(resource.RLIMIT_DATA, memory)
        _limit(resource.RLIMIT_AS, memory + SHARED_BYTES)
    if sandbox.open_files:
        _limit(resource.RLIMIT_NOFILE, sandbox.open_files)
    if sandbox.file_bytes:
        _limit(resource.RLIMIT_FSIZE, sandbox.file_bytes)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def allow_cpu(wall_s: float) -> None:
    """Let this process use as much processor time as its threads can in `wall_s`, from now on."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    soft = int(used + (wall_s + SPARE_CPU_S) * (os.cpu_count() or 1))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _first_to_go() -> None:
    """When memory runs out, the kernel takes the candidate and not the board."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def _own_network(libc: ctypes.CDLL) -> None:
    """A network with no interface that is up, and no shared memory of others."""
    view.unshare(libc, _NEWNET | _NEWIPC)


def _drop(libc: ctypes.CDLL, sandbox: Sandbox, folder: str, user: int) -> None:
    """Become `user`, where that one can read the program; give up all capabilities in any case.
    Raises NotImplementedError naming what kept the user."""
    kept = ""
    if os.getuid() == 0:
        kept = _become(user, sandbox, folder)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    view.check(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    for number in range(64):
        libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)  # the set ends somewhere below 64
    if kept:
        raise NotImplementedError(kept)


def _become(user: int, sandbox: Sandbox, folder: str) -> str:
    """Empty, or the directory for whose sake the user stays root, without its capabilities."""
    os.seteuid(user)
    paths = [sys.prefix, sys.base_prefix, __file__, *(p for p in sys.path if p)]
    denied = hidden(paths, folder, lambda p: os.access(p, os.R_OK, effective_ids=True))
    os.seteuid(0)
    denied = [p for p in denied if os.path.exists(p)]
    if denied:
        return f"still root, without capabilities: only root can read {denied[0]}"
    os.chown(folder, user, user)
    os.setgroups(device_groups(sandbox.devices))
    os.setresgid(user, user, user)
    if sandbox.processes:
        _limit(resource.RLIMIT_NPROC, sandbox.processes)
    os.setresuid(user, user, user)
    return ""


def device_groups(devices: Sequence[str]) -> list[int]:
    """Groups that may write to devices which not everybody may: video, render. The system's own
    group is none of them."""
    found = set()
    for path in devices:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if status.st_mode & 0o020 and not status.st_mode & 0o002 and status.st_gid:
                found.add(status.st_gid)
    return sorted(found)


def hidden(paths: Sequence[str], folder: str, readable: Callable[[str], bool]) -> list[str]:
    """Files that cannot be read, but for the temporary directory, which is about to be given to
    who cannot."""
    own = os.path.realpath(folder)
    return [p for p in paths if os.path.realpath(p) != own and not readable(p)]


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    view.check(libc.prctl(option, value, 0, 0, 0), "prctl")


def end_children() -> int:
    """Kill the processes that a candidate left behind, however deep; how many there were."""
    ended = 0
    while children := _children():
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)
            ended += 1
    return ended


def _children() -> list[int]:
    """Children of every thread; none where the kernel does not list them."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/self/task/{task}/children").read_text(encoding="ascii")
            found += map(int, text.split())
    return found
