"""A file tree of a process's own: a mount namespace that holds the given files and nothing else.

In: paths. Out: a root directory, made in memory, where these are at their places, read-only but
for the one that may be written. Root makes it directly, others in a user namespace where they are
themselves. It holds without Landlock, and it lets another user read programs below a directory
that only root may enter.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_NEWUSER, _NEWNS = 0x10000000, 0x00020000
_READ_ONLY, _REMOUNT, _BIND, _MOVE, _RECURSIVE, _PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
_DETACH = 2
"""Flags of unshare, mount and umount2 (Linux)."""
_KEPT = 0xF | 1024 | 2048
"""Bits of statvfs that mount flags share: read-only, nosuid, nodev, noexec, noatime,
nodiratime."""
_RELATIVE_TIMES, _RELATIVE_TIMES_FLAG = 4096, 1 << 21
"""Flags of mounts that are kept when one is bound again."""
_MOST_LINKS = 40
"""Links that a path is followed through, as the kernel does (MAXSYMLINKS)."""
_MEMORY = b"mode=755,size=1m"


def enter(libc: ctypes.CDLL, shown: Sequence[str], folder: str, devices: Sequence[str]) -> None:
    """Leave the machine's files for a tree of `shown` and `folder`; the last stays writable and
    is the working directory. Raises OSError with everything as it was, where a namespace cannot
    be had."""
    unshare(libc, _NEWNS)
    _mount(libc, None, "/", _RECURSIVE | _PRIVATE)
    own = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    _mount_memory(libc, folder)
    try:
        for path in dict.fromkeys([*_places(shown), folder]):
            source = f"/proc/self/fd/{own}" if path == folder else path
            target = _point(folder, path, source)
            if target and path == folder:
                _mount(libc, source, target, _BIND)
            elif target:
                _show(libc, source, target, any(_holds(path, device) for device in devices))
        _mount(libc, None, folder, _REMOUNT | _READ_ONLY)
        os.chdir(folder)
        _mount(libc, ".", "/", _MOVE)
    except OSError:
        os.chdir("/")
        libc.umount2(folder.encode(), _DETACH)
        os.chdir(folder)
        raise
    finally:
        os.close(own)
    os.chroot(".")
    os.chdir(folder)


def _holds(path: str, device: str) -> bool:
    """Whether a mount is what may be written to, or holds it: processes are mounted as a whole."""
    return path == device or (path == "/proc" and device.startswith("/proc/"))


def unshare(libc: ctypes.CDLL, spaces: int) -> None:
    """Namespaces of one's own: root makes them directly, others in a user namespace where they
    are themselves. Raises OSError."""
    if libc.unshare(spaces) == 0:
        return
    user, group = os.geteuid(), os.getegid()
    with open("/proc/self/uid_map", "wb"):
        pass  # raises here, not where this process would be nobody already
    check(libc.unshare(_NEWUSER | spaces), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _places(paths: Sequence[str]) -> list[str]:
    """What to mount: of nested paths the outer one; one file system of processes, which shows a
    process under a name of its own."""
    whole = ["/proc" if p.startswith("/proc/") else p for p in dict.fromkeys(paths)]
    ordered = sorted(dict.fromkeys(whole), key=lambda p: (p.count("/"), p))
    kept: list[str] = []
    for path in ordered:
        if not any(Path(path).is_relative_to(outer) for outer in kept):
            kept.append(path)
    return kept


def _point(root: str, path: str, source: str) -> str:
    """The mount point of a path below the new root, made with the symbolic links on the way to
    it; '' where it is there already."""
    parts, done = [p for p in path.split("/") if p], "/"
    links = 0
    while parts:
        part, *parts = parts
        here = os.path.normpath(os.path.join(done, part))
        there = root + here
        if part != ".." and os.path.islink(here) and links < _MOST_LINKS:
            links += 1
            aim = os.readlink(here)
            if not os.path.lexists(there):
                os.symlink(aim, there)
            parts = [p for p in aim.split("/") if p and p != "."] + parts
            done = "/" if aim.startswith("/") else done
            continue
        done = here
        if os.path.ismount(there):
            return ""
        if parts or os.path.isdir(source if here == path else here):
            os.makedirs(there, exist_ok=True)
        elif not os.path.exists(there):
            os.close(os.open(there, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    return root + done


def _show(libc: ctypes.CDLL, source: str, target: str, writable: bool) -> None:
    _mount(libc, source, target, _BIND | _RECURSIVE)
    if not writable:
        found = os.statvfs(target).f_flag
        kept = found & _KEPT | (_RELATIVE_TIMES_FLAG if found & _RELATIVE_TIMES else 0)
        _mount(libc, None, target, _BIND | _REMOUNT | _READ_ONLY | kept)


def _mount(libc: ctypes.CDLL, source: str | None, target: str, flags: int) -> None:
    words = [None if w is None else os.fsencode(w) for w in (source, target)]
    check(libc.mount(*words, None, ctypes.c_ulong(flags), None), f"mount {target}")


def _mount_memory(libc: ctypes.CDLL, target: str) -> None:
    """An empty file system that is gone with its last process."""
    status = libc.mount(b"tmpfs", os.fsencode(target), b"tmpfs", ctypes.c_ulong(0), _MEMORY)
    check(status, f"mount {target}")


def check(status: int, what: str) -> None:
    """Raises OSError where a call of the system failed."""
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
