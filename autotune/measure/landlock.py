"""Landlock: which files a process and its children may still change and read. In: directories.

The kernel's own interface (Linux 5.13 and newer), reached through the C library's `syscall`.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence

CREATE, ADD, RESTRICT = 444, 445, 446
"""System calls newer than 5.0 have the same number on every machine."""
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
"""Rights to files (linux/landlock.h)."""
_RENAME, _TRUNCATE = 1 << 13, 1 << 14
"""Known to versions 2 and 3; without the first, files stay in the directory they are made in."""
_CHANGE = _WRITE | sum(1 << n for n in range(4, 13))
"""Write, remove and make files of every kind."""
_VERSION_FLAG, _PATH_BENEATH = 1, 1
"""Flag that asks for the version; kind of rule."""
_FOR_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE


_SCOPES = 1 << 0 | 1 << 1
"""No abstract sockets of others, no signals to them; since version 6."""
_VERSION_WITH_SCOPES, _SIZE_WITH_SCOPES, _SIZE_OF_FILES = 6, 24, 8
"""Version of the interface that has scopes, and bytes of its structure with and without them."""


class _Handled(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def restrict(
    libc: ctypes.CDLL, writable: Sequence[str], readable: Sequence[str] | None = None
) -> None:
    """From now on only what lies below `writable` can be changed and, if given, only what lies
    below `readable` or `writable` can be read. Raises OSError or NotImplementedError where the
    kernel has no Landlock."""
    if platform.system() != "Linux":
        raise NotImplementedError("Landlock is a part of Linux")
    version = libc.syscall(CREATE, None, ctypes.c_size_t(0), _VERSION_FLAG)
    if version < 1:
        raise NotImplementedError("the kernel has no Landlock")
    changes = _CHANGE | (_RENAME if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    reads = _EXECUTE | _READ | _LIST
    files = changes | (reads if readable is not None else 0)
    handled = _Handled(files, 0, _SCOPES)
    size = _SIZE_WITH_SCOPES if version >= _VERSION_WITH_SCOPES else _SIZE_OF_FILES
    rules = _checked(libc.syscall(CREATE, ctypes.byref(handled), ctypes.c_size_t(size), 0))
    try:
        for path in writable:
            _allow(libc, rules, path, files)
        for path in readable or ():
            _allow(libc, rules, path, files & reads)
        _allow(libc, rules, os.devnull, files & (_WRITE | _READ))
        _checked(libc.syscall(RESTRICT, rules, 0))
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, allowed: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    kept = path.startswith("/proc/")
    try:
        if not os.path.isdir(path):
            allowed &= _FOR_FILES
        rule = _PathRule(allowed, folder)
        _checked(libc.syscall(ADD, rules, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        # A rule is of a file while the kernel remembers it: one of processes is made anew, and
        # no rule's any more, when nobody has it open.
        if not kept:
            os.close(folder)


def _checked(status: int) -> int:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return status
