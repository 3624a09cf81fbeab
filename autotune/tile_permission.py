"""Linux's permission for matrix tiles (Intel AMX): whether there is one, and asking for it.

A thread's tiles are 8 KiB that the system saves with its other registers, and only of processes
that have asked (Linux 5.16 and later). Asking is of the whole process, threads that run already
included; their alternate signal stacks, where they have one, must hold the larger frame
(`getauxval(AT_MINSIGSTKSZ)`), or the system refuses. In: nothing. Out: a reason, or none.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
from collections.abc import Callable

SYSTEM_CALL = 158
"""Number of arch_prctl on x86-64."""
SUPPORTED, REQUEST = 0x1021, 0x1023
"""ARCH_GET_XCOMP_SUPP, ARCH_REQ_XCOMP_PERM."""
TILE_DATA = 18
"""XFEATURE_XTILEDATA."""

Call = Callable[[int, int], int]
"""arch_prctl of (code, argument): 0, or an error's number."""


def refusal(call: Call | None = None) -> str:
    """Why this process would get no tiles, without asking for them; empty: it would."""
    found = ctypes.c_uint64(0)
    failed = (call or _arch_prctl)(SUPPORTED, ctypes.addressof(found))
    if failed:
        return _reason(failed)
    return "" if found.value >> TILE_DATA & 1 else "the system does not save them"


def request(call: Call | None = None) -> str:
    """Ask for tiles: why they are refused; empty: this process may use them."""
    if call is None:
        return _asked_once()
    failed = call(REQUEST, TILE_DATA)
    return _reason(failed) if failed else ""


@functools.cache
def _asked_once() -> str:
    return request(_arch_prctl)


def _reason(failed: int) -> str:
    if failed == errno.ENOSPC:
        return "a thread's alternate signal stack is too small for them"
    if failed == errno.EOPNOTSUPP:
        return "the processor has none"
    if failed in (errno.EINVAL, errno.ENOSYS):
        return "the system knows no matrix tiles, Linux 5.16 does"
    return os.strerror(failed)


def _arch_prctl(code: int, argument: int) -> int:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return errno.ENOSYS
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.syscall(
        ctypes.c_long(SYSTEM_CALL), ctypes.c_long(code), ctypes.c_ulong(argument)
    )
    return ctypes.get_errno() if status else 0
